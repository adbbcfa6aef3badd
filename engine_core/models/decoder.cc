#include "engine_core/models/decoder.h"

#include <algorithm>
#include <utility>

#include "engine_core/models/rope_table.h"

namespace tandem {
namespace {

// Some rows of a table [num_rows, H].
StoredMatrix TableOf(const LoadContext& context, const std::string& name, int64_t num_rows,
                     Slice rows) {
  return {.name = name, .rows = num_rows, .columns = context.config.hidden_size, .row_slice = rows};
}

StatusOr<LinearLayer> LoadTable(const LoadContext& context, const std::string& name,
                                int64_t num_rows, Slice rows, const LinearOptions& options) {
  const StoredMatrix block[] = {TableOf(context, name, num_rows, rows)};
  return LoadLinear(context, block, options);
}

// The rank's rows of a table of the vocabulary.
StatusOr<LinearLayer> LoadVocabulary(const LoadContext& context, const std::string& name,
                                     AdaptedAs adapted_as, bool has_bias = false) {
  const int64_t num_ids = context.config.vocab_size;
  return LoadTable(
      context, name, num_ids, context.share.OfAbout(num_ids),
      {.has_bias = has_bias, .format = context.formats.embedding, .adapted_as = adapted_as});
}

// Ranks that outnumber the key-value heads hold copies of them.
bool IsFirstCopy(const LoadContext& context) {
  const int64_t num_copies = std::max<int64_t>(1, context.share.size / context.config.num_kv_heads);
  return context.share.rank % num_copies == 0;
}

}  // namespace

Decoder::Decoder(const LoadContext& context, DecoderOptions options)
    : device_(&context.backend.device()),
      ops_(&context.backend.ops()),
      options_(std::move(options)),
      ranks_(context.ranks),
      split_(context.share, context.ranks),
      all_heads_(HeadsOf(context.config)),
      heads_(context.heads()),
      share_(context.share),
      vocabulary_(AboutEvenColumns(context.share, context.config.vocab_size)),
      kv_columns_(KvColumns(context.config, context.share)),
      writes_k_(IsFirstCopy(context)) {
  CHECK_EQ(context.share.size > 1, ranks_ != nullptr) << context.share.size;
}

StatusOr<Decoder> Decoder::Load(const LoadContext& context, DecoderOptions options) {
  Decoder decoder(context, std::move(options));
  const float unit = decoder.options_.residual_unit;
  decoder.norm_epsilon_ = static_cast<float>(context.config.rms_norm_eps) / (unit * unit);
  if (context.stage.is_first()) RETURN_IF_ERROR(decoder.LoadEmbedding(context));
  if (context.stage.is_last()) RETURN_IF_ERROR(decoder.LoadHead(context));
  ASSIGN_OR_RETURN(decoder.rope_,
                   decoder.LoadRope(context, context.config.rope, context.config.rotary_dim));
  if (decoder.options_.local_rope) {
    ASSIGN_OR_RETURN(decoder.local_rope_, decoder.LoadRope(context, *decoder.options_.local_rope,
                                                           context.config.local_rotary_dim));
  }
  if (!context.config.rope.sections.empty() &&
      context.config.vision.family != VisionFamily::kNone) {
    ASSIGN_OR_RETURN(decoder.step_rope_, StepRope::Create(context));
  }
  RETURN_IF_ERROR(decoder.AllocateActivations(context));
  if (decoder.options_.has_mixture_beside) RETURN_IF_ERROR(decoder.AllocateBeside(context));
  if (decoder.options_.has_layer_inputs) {
    ASSIGN_OR_RETURN(decoder.layer_inputs_, LayerInputs::Load(context));
  }
  if (decoder.options_.mixture) {
    ASSIGN_OR_RETURN(decoder.mixer_, ExpertMixer::Create(context, *decoder.options_.mixture));
  }
  return decoder;
}

Status Decoder::LoadEmbedding(const LoadContext& context) {
  const ModelConfig& config = context.config;
  ASSIGN_OR_RETURN(embedding_, LoadVocabulary(context, options_.embedding, AdaptedAs::kEmbedding));
  const LinearOptions exact = {.format = WeightFormat::kCompute, .adapted_as = AdaptedAs::kNothing};
  if (!options_.positions.empty()) {
    const int64_t num_positions = config.max_position_embeddings, first = options_.first_position;
    ASSIGN_OR_RETURN(position_table_, LoadTable(context, options_.positions, first + num_positions,
                                                {first, num_positions}, exact));
  }
  if (!options_.token_types.empty()) {
    const int64_t num_types = config.num_token_types;
    ASSIGN_OR_RETURN(type_table_,
                     LoadTable(context, options_.token_types, num_types, {0, num_types}, exact));
  }
  if (!options_.embedding_norm.empty()) {
    ASSIGN_OR_RETURN(embedding_norm_, LoadLayerNorm(context, options_.embedding_norm,
                                                    options_.has_embedding_norm_bias));
  }
  return OkStatus();
}

Status Decoder::LoadHead(const LoadContext& context) {
  const ModelConfig& config = context.config;
  if (!context.makes_logits) {
    // What is pooled are the hidden states.
  } else if (!config.tie_word_embeddings) {
    ASSIGN_OR_RETURN(lm_head_, LoadVocabulary(context, options_.head, AdaptedAs::kLinear,
                                              options_.has_head_bias));
  } else {
    if (embedding_.weight == nullptr) {
      ASSIGN_OR_RETURN(embedding_,
                       LoadVocabulary(context, options_.embedding, AdaptedAs::kNothing));
    }
    const int64_t num_ids = config.vocab_size;
    const StoredMatrix head[] = {
        TableOf(context, options_.head, num_ids, context.share.OfAbout(num_ids))};
    lm_head_.adapter_site = AddAdapterSite(context, head, {}, *embedding_.weight);
    if (options_.has_head_bias) {
      ASSIGN_OR_RETURN(lm_head_.bias, LoadBias(context, head));
    }
  }
  if (options_.final_norm.empty()) return OkStatus();
  ASSIGN_OR_RETURN(final_norm_,
                   options_.has_layer_norm
                       ? LoadLayerNorm(context, options_.final_norm, options_.has_norm_bias)
                       : LoadRmsNorm(context, options_.final_norm, options_.norm_offset));
  return OkStatus();
}

StatusOr<Decoder::RopeTensors> Decoder::LoadRope(const LoadContext& context, const RopeConfig& rope,
                                                 int64_t rotary_dim) const {
  RopeTensors tensors;
  if (rotary_dim == 0) return tensors;
  const int64_t positions = context.limits.max_positions, dim = rotary_dim;
  if (rope.type == RopeType::kDynamic && positions > context.config.max_position_embeddings) {
    return UnimplementedError("beyond max_position_embeddings " +
                              std::to_string(context.config.max_position_embeddings) +
                              " rope type dynamic depends on the length of each request; lower "
                              "--max-model-len, which is " +
                              std::to_string(positions));
  }
  constexpr int64_t kGrain = 1024;  // positions, some 0.1 to 1 ms
  RopeTable table =
      MakeRopeTable(rope, dim, positions, [&](int64_t num_positions, RangeFunction fill) {
        context.backend.ParallelFor(num_positions, kGrain, fill);
      });
  const Tensor cos(table.cos.data(), DType::kF32, {positions, dim / 2});
  const Tensor sin(table.sin.data(), DType::kF32, {positions, dim / 2});
  Device& device = context.backend.device();
  ASSIGN_OR_RETURN(tensors.cos, device.Upload(cos, DType::kF32));
  ASSIGN_OR_RETURN(tensors.sin, device.Upload(sin, DType::kF32));
  return tensors;
}

Status Decoder::AllocateActivations(const LoadContext& context) {
  const ModelConfig& config = context.config;
  Device& device = context.backend.device();
  const DType act = context.backend.activation_dtype(), res = context.backend.residual_dtype();
  if (!options_.q_scale.empty()) {
    const auto size = static_cast<int64_t>(options_.q_scale.size());
    ASSIGN_OR_RETURN(
        q_scale_, device.Upload(Tensor(options_.q_scale.data(), DType::kF32, {size}), DType::kF32));
  }
  const int64_t tokens = context.limits.max_tokens, rows = context.limits.max_logits_rows;
  const int64_t hidden = config.hidden_size;
  if (context.stage.is_first()) {
    ASSIGN_OR_RETURN(embedded_, device.Allocate(res, {tokens, hidden}));
  }
  if (position_table_.weight != nullptr || type_table_.weight != nullptr) {
    ASSIGN_OR_RETURN(positions_, device.Allocate(res, {tokens, hidden}));
  }
  ASSIGN_OR_RETURN(normed_, device.Allocate(act, {tokens, hidden}));
  if (config.latent.kv_rank > 0) {
    ASSIGN_OR_RETURN(latent_, LatentAttention::Create(context));
  } else {
    const int64_t gate = config.attn_output_gate ? heads_.q_size() : 0;
    int64_t qkv = heads_.qkv_size(), q = heads_.q_size(), all_q = all_heads_.q_size();
    for (int64_t i = 0; config.is_uneven() && i < config.num_layers; ++i) {
      const HeadShare heads = HeadsOfLayer(config, i, context.share);
      qkv = std::max(qkv, heads.qkv_size());
      q = std::max(q, heads.q_size());
      all_q = std::max(all_q, HeadsOfLayer(config, i).q_size());
    }
    ASSIGN_OR_RETURN(qkv_, device.Allocate(act, {tokens, qkv + gate}));
    ASSIGN_OR_RETURN(q_, device.Allocate(act, {tokens, q}));
    ASSIGN_OR_RETURN(attended_, context.AllocateShared(act, {tokens, all_q}));
  }
  if (config.recurrent.num_layers() > 0) {
    ASSIGN_OR_RETURN(recurrent_, RecurrentMixer::Create(context));
  }
  if (config.shared_intermediate_size > 0) {
    ASSIGN_OR_RETURN(shared_gate_, device.Allocate(DType::kF32, {tokens, 1}));
  }
  const int64_t inner =
      std::max(config.InnerSizeOf(config.num_layers - 1), config.shared_intermediate_size);
  // Twice where gates are not part of a product.
  const int64_t num_up = share_.Of(inner).count;
  const bool is_apart = config.is_bidirectional || config.ScalesMlp();
  ASSIGN_OR_RETURN(up_, device.Allocate(act, {tokens, is_apart ? 2 * num_up : num_up}));
  ASSIGN_OR_RETURN(activated_, context.AllocateShared(act, {tokens, inner}));
  if (context.stage.is_last()) {
    ASSIGN_OR_RETURN(last_, device.Allocate(res, {rows, hidden}));
    ASSIGN_OR_RETURN(last_normed_, device.Allocate(act, {rows, hidden}));
  }
  if (ranks_ == nullptr) return OkStatus();
  const int64_t q_size = all_heads_.q_size(), kv_size = all_heads_.kv_size();
  ASSIGN_OR_RETURN(branch_, context.AllocateShared(act, {tokens, hidden}));
  if (!latent_) {
    ASSIGN_OR_RETURN(projections_, context.AllocateShared(act, {tokens, q_size + kv_size}));
    ASSIGN_OR_RETURN(projection_, device.Allocate(act, {tokens, q_size}));
  }
  ASSIGN_OR_RETURN(all_logits_, context.AllocateShared(DType::kF32, {rows, config.vocab_size}));
  return OkStatus();
}

void Decoder::Embed(const Tensor& token_ids, const Tensor& positions, const Tensor& token_types,
                    std::span<const EmbeddedRows> embedded, const Tensor& room) {
  num_tokens_ = token_ids.rows();
  residual_ = room.empty() ? RowsOf(embedded_) : room;
  lacks_parts_ = false;
  if (ranks_ == nullptr) {
    EmbedRows(0, token_ids, positions, token_types);
  } else if (shares_memory()) {
    EmbedOwnRows(token_ids, positions, token_types);
  } else {
    EmbedParts(token_ids, positions);
  }
  // Their token ids are 0, so no rank but the first writes there in memory that all share.
  const bool copies = !shares_memory() || share_.is_first();
  for (const EmbeddedRows& rows : embedded) {
    if (!copies) break;
    device_->StartCopyIn(residual_.Rows(rows.first, rows.values.rows()), rows.values);
  }
  Meet();
  if (!embedding_norm_.weight.view().empty()) NormEmbeddedRows(embedded);
  if (layer_inputs_) {
    Norm({});
    layer_inputs_->AddProjected(Normed());
    Meet();
  }
}

void Decoder::NormEmbedded(const Tensor& rows) {
  ops_->LayerNorm(rows, rows, embedding_norm_.weight, embedding_norm_.bias, norm_epsilon_);
}

// All ranks have copied these rows, so one of them is enough.
void Decoder::NormEmbeddedRows(std::span<const EmbeddedRows> embedded) {
  for (const EmbeddedRows& rows : embedded) {
    if (share_.is_first()) NormEmbedded(residual_.Rows(rows.first, rows.values.rows()));
  }
  if (!embedded.empty()) Meet();
}

void Decoder::EmbedRows(int64_t begin, const Tensor& ids, const Tensor& positions,
                        const Tensor& token_types) {
  const Tensor out = residual_.Rows(begin, ids.rows());
  EmbedIds(begin, out, ids);
  if (layer_inputs_) layer_inputs_->Embed(begin, ids, num_tokens_);
  FinishEmbedding(begin, out, positions, token_types);
}

void Decoder::EmbedIds(int64_t begin, const Tensor& out, const Tensor& ids) {
  ops_->Embedding(out, ids, *embedding_.weight, options_.embedding_scale);
  AdapterRows adapters = adapters_.Pick(embedding_.adapter_site);
  if (adapters.empty()) return;
  adapters.slots = adapters.slots.Rows(begin, ids.rows());
  ops_->AddAdaptedEmbedding(out, ids, adapters, options_.embedding_scale);
}

void Decoder::FinishEmbedding(int64_t begin, const Tensor& out, const Tensor& positions,
                              const Tensor& token_types) {
  const auto add = [&](const LinearLayer& table, const Tensor& rows) {
    if (table.weight == nullptr) return;
    const Tensor learned = positions_.view().Rows(begin, out.rows());
    ops_->Embedding(learned, rows, *table.weight);
    ops_->Add(out, learned);
  };
  add(position_table_, positions);
  add(type_table_, token_types);
  if (!embedding_norm_.weight.view().empty()) NormEmbedded(out);
}

void Decoder::EmbedOwnRows(const Tensor& token_ids, const Tensor& positions,
                           const Tensor& token_types) {
  const Slice own = vocabulary_.own();
  const Tensor own_ids = ranks_->IdsFrom(token_ids, own.begin);
  const auto* ids = own_ids.Data<int32_t>();
  const auto is_own = [&](int64_t t) { return ids[t] >= 0 && ids[t] < own.count; };
  for (int64_t end = 0; end < num_tokens_; ++end) {
    const int64_t begin = end;
    while (end < num_tokens_ && is_own(end)) ++end;
    if (end == begin) continue;
    const auto run = [&](const Tensor& all) { return all.Rows(begin, end - begin); };
    EmbedRows(begin, run(own_ids), run(positions),
              token_types.empty() ? Tensor() : run(token_types));
  }
}

// A device's embeddings of ids outside the table are zeros, and one rank has each id.
void Decoder::EmbedParts(const Tensor& token_ids, const Tensor& positions) {
  EmbedIds(0, residual_, ranks_->IdsFrom(token_ids, vocabulary_.own().begin));
  ranks_->Sum(residual_);
  FinishEmbedding(0, residual_, positions, {});
}

void Decoder::SetPositions(const Tensor& mrope_positions, const Tensor& last_seen) {
  last_seen_ = last_seen;
  turned_ = {};
  if (mrope_positions.empty()) return;
  CHECK(step_rope_) << "a model without mrope_section";
  turned_ = step_rope_->Fill(rope_.cos, rope_.sin, mrope_positions);
}

void Decoder::AddDeepstack(std::span<const EmbeddedRows> rows, int64_t layer_idx) {
  if (rows.empty()) return;
  GatherResidual();
  const int64_t hidden = residual_.shape[1];
  bool adds = false;
  for (const EmbeddedRows& some : rows) {
    if ((layer_idx + 1) * hidden > some.values.shape[1]) continue;
    ops_->Add(Written(residual_.Rows(some.first, some.values.rows())),
              Written(some.values.Columns(layer_idx * hidden, hidden)));
    adds = true;
  }
  if (adds) Meet();
}

void Decoder::Continue(const Tensor& hidden) {
  num_tokens_ = hidden.rows();
  residual_ = hidden;
  lacks_parts_ = false;
}

void Decoder::GatherResidual() {
  if (!lacks_parts_) return;
  lacks_parts_ = false;
  split_.Gather(residual_, split_.Own(residual_));
}

// In shared memory the others' columns are there after a meeting. Between devices they wait for
// the norm that reads them.
void Decoder::AddedOwn() {
  lacks_parts_ = ranks_ != nullptr;
  if (shares_memory()) GatherResidual();
}

void Decoder::Norm(const NormLayer& norm) {
  const Tensor& weight = norm.weight;
  const Tensor& bias = norm.bias;
  const Tensor normed = RowsOf(normed_);
  pending_norm_ = bias.empty() ? weight : Tensor();
  if (lacks_parts_ && !pending_norm_.empty() &&
      split_.TryGatherNormed(residual_, split_.Own(residual_),
                             {normed, pending_norm_, norm_epsilon_})) {
    lacks_parts_ = false;
    pending_norm_ = Tensor();
    return;
  }
  GatherResidual();
  if (weight.empty()) {
    ops_->Convert(normed, residual_);
  } else if (!bias.empty()) {
    ops_->LayerNorm(normed, residual_, weight, bias, norm_epsilon_);
  }
}

// In place: where ranks share memory, each norms some rows.
void Decoder::NormResidual(const NormLayer& norm) {
  Tensor rows = residual();
  if (shares_memory()) {
    const Slice own = share_.OfAbout(num_tokens_);
    rows = rows.Rows(own.begin, own.count);
  }
  if (rows.rows() > 0) ops_->LayerNorm(rows, rows, norm.weight, norm.bias, norm_epsilon_);
  Meet();
}

Tensor Decoder::Normed() {
  const Tensor normed = RowsOf(normed_);
  if (!pending_norm_.empty()) ops_->RmsNorm(normed, residual_, pending_norm_, norm_epsilon_);
  pending_norm_ = Tensor();
  return normed;
}

void Decoder::Multiply(const Tensor& out, const Tensor& x, const LinearLayer& layer,
                       LinearEpilogue epilogue) {
  MultiplyBy(layer, out, x, epilogue, &adapters_, ops_);
}

void Decoder::MultiplyNormed(const Tensor& out, const LinearLayer& layer, LinearEpilogue epilogue) {
  const bool is_adapted = !adapters_.Pick(layer.adapter_site).empty();
  if (pending_norm_.empty() || is_adapted) return Multiply(out, Normed(), layer, epilogue);
  ops_->RmsNormLinear(out, residual_, pending_norm_, norm_epsilon_, *layer.weight, layer.bias,
                      epilogue);
}

void Decoder::AddBranch(const Tensor& x, const LinearLayer& out, const NormLayer& post_norm) {
  if (post_norm.weight.view().empty()) {
    const Tensor own = split_.Own(residual_);
    Multiply(own, x, out, LinearEpilogue::kAddResidual);
    return AddedOwn();
  }
  const Tensor normed = RowsOf(normed_);  // the norm that it contains is not needed any more
  const Tensor branch = ranks_ == nullptr ? normed : RowsOf(branch_);
  const Tensor part = split_.Part(branch);
  Multiply(part, x, out);
  split_.Gather(branch, part);
  ops_->RmsNorm(normed, branch, post_norm.weight, norm_epsilon_);
  AddWhole(residual(), normed);
}

void Decoder::Attend(const AttentionLayer& layer, const LayerKv& kv, const AttentionPlan& plan) {
  ProjectQkv(layer);
  AttendProjected(layer, kv, plan);
}

void Decoder::AttendTo(const Tensor& x, const AttentionLayer& layer, const LayerKv& kv,
                       const AttentionPlan& plan) {
  Multiply(QkvOf(layer), x, layer.qkv);
  AttendQkv(RowsOf(qkv_), layer, kv, plan);
}

void Decoder::AttendLatent(const LatentLayer& layer, const LayerKv& kv, const AttentionPlan& plan) {
  MultiplyNormed(latent_->Down(num_tokens_), layer.down);
  if (layer.index) MultiplyNormed(latent_->IndexDown(num_tokens_), layer.index->down);
  const Tensor values = latent_->Run(layer, rope_.cos, rope_.sin, kv, plan, &adapters_);
  split_.Gather(values, split_.Own(values));
  AddBranch(values, layer.out, {});
}

void Decoder::Recur(const RecurrentLayer& layer, const LayerKv& kv, const AttentionPlan& plan) {
  ProjectRecurrent(layer);
  RecurProjected(layer, kv, plan);
}

void Decoder::ProjectRecurrent(const RecurrentLayer& layer) {
  MultiplyNormed(recurrent_->In(num_tokens_), layer.in);
  if (layer.gates.weight != nullptr) MultiplyNormed(recurrent_->Gates(num_tokens_), layer.gates);
}

void Decoder::AttendQkv(const Tensor& projected, const AttentionLayer& layer, const LayerKv& kv,
                        const AttentionPlan& plan) {
  const HeadShare heads = layer.heads.value_or(heads_);
  const Tensor q = RowsOf(q_).Columns(0, heads.q_size());
  const Tensor attended = RowsOf(attended_).Columns(0, layer.out.weight->k());
  const Tensor own = split_.Part(attended);
  const Tensor qkv = projected.Columns(0, layer.has_own_kv ? heads.qkv_size() : heads.q_size());
  const RopeTensors none = {};
  const RopeTensors& tables = !layer.has_rope ? none : layer.use_local_rope ? local_rope_ : rope_;
  const bool is_turned = &tables == &rope_ && !turned_.rows.empty();
  const QkRope rope = {.cos = is_turned ? turned_.cos : tables.cos.view(),
                       .sin = is_turned ? turned_.sin : tables.sin.view(),
                       .rotary_dim = static_cast<int>(tables.cos.view().shape[1]) * 2,
                       .q_norm = layer.q_norm,
                       .k_norm = layer.k_norm,
                       .norm_epsilon = norm_epsilon_,
                       .norms_after_rope = layer.norms_after_rope,
                       .is_interleaved = options_.is_rope_interleaved,
                       .q_scale = layer.scales_q ? q_scale_.view() : Tensor(),
                       .is_of_q_alone = !layer.has_own_kv,
                       .rows = is_turned ? turned_.rows : Tensor()};
  AttentionOptions options = layer.options;
  options.last_seen = last_seen_;
  options.sinks = layer.sinks;
  options.slopes = layer.slopes;
  if (!layer.q_projection_norm.view().empty()) NormProjections(layer, qkv);
  if (!layer.q_head_norms.view().empty()) NormHeads(layer, qkv);
  if (layer.has_own_kv) PrepareValues(layer, heads, qkv);
  ops_->QkNormRopeWriteKv(q, qkv, rope, kv, plan);
  ops_->PagedAttention(own, q, kv, options, plan);
  if (layer.has_gate) {
    ops_->GateBySigmoid(own, projected.Columns(heads.qkv_size(), heads.q_size()));
  }
  if (layer.out_scale != 1) ops_->Scale(own, layer.out_scale);
  split_.Gather(attended, own);
  AddBranch(attended, layer.out, layer.post_norm);
}

void Decoder::NormProjections(const AttentionLayer& layer, const Tensor& qkv) {
  const Tensor q = qkv.Columns(0, heads_.q_size());
  const Tensor k = qkv.Columns(heads_.q_size(), heads_.kv_size());
  if (ranks_ == nullptr) {
    ops_->RmsNorm(q, q, layer.q_projection_norm, norm_epsilon_);
    return ops_->RmsNorm(k, k, layer.k_projection_norm, norm_epsilon_);
  }
  const Tensor all_q = RowsOf(projections_).Columns(0, all_heads_.q_size());
  const Tensor all_k = RowsOf(projections_).Columns(all_heads_.q_size(), all_heads_.kv_size());
  const auto own = [](const Tensor& all, Slice columns) {
    return all.Columns(columns.begin, columns.count);
  };
  const Tensor own_q = own(all_q, heads_.q_rows()), own_k = own(all_k, heads_.kv_rows());
  ops_->Convert(own_q, q);
  if (writes_k_ || !shares_memory()) ops_->Convert(own_k, k);
  split_.Gather(all_q, own_q);
  if (!shares_memory()) ranks_->Gather(all_k, own_k, kv_columns_);
  const Tensor normed_q = RowsOf(projection_), normed_k = normed_q.Columns(0, all_k.shape[1]);
  ops_->RmsNorm(normed_q, all_q, layer.q_projection_norm, norm_epsilon_);
  ops_->Convert(q, own(normed_q, heads_.q_rows()));
  ops_->RmsNorm(normed_k, all_k, layer.k_projection_norm, norm_epsilon_);
  ops_->Convert(k, own(normed_k, heads_.kv_rows()));
}

void Decoder::ActivateUp(const Tensor& out, const MlpLayer& layer, Nonlinearity f) {
  const Tensor up = RowsOf(up_).Columns(0, out.shape[1]);
  MultiplyNormed(up, layer.up);
  ops_->Activate(out, up, f);
}

void Decoder::RunMlp(const MlpLayer& layer) { RunGatedMlp(layer, nullptr); }

void Decoder::RunGatedMlp(const MlpLayer& layer, const LinearLayer* gate) {
  const Tensor activated = RowsOf(activated_).Columns(0, layer.down.weight->k());
  const Tensor own = split_.Part(activated);
  switch (layer.activation) {
    case Activation::kSiluAndMul:
      MultiplyNormed(own, layer.up, LinearEpilogue::kSiluAndMul);
      break;
    case Activation::kGeluAndMul:
      MultiplyNormed(own, layer.up, LinearEpilogue::kGeluAndMul);
      break;
    case Activation::kGelu:
      ActivateUp(own, layer, Nonlinearity::kTanhGelu);
      break;
    case Activation::kErfGelu:
      ActivateUp(own, layer, Nonlinearity::kErfGelu);
      break;
    case Activation::kRelu:
      ActivateUp(own, layer, Nonlinearity::kRelu);
      break;
    case Activation::kErfGeluAndMul: {
      const Tensor up = RowsOf(up_).Columns(0, 2 * own.shape[1]);
      MultiplyNormed(up, layer.up);
      ops_->ErfGeluAndMul(own, up);
      break;
    }
    case Activation::kSquaredRelu:
      ActivateUp(own, layer, Nonlinearity::kSquaredRelu);
      break;
    case Activation::kScaledSiluAndMul: {
      const Tensor up = RowsOf(up_).Columns(0, 2 * own.shape[1]);
      MultiplyNormed(up, layer.up);
      ops_->Scale(up.Columns(0, own.shape[1]), layer.gate_scale);
      ops_->SiluAndMul(own, up);
      ops_->Scale(own, layer.out_scale);
      break;
    }
  }
  if (gate != nullptr) {
    Multiply(RowsOf(shared_gate_), Normed(), *gate);
    ops_->GateBySigmoid(own, RowsOf(shared_gate_));
  }
  split_.Gather(activated, own);
  AddBranch(activated, layer.down, layer.post_norm);
}

void Decoder::RunMixture(const MoeLayer& layer) {
  const Tensor normed = Normed();
  mixer_->Run(layer, residual_, normed, normed, &adapters_);
  AddedOwn();
  const LinearLayer& gate = layer.shared_gate;
  if (layer.shared) RunGatedMlp(*layer.shared, gate.weight == nullptr ? nullptr : &gate);
}

// In shared memory they meet first, when the logits made before have been taken out.
void Decoder::Logits(const Tensor& logits, const Tensor& rows) {
  if (ranks_ == nullptr) return OwnLogits(logits, rows);
  ranks_->Meet();
  const Tensor all = all_logits_.view().Rows(0, rows.rows());
  const Tensor part = ranks_->Part(all, vocabulary_);
  OwnLogits(part, rows);
  ranks_->Gather(all, part, vocabulary_);
  if (!logits.empty()) ops_->Convert(logits, all);
}

void Decoder::NormStates(const Tensor& out) {
  if (final_norm_.weight.view().empty()) {
    ops_->Convert(out, residual());
  } else if (options_.has_layer_norm) {
    ops_->LayerNorm(out, residual(), final_norm_.weight, final_norm_.bias, norm_epsilon_);
  } else {
    ops_->RmsNorm(out, residual(), final_norm_.weight, norm_epsilon_);
  }
}

void Decoder::OwnLogits(const Tensor& logits, const Tensor& rows) {
  const Tensor last = last_.view().Rows(0, rows.rows());
  const PackedMatrix& head = this->head();
  const AdapterRows adapters = adapters_.Pick(lm_head_.adapter_site, rows);
  ops_->GatherRows(last, residual(), rows);
  const Tensor normed = last_normed_.view().Rows(0, rows.rows());
  if (options_.has_layer_norm) {
    ops_->LayerNorm(normed, last, final_norm_.weight, final_norm_.bias, norm_epsilon_);
  } else if (!adapters.empty()) {
    ops_->RmsNorm(normed, last, final_norm_.weight, norm_epsilon_);
  }
  if (!adapters.empty()) {
    ops_->AdaptedLinear(logits, normed, head, lm_head_.bias, LinearEpilogue::kStore, adapters);
  } else if (options_.has_layer_norm) {
    ops_->Linear(logits, normed, head, lm_head_.bias);
  } else {
    ops_->RmsNormLinear(logits, last, final_norm_.weight, norm_epsilon_, head, lm_head_.bias);
  }
  if (options_.logits_scale != 1) ops_->Scale(logits, options_.logits_scale);
  if (options_.logits_soft_cap > 0) ops_->SoftCap(logits, options_.logits_soft_cap);
}

}  // namespace tandem
