#include "engine_core/models/decoder.h"

#include <utility>

#include "engine_core/models/rope_table.h"

namespace tandem {
namespace {

// A table of rows [num_rows, H].
StatusOr<std::unique_ptr<PackedMatrix>> LoadTable(const LoadContext& context,
                                                  const std::string& name, int64_t num_rows,
                                                  WeightFormat format) {
  const StoredMatrix block[] = {
      {.name = name, .rows = num_rows, .columns = context.config.hidden_size}};
  ASSIGN_OR_RETURN(LinearLayer table, LoadLinear(context, block, {.format = format}));
  return std::move(table.weight);
}

}  // namespace

StatusOr<Decoder> Decoder::Load(const LoadContext& context, DecoderOptions options) {
  Decoder decoder(context, std::move(options));
  decoder.norm_epsilon_ = static_cast<float>(context.config.rms_norm_eps);
  if (context.stage.is_first()) RETURN_IF_ERROR(decoder.LoadEmbedding(context));
  if (context.stage.is_last()) RETURN_IF_ERROR(decoder.LoadHead(context));
  ASSIGN_OR_RETURN(decoder.rope_, decoder.LoadRope(context, context.config.rope));
  if (decoder.options_.local_rope) {
    ASSIGN_OR_RETURN(decoder.local_rope_, decoder.LoadRope(context, *decoder.options_.local_rope));
  }
  RETURN_IF_ERROR(decoder.AllocateActivations(context));
  if (decoder.options_.mixture) {
    ASSIGN_OR_RETURN(decoder.mixer_, ExpertMixer::Create(context, *decoder.options_.mixture));
  }
  return decoder;
}

Status Decoder::LoadEmbedding(const LoadContext& context) {
  const ModelConfig& config = context.config;
  ASSIGN_OR_RETURN(embedding_, LoadTable(context, options_.embedding, config.vocab_size,
                                         context.formats.embedding));
  if (options_.positions.empty()) return OkStatus();
  ASSIGN_OR_RETURN(position_table_,
                   LoadTable(context, options_.positions, config.max_position_embeddings,
                             WeightFormat::kCompute));
  return OkStatus();
}

Status Decoder::LoadHead(const LoadContext& context) {
  const ModelConfig& config = context.config;
  if (!config.tie_word_embeddings) {
    ASSIGN_OR_RETURN(lm_head_,
                     LoadTable(context, "lm_head", config.vocab_size, context.formats.embedding));
  } else if (embedding_ == nullptr) {
    ASSIGN_OR_RETURN(embedding_, LoadTable(context, options_.embedding, config.vocab_size,
                                           context.formats.embedding));
  }
  ASSIGN_OR_RETURN(final_norm_,
                   options_.has_layer_norm
                       ? LoadLayerNorm(context, options_.final_norm)
                       : LoadRmsNorm(context, options_.final_norm, options_.norm_offset));
  return OkStatus();
}

StatusOr<Decoder::RopeTensors> Decoder::LoadRope(const LoadContext& context,
                                                 const RopeConfig& rope) const {
  RopeTensors tensors;
  if (context.config.rotary_dim == 0) return tensors;
  const int64_t positions = context.limits.max_positions, dim = context.config.rotary_dim;
  if (rope.type == RopeType::kDynamic && positions > context.config.max_position_embeddings) {
    return UnimplementedError("beyond max_position_embeddings " +
                              std::to_string(context.config.max_position_embeddings) +
                              " rope type dynamic depends on the length of each request; lower "
                              "--max-model-len, which is " +
                              std::to_string(positions));
  }
  RopeTable table = MakeRopeTable(rope, dim, positions);
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
  const int64_t tokens = context.limits.max_tokens, rows = context.limits.max_logits_rows;
  const int64_t hidden = config.hidden_size;
  const int64_t inner = context.share.Of(config.intermediate_size).count;
  const HeadShare heads = context.heads();
  if (context.stage.is_first()) {
    ASSIGN_OR_RETURN(embedded_, device.Allocate(res, {tokens, hidden}));
  }
  if (position_table_ != nullptr) {
    ASSIGN_OR_RETURN(positions_, device.Allocate(res, {tokens, hidden}));
  }
  ASSIGN_OR_RETURN(normed_, device.Allocate(act, {tokens, hidden}));
  ASSIGN_OR_RETURN(qkv_, device.Allocate(act, {tokens, heads.qkv_size()}));
  ASSIGN_OR_RETURN(q_, device.Allocate(act, {tokens, heads.q_size()}));
  ASSIGN_OR_RETURN(attended_, device.Allocate(act, {tokens, heads.q_size()}));
  ASSIGN_OR_RETURN(up_, device.Allocate(act, {tokens, inner}));
  ASSIGN_OR_RETURN(activated_, device.Allocate(act, {tokens, inner}));
  if (context.stage.is_last()) {
    ASSIGN_OR_RETURN(last_, device.Allocate(res, {rows, hidden}));
    ASSIGN_OR_RETURN(last_normed_, device.Allocate(act, {rows, hidden}));
  }
  return OkStatus();
}

void Decoder::Embed(const Tensor& token_ids, const Tensor& positions,
                    std::span<const EmbeddedRows> embedded) {
  num_tokens_ = token_ids.rows();
  residual_ = RowsOf(embedded_);
  ops_->Embedding(residual_, token_ids, *embedding_, options_.embedding_scale);
  for (const EmbeddedRows& rows : embedded) {
    device_->StartCopyIn(residual_.Rows(rows.first, rows.values.rows()), rows.values);
  }
  if (position_table_ == nullptr) return;
  ops_->Embedding(RowsOf(positions_), positions, *position_table_);
  ops_->Add(residual_, RowsOf(positions_));
}

void Decoder::Continue(const Tensor& hidden) {
  num_tokens_ = hidden.rows();
  residual_ = hidden;
}

void Decoder::Norm(const NormLayer& norm) {
  const Tensor& weight = norm.weight;
  const Tensor& bias = norm.bias;
  pending_norm_ = bias.empty() ? weight : Tensor();
  if (weight.empty()) {
    ops_->Convert(RowsOf(normed_), residual_);
  } else if (!bias.empty()) {
    ops_->LayerNorm(RowsOf(normed_), residual_, weight, bias, norm_epsilon_);
  }
}

Tensor Decoder::Normed() {
  const Tensor normed = RowsOf(normed_);
  if (!pending_norm_.empty()) ops_->RmsNorm(normed, residual_, pending_norm_, norm_epsilon_);
  pending_norm_ = Tensor();
  return normed;
}

void Decoder::MultiplyNormed(const Tensor& out, const LinearLayer& layer, LinearEpilogue epilogue) {
  if (pending_norm_.empty()) {
    return ops_->Linear(out, RowsOf(normed_), *layer.weight, layer.bias, epilogue);
  }
  ops_->RmsNormLinear(out, residual_, pending_norm_, norm_epsilon_, *layer.weight, layer.bias,
                      epilogue);
}

void Decoder::AddBranch(const Tensor& x, const LinearLayer& out, const NormLayer& post_norm) {
  if (post_norm.weight.view().empty()) {
    ops_->Linear(residual_, x, *out.weight, out.bias, LinearEpilogue::kAddResidual);
    return;
  }
  const Tensor branch = RowsOf(normed_);  // the norm that it contains is not needed any more
  ops_->Linear(branch, x, *out.weight, out.bias);
  ops_->RmsNorm(branch, branch, post_norm.weight, norm_epsilon_);
  ops_->Add(residual_, branch);
}

void Decoder::Attend(const AttentionLayer& layer, const LayerKv& kv, const AttentionPlan& plan) {
  const Tensor qkv = RowsOf(qkv_), q = RowsOf(q_), attended = RowsOf(attended_);
  const RopeTensors& tables = layer.use_local_rope ? local_rope_ : rope_;
  const QkRope rope = {.cos = tables.cos,
                       .sin = tables.sin,
                       .rotary_dim = static_cast<int>(tables.cos.view().shape[1]) * 2,
                       .q_norm = layer.q_norm,
                       .k_norm = layer.k_norm,
                       .norm_epsilon = norm_epsilon_};
  MultiplyNormed(qkv, layer.qkv);
  if (!layer.q_projection_norm.view().empty()) {
    const int64_t q_size = q.shape[1], k_size = layer.k_projection_norm.view().rows();
    const Tensor q_part = qkv.Columns(0, q_size), k_part = qkv.Columns(q_size, k_size);
    ops_->RmsNorm(q_part, q_part, layer.q_projection_norm, norm_epsilon_);
    ops_->RmsNorm(k_part, k_part, layer.k_projection_norm, norm_epsilon_);
  }
  ops_->QkNormRopeWriteKv(q, qkv, rope, kv, plan);
  ops_->PagedAttention(attended, q, kv, layer.options, plan);
  AddBranch(attended, layer.out, layer.post_norm);
}

void Decoder::RunMlp(const MlpLayer& layer) {
  const Tensor activated = RowsOf(activated_);
  switch (layer.activation) {
    case Activation::kSiluAndMul:
      MultiplyNormed(activated, layer.up, LinearEpilogue::kSiluAndMul);
      break;
    case Activation::kGeluAndMul:
      MultiplyNormed(activated, layer.up, LinearEpilogue::kGeluAndMul);
      break;
    case Activation::kGelu: {
      const Tensor up = RowsOf(up_);
      MultiplyNormed(up, layer.up);
      ops_->Gelu(activated, up);
      break;
    }
  }
  AddBranch(activated, layer.down, layer.post_norm);
}

void Decoder::RunMixture(const MoeLayer& layer) { mixer_->Run(layer, residual_, Normed()); }

void Decoder::Logits(const Tensor& logits, const Tensor& rows) {
  const Tensor last = last_.view().Rows(0, rows.rows());
  const PackedMatrix& head = lm_head_ ? *lm_head_ : *embedding_;
  ops_->GatherRows(last, residual_, rows);
  if (options_.has_layer_norm) {
    const Tensor normed = last_normed_.view().Rows(0, rows.rows());
    ops_->LayerNorm(normed, last, final_norm_.weight, final_norm_.bias, norm_epsilon_);
    ops_->Linear(logits, normed, head);
  } else {
    ops_->RmsNormLinear(logits, last, final_norm_.weight, norm_epsilon_, head);
  }
  if (options_.logits_soft_cap > 0) ops_->SoftCap(logits, options_.logits_soft_cap);
}

}  // namespace tandem
