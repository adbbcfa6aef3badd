#include "engine_core/models/key_index.h"

#include <algorithm>
#include <cmath>

namespace tandem {
namespace {

constexpr float kNormEpsilon = 1e-6F;  // whatever the model's is

}  // namespace

StatusOr<KeyIndexLayer> LoadKeyIndexLayer(const LoadContext& context, const std::string& prefix) {
  const KeyIndexConfig& shape = context.config.index;
  const int64_t hidden = context.config.hidden_size, q_size = shape.num_heads * shape.dim;
  const LinearOptions options = {.adapted_as = AdaptedAs::kNothing};
  KeyIndexLayer layer;
  const StoredMatrix down[] = {
      {.name = prefix + ".wk", .rows = shape.dim, .columns = hidden},
      {.name = prefix + ".weights_proj", .rows = shape.num_heads, .columns = hidden}};
  ASSIGN_OR_RETURN(layer.down, LoadLinear(context, down, options));
  const StoredMatrix q[] = {
      {.name = prefix + ".wq_b", .rows = q_size, .columns = context.config.latent.q_rank}};
  ASSIGN_OR_RETURN(layer.q, LoadLinear(context, q, options));
  ASSIGN_OR_RETURN(layer.k_norm, LoadVector(context, prefix + ".k_norm.weight", shape.dim));
  ASSIGN_OR_RETURN(layer.k_norm_bias, LoadVector(context, prefix + ".k_norm.bias", shape.dim));
  return layer;
}

KeyIndex::KeyIndex(const LoadContext& context)
    : ops_(&context.backend.ops()),
      shape_(context.config.index),
      rotary_dim_(static_cast<int>(context.config.latent.pe_dim)) {}

StatusOr<KeyIndex> KeyIndex::Create(const LoadContext& context) {
  KeyIndex index(context);
  const KeyIndexConfig& shape = index.shape_;
  Device& device = context.backend.device();
  const DType act = context.backend.activation_dtype();
  const int64_t tokens = context.limits.max_tokens, q_size = shape.num_heads * shape.dim;
  ASSIGN_OR_RETURN(index.down_, device.Allocate(act, {tokens, shape.dim + shape.num_heads}));
  for (OwnedTensor* key : {&index.normed_, &index.key_}) {
    ASSIGN_OR_RETURN(*key, device.Allocate(act, {tokens, shape.dim}));
  }
  for (OwnedTensor* queries : {&index.queries_, &index.rotated_}) {
    ASSIGN_OR_RETURN(*queries, device.Allocate(act, {tokens, q_size}));
  }
  const int64_t num_keys = std::min(shape.num_keys, context.limits.max_positions);
  ASSIGN_OR_RETURN(index.chosen_, device.Allocate(DType::kI32, {tokens, num_keys}));
  return index;
}

void KeyIndex::Rotate(const Tensor& out, const Tensor& x, const Tensor& cos, const Tensor& sin,
                      const LayerKv& kv, const AttentionPlan& plan) {
  LayerKv of_head = kv;  // nothing is written to it; it has the size of a head
  of_head.head_dim = static_cast<int>(shape_.dim);
  ops_->QkNormRopeWriteKv(out, x,
                          {.cos = cos,
                           .sin = sin,
                           .rotary_dim = rotary_dim_,
                           .q_norm = {},
                           .k_norm = {},
                           .is_interleaved = shape_.is_interleaved,
                           .is_of_q_alone = true},
                          of_head, plan);
}

Tensor KeyIndex::Key(const KeyIndexLayer& layer, const Tensor& cos, const Tensor& sin,
                     const LayerKv& kv, const AttentionPlan& plan) {
  const int64_t num_tokens = plan.num_tokens();
  const Tensor normed = normed_.view().Rows(0, num_tokens), key = key_.view().Rows(0, num_tokens);
  ops_->LayerNorm(normed, Down(num_tokens).Columns(0, shape_.dim), layer.k_norm, layer.k_norm_bias,
                  kNormEpsilon);
  Rotate(key, normed, cos, sin, kv, plan);
  return key;
}

void KeyIndex::Choose(const KeyIndexLayer& layer, const Tensor& q_latent, const Tensor& cos,
                      const Tensor& sin, const LayerKv& kv, const AttentionPlan& plan) {
  const int64_t num_tokens = plan.num_tokens();
  const Tensor queries = queries_.view().Rows(0, num_tokens);
  const Tensor rotated = rotated_.view().Rows(0, num_tokens);
  ops_->Linear(queries, q_latent, *layer.q.weight);
  Rotate(rotated, queries, cos, sin, kv, plan);
  const auto size = static_cast<double>(shape_.dim * shape_.num_heads);
  ops_->SelectKeys(chosen(num_tokens), rotated,
                   Down(num_tokens).Columns(shape_.dim, shape_.num_heads),
                   {.num_heads = shape_.num_heads,
                    .dim = shape_.dim,
                    .scale = static_cast<float>(1 / std::sqrt(size))},
                   kv, plan);
}

}  // namespace tandem
