#include "engine_core/models/layers.h"

#include <cmath>

#include "engine_core/models/rope_table.h"

namespace tandem {

namespace {

StatusOr<WeightTensor> GetBlock(const LoadContext& context, const RowBlock& block,
                                int64_t columns) {
  if (block.stack_size == 0) {
    return context.weights.Get(block.name + ".weight", block.rows, columns);
  }
  return context.weights.GetFromStack(block.name, block.stack_idx, block.stack_size, block.rows,
                                      columns);
}

}  // namespace

StatusOr<LinearLayer> LoadLinear(const LoadContext& context, std::span<const RowBlock> blocks,
                                 int64_t columns, bool has_bias) {
  return LoadLinear(context, blocks, columns, has_bias, context.formats.layers);
}

StatusOr<LinearLayer> LoadLinear(const LoadContext& context, std::span<const RowBlock> blocks,
                                 int64_t columns, bool has_bias, WeightFormat format,
                                 bool is_gated) {
  LinearLayer layer;
  std::vector<WeightTensor> tensors;
  std::vector<Tensor> views;
  for (const RowBlock& block : blocks) {
    ASSIGN_OR_RETURN(WeightTensor tensor, GetBlock(context, block, columns));
    views.push_back(tensor.view());
    tensors.push_back(std::move(tensor));
  }
  ASSIGN_OR_RETURN(layer.weight, is_gated ? context.backend.PackGated(views, format)
                                          : context.backend.Pack(views, format));
  if (has_bias) {
    ASSIGN_OR_RETURN(layer.bias, LoadBias(context, blocks));
  }
  return layer;
}

StatusOr<OwnedTensor> LoadBias(const LoadContext& context, std::span<const RowBlock> blocks) {
  int64_t rows = 0;
  for (const RowBlock& block : blocks) rows += block.rows;
  ASSIGN_OR_RETURN(OwnedTensor merged, context.backend.device().Allocate(DType::kF32, {rows}));
  int64_t begin = 0;
  for (const RowBlock& block : blocks) {
    ASSIGN_OR_RETURN(const OwnedTensor bias, LoadVector(context, block.name + ".bias", block.rows));
    context.backend.device().CopyIn(merged.view().Rows(begin, block.rows), bias);
    begin += block.rows;
  }
  return merged;
}

StatusOr<OwnedTensor> LoadVector(const LoadContext& context, const std::string& name, int64_t size,
                                 float offset) {
  ASSIGN_OR_RETURN(const WeightTensor tensor, context.weights.Get(name, 0, size));
  std::vector<float> values(static_cast<size_t>(size));
  const Tensor view(values.data(), DType::kF32, {size});
  ConvertTensor(view, tensor.view());
  for (float& value : values) value += offset;
  return context.backend.device().Upload(view, DType::kF32);
}

std::array<RowBlock, 3> QkvBlocks(const ModelConfig& config, const std::string& prefix) {
  const int64_t q_rows = config.num_heads * config.head_dim;
  const int64_t kv_rows = config.num_kv_heads * config.head_dim;
  return {
      {{prefix + ".q_proj", q_rows}, {prefix + ".k_proj", kv_rows}, {prefix + ".v_proj", kv_rows}}};
}

StatusOr<AttentionLayer> LoadAttention(const LoadContext& context, const std::string& prefix) {
  const ModelConfig& config = context.config;
  const int64_t q_rows = config.num_heads * config.head_dim;
  const auto qkv = QkvBlocks(config, prefix);
  const RowBlock out[] = {{prefix + ".o_proj", config.hidden_size}};
  AttentionLayer layer;
  ASSIGN_OR_RETURN(layer.qkv, LoadLinear(context, qkv, config.hidden_size, config.attention_bias));
  ASSIGN_OR_RETURN(layer.out, LoadLinear(context, out, q_rows, config.attention_bias));
  layer.options.scale = AttentionScale(static_cast<double>(config.head_dim));
  return layer;
}

float AttentionScale(double dim) { return static_cast<float>(1 / std::sqrt(dim)); }

StatusOr<MlpLayer> LoadGatedMlp(const LoadContext& context, const std::string& prefix) {
  const int64_t rows = context.config.intermediate_size;
  const RowBlock gate_up[] = {{prefix + ".gate_proj", rows}, {prefix + ".up_proj", rows}};
  return LoadGatedMlp(context, prefix, gate_up);
}

StatusOr<MlpLayer> LoadGatedMlp(const LoadContext& context, const std::string& prefix,
                                std::span<const RowBlock> gate_up) {
  const ModelConfig& config = context.config;
  const RowBlock down[] = {{prefix + ".down_proj", config.hidden_size}};
  MlpLayer layer;
  if (config.hidden_act == "gelu_pytorch_tanh") {
    layer.activation = Activation::kGeluAndMul;
  } else if (config.hidden_act != "silu") {
    return InvalidArgumentError("hidden_act " + config.hidden_act + " of " + config.architecture +
                                " must be silu or gelu_pytorch_tanh");
  }
  ASSIGN_OR_RETURN(layer.up, LoadLinear(context, gate_up, config.hidden_size, config.mlp_bias,
                                        context.formats.layers, true));
  ASSIGN_OR_RETURN(layer.down,
                   LoadLinear(context, down, config.intermediate_size, config.mlp_bias));
  return layer;
}

StatusOr<Decoder> Decoder::Load(const LoadContext& context, DecoderOptions options) {
  Decoder decoder(context, std::move(options));
  RETURN_IF_ERROR(decoder.LoadWeights(context));
  ASSIGN_OR_RETURN(decoder.rope_, decoder.LoadRope(context, context.config.rope));
  if (decoder.options_.local_rope) {
    ASSIGN_OR_RETURN(decoder.local_rope_, decoder.LoadRope(context, *decoder.options_.local_rope));
  }
  RETURN_IF_ERROR(decoder.AllocateActivations(context));
  return decoder;
}

Status Decoder::LoadWeights(const LoadContext& context) {
  const ModelConfig& config = context.config;
  norm_epsilon_ = static_cast<float>(config.rms_norm_eps);
  const RowBlock embedding[] = {{options_.embedding, config.vocab_size}};
  ASSIGN_OR_RETURN(LinearLayer table, LoadLinear(context, embedding, config.hidden_size, false,
                                                 context.formats.embedding));
  embedding_ = std::move(table.weight);
  if (!config.tie_word_embeddings) {
    const RowBlock head[] = {{"lm_head", config.vocab_size}};
    ASSIGN_OR_RETURN(LinearLayer layer, LoadLinear(context, head, config.hidden_size, false,
                                                   context.formats.embedding));
    lm_head_ = std::move(layer.weight);
  }
  ASSIGN_OR_RETURN(final_norm_, LoadVector(context, options_.final_norm + ".weight",
                                           config.hidden_size, options_.norm_offset));
  if (options_.has_layer_norm) {
    ASSIGN_OR_RETURN(final_norm_bias_,
                     LoadVector(context, options_.final_norm + ".bias", config.hidden_size));
  }
  return OkStatus();
}

StatusOr<Decoder::RopeTensors> Decoder::LoadRope(const LoadContext& context,
                                                 const RopeConfig& rope) const {
  RopeTensors tensors;
  if (context.config.rotary_dim == 0) return tensors;
  const int64_t positions = context.limits.max_positions, dim = context.config.rotary_dim;
  if (rope.type == RopeType::kDynamic && positions > context.config.max_position_embeddings) {
    return UnimplementedError(
        "rope type dynamic beyond max_position_embeddings " +
        std::to_string(context.config.max_position_embeddings) +
        " turns by the length of each request; lower --max-model-len, which is " +
        std::to_string(positions));
  }
  RopeTable table = MakeRopeTable(rope, dim, positions);
  const Tensor cos(table.cos.data(), DType::kF32, {positions, dim / 2});
  const Tensor sin(table.sin.data(), DType::kF32, {positions, dim / 2});
  ASSIGN_OR_RETURN(tensors.cos, context.backend.device().Upload(cos, DType::kF32));
  ASSIGN_OR_RETURN(tensors.sin, context.backend.device().Upload(sin, DType::kF32));
  return tensors;
}

Status Decoder::AllocateActivations(const LoadContext& context) {
  const ModelConfig& config = context.config;
  Backend& backend = context.backend;
  Device& device = backend.device();
  const DType act = backend.activation_dtype(), res = backend.residual_dtype();
  const int64_t tokens = context.limits.max_tokens, rows = context.limits.max_logits_rows;
  const int64_t q_size = config.num_heads * config.head_dim;
  const int64_t qkv_size = q_size + 2 * config.num_kv_heads * config.head_dim;
  ASSIGN_OR_RETURN(residual_, device.Allocate(res, {tokens, config.hidden_size}));
  ASSIGN_OR_RETURN(normed_, device.Allocate(act, {tokens, config.hidden_size}));
  ASSIGN_OR_RETURN(qkv_, device.Allocate(act, {tokens, qkv_size}));
  ASSIGN_OR_RETURN(q_, device.Allocate(act, {tokens, q_size}));
  ASSIGN_OR_RETURN(attended_, device.Allocate(act, {tokens, q_size}));
  ASSIGN_OR_RETURN(up_, device.Allocate(act, {tokens, config.intermediate_size}));
  ASSIGN_OR_RETURN(activated_, device.Allocate(act, {tokens, config.intermediate_size}));
  ASSIGN_OR_RETURN(last_, device.Allocate(res, {rows, config.hidden_size}));
  ASSIGN_OR_RETURN(last_normed_, device.Allocate(act, {rows, config.hidden_size}));
  return OkStatus();
}

void Decoder::Embed(const Tensor& token_ids) {
  num_tokens_ = token_ids.rows();
  ops_->Embedding(residual_.view().Rows(0, num_tokens_), token_ids, *embedding_,
                  options_.embedding_scale);
}

void Decoder::Add(const Tensor& x) { ops_->Add(residual_.view().Rows(0, num_tokens_), x); }

void Decoder::Norm(const Tensor& weight, const Tensor& bias) {
  const Tensor normed = normed_.view().Rows(0, num_tokens_);
  pending_norm_ = bias.empty() ? weight : Tensor();
  if (weight.empty()) {
    ops_->Convert(normed, residual());
  } else if (!bias.empty()) {
    ops_->LayerNorm(normed, residual(), weight, bias, norm_epsilon_);
  }
}

Tensor Decoder::normed() {
  const Tensor normed = normed_.view().Rows(0, num_tokens_);
  if (!pending_norm_.empty()) ops_->RmsNorm(normed, residual(), pending_norm_, norm_epsilon_);
  pending_norm_ = Tensor();
  return normed;
}

void Decoder::MultiplyNormed(const Tensor& out, const LinearLayer& layer, LinearEpilogue epilogue) {
  if (pending_norm_.empty()) {
    return ops_->Linear(out, normed(), *layer.weight, layer.bias, epilogue);
  }
  ops_->RmsNormLinear(out, residual(), pending_norm_, norm_epsilon_, *layer.weight, layer.bias,
                      epilogue);
}

void Decoder::AddBranch(const Tensor& x, const LinearLayer& out, const Tensor& post_norm) {
  const Tensor residual = residual_.view().Rows(0, num_tokens_);
  if (post_norm.empty()) {
    ops_->Linear(residual, x, *out.weight, out.bias, LinearEpilogue::kAddResidual);
    return;
  }
  const Tensor branch = normed_.view().Rows(0, num_tokens_);  // what it held has been used
  ops_->Linear(branch, x, *out.weight, out.bias);
  ops_->RmsNorm(branch, branch, post_norm, norm_epsilon_);
  ops_->Add(residual, branch);
}

void Decoder::Attend(const AttentionLayer& layer, const LayerKv& kv, const AttentionPlan& plan) {
  const Tensor qkv = qkv_.view().Rows(0, num_tokens_), q = q_.view().Rows(0, num_tokens_);
  const Tensor attended = attended_.view().Rows(0, num_tokens_);
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
    const Tensor k = qkv.Columns(q_size, k_size);
    ops_->RmsNorm(qkv.Columns(0, q_size), qkv.Columns(0, q_size), layer.q_projection_norm,
                  norm_epsilon_);
    ops_->RmsNorm(k, k, layer.k_projection_norm, norm_epsilon_);
  }
  ops_->QkNormRopeWriteKv(q, qkv, rope, kv, plan);
  ops_->PagedAttention(attended, q, kv, layer.options, plan);
  AddBranch(attended, layer.out, layer.post_norm);
}

void Decoder::RunMlp(const MlpLayer& layer) {
  const Tensor activated = activated_.view().Rows(0, num_tokens_);
  switch (layer.activation) {
    case Activation::kSiluAndMul:
      MultiplyNormed(activated, layer.up, LinearEpilogue::kSiluAndMul);
      break;
    case Activation::kGeluAndMul:
      MultiplyNormed(activated, layer.up, LinearEpilogue::kGeluAndMul);
      break;
    case Activation::kGelu: {
      const Tensor up = up_.view().Rows(0, num_tokens_);
      MultiplyNormed(up, layer.up);
      ops_->Gelu(activated, up);
      break;
    }
  }
  AddBranch(activated, layer.down, layer.post_norm);
}

void Decoder::Logits(const Tensor& logits, const Tensor& rows) {
  const Tensor last = last_.view().Rows(0, rows.rows());
  const PackedMatrix& head = lm_head_ ? *lm_head_ : *embedding_;
  ops_->GatherRows(last, residual(), rows);
  if (options_.has_layer_norm) {
    const Tensor normed = last_normed_.view().Rows(0, rows.rows());
    ops_->LayerNorm(normed, last, final_norm_, final_norm_bias_, norm_epsilon_);
    ops_->Linear(logits, normed, head);
  } else {
    ops_->RmsNormLinear(logits, last, final_norm_, norm_epsilon_, head);
  }
  if (options_.logits_soft_cap > 0) ops_->SoftCap(logits, options_.logits_soft_cap);
}

}  // namespace tandem
