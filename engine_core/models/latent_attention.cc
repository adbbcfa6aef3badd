#include "engine_core/models/latent_attention.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "engine_core/models/load_packed.h"

namespace tandem {
namespace {

int64_t QueryDim(const LatentConfig& shape) { return shape.nope_dim + shape.pe_dim; }
int64_t LatentDim(const LatentConfig& shape) { return shape.kv_rank + shape.pe_dim; }

// The rank's part of n numbers per head.
Slice OwnRows(const Slice& heads, int64_t n) { return {heads.begin * n, heads.count * n}; }

// The rows' numbers transposed, [columns, rows].
std::vector<float> Transposed(const MatrixSource& source) {
  const int64_t rows = source.rows(), columns = source.columns();
  std::vector<float> row(static_cast<size_t>(columns));
  std::vector<float> result(static_cast<size_t>(rows * columns));
  for (int64_t i = 0; i < rows; ++i) {
    source.Read(i, 0, columns, DType::kF32, row.data());
    for (int64_t j = 0; j < columns; ++j) {
      result[static_cast<size_t>(j * rows + i)] = row[static_cast<size_t>(j)];
    }
  }
  return result;
}

StatusOr<std::unique_ptr<PackedMatrix>> LoadTransposed(const LoadContext& context,
                                                       const StoredMatrix& stored) {
  const int64_t n = stored.columns_to_load().count, k = stored.rows_to_load().count;
  const PackedFile::Wanted wanted = {
      .name = PackedName({&stored, 1}) + " transposed", .n = n, .k = k};
  return LoadPacked(context, wanted, [&]() -> StatusOr<std::unique_ptr<PackedMatrix>> {
    ASSIGN_OR_RETURN(const LoadedMatrix matrix,
                     LoadMatrix(context.weights, context.config.quantization, stored));
    std::vector<float> transposed = Transposed(matrix.source());
    const MatrixSource source[] = {Tensor(transposed.data(), DType::kF32, {n, k})};
    return context.backend.Pack(source);
  });
}

// GGUF files have both parts of each head as matrices of their own, that of the keys transposed.
Status LoadHeadsApart(const LoadContext& context, const std::string& prefix, LatentLayer* layer) {
  const LatentConfig& shape = context.config.latent;
  const LinearOptions options = {.format = WeightFormat::kCompute,
                                 .adapted_as = AdaptedAs::kNothing};
  const Slice heads = context.heads().heads;
  for (int64_t h = heads.begin; h < heads.end(); ++h) {
    const auto load = [&](const char* name, int64_t rows, int64_t columns) {
      const StoredMatrix part[] = {
          {.name = prefix + name + std::to_string(h), .rows = rows, .columns = columns}};
      return LoadLinear(context, part, options);
    };
    ASSIGN_OR_RETURN(LinearLayer keys, load("k_b_proj.", shape.kv_rank, shape.nope_dim));
    ASSIGN_OR_RETURN(LinearLayer values, load("v_b_proj.", shape.value_dim, shape.kv_rank));
    layer->keys.push_back(std::move(keys.weight));
    layer->values.push_back(std::move(values.weight));
  }
  return OkStatus();
}

// kv_b_proj of the rank's heads: [k | v] rows of each. Always packed as numbers: each part is small
// and multiplies what is no row of activations of the checkpoint's scheme.
Status LoadHeads(const LoadContext& context, const std::string& name, LatentLayer* layer) {
  const LatentConfig& shape = context.config.latent;
  const int64_t head_rows = shape.nope_dim + shape.value_dim;
  const Slice heads = context.heads().heads;
  for (int64_t h = heads.begin; h < heads.end(); ++h) {
    const auto part = [&](int64_t first, int64_t count) {
      return StoredMatrix{.name = name,
                          .rows = context.config.num_heads * head_rows,
                          .columns = shape.kv_rank,
                          .row_slice = Slice{h * head_rows + first, count}};
    };
    ASSIGN_OR_RETURN(std::unique_ptr<PackedMatrix> keys,
                     LoadTransposed(context, part(0, shape.nope_dim)));
    layer->keys.push_back(std::move(keys));
    const StoredMatrix value[] = {part(shape.nope_dim, shape.value_dim)};
    ASSIGN_OR_RETURN(LinearLayer values, LoadLinear(context, value,
                                                    {.format = WeightFormat::kCompute,
                                                     .adapted_as = AdaptedAs::kNothing}));
    layer->values.push_back(std::move(values.weight));
  }
  return OkStatus();
}

}  // namespace

float LatentScale(const ModelConfig& config) {
  const double yarn = config.rope.softmax_factor;
  return AttentionScale(static_cast<double>(QueryDim(config.latent))) * static_cast<float>(yarn);
}

StatusOr<LatentLayer> LoadLatentLayer(const LoadContext& context, const LayerPlace& place) {
  const ModelConfig& config = context.config;
  const LatentConfig& shape = config.latent;
  const std::string prefix = place.prefix + ".self_attn.";
  const auto block = [&](const std::string& name, int64_t rows, int64_t columns, Slice slice) {
    return StoredMatrix{
        .name = prefix + name, .rows = rows, .columns = columns, .row_slice = slice};
  };
  const int64_t q_size = config.num_heads * QueryDim(shape), hidden = config.hidden_size;
  const Slice q_rows = OwnRows(context.heads().heads, QueryDim(shape));
  LatentLayer layer;
  const StoredMatrix down[] = {
      shape.q_rank == 0 ? block("q_proj", q_size, hidden, q_rows)
                        : block("q_a_proj", shape.q_rank, hidden, {0, shape.q_rank}),
      block("kv_a_proj_with_mqa", LatentDim(shape), hidden, {0, LatentDim(shape)})};
  ASSIGN_OR_RETURN(layer.down, LoadLinear(context, down));
  if (shape.q_rank > 0) {
    const StoredMatrix up[] = {block("q_b_proj", q_size, shape.q_rank, q_rows)};
    ASSIGN_OR_RETURN(layer.q_up, LoadLinear(context, up));
    ASSIGN_OR_RETURN(layer.q_norm,
                     LoadVector(context, prefix + "q_a_layernorm.weight", shape.q_rank));
  }
  ASSIGN_OR_RETURN(layer.latent_norm,
                   LoadVector(context, prefix + "kv_a_layernorm.weight", shape.kv_rank));
  RETURN_IF_ERROR(context.weights.Has(prefix + "k_b_proj.0.weight")
                      ? LoadHeadsApart(context, prefix, &layer)
                      : LoadHeads(context, prefix + "kv_b_proj", &layer));
  const StoredMatrix out[] = {
      block("o_proj", hidden, config.num_heads * shape.value_dim, context.share.Of(hidden))};
  ASSIGN_OR_RETURN(layer.out, LoadLinear(context, out));
  if (config.index.dim > 0 && !config.index.IsShared(place.idx)) {
    ASSIGN_OR_RETURN(layer.index, LoadKeyIndexLayer(context, prefix + "indexer"));
  }
  return layer;
}

LatentAttention::LatentAttention(const LoadContext& context)
    : ops_(&context.backend.ops()),
      shape_(context.config.latent),
      heads_(context.heads().heads),
      norm_epsilon_(static_cast<float>(context.config.rms_norm_eps)),
      scale_(LatentScale(context.config)) {}

StatusOr<LatentAttention> LatentAttention::Create(const LoadContext& context) {
  LatentAttention attention(context);
  if (context.config.index.dim > 0) {
    ASSIGN_OR_RETURN(attention.index_, KeyIndex::Create(context));
  }
  const LatentConfig& shape = attention.shape_;
  Device& device = context.backend.device();
  const DType act = context.backend.activation_dtype();
  const int64_t tokens = context.limits.max_tokens, num_own = attention.heads_.count;
  const int64_t queries = num_own * QueryDim(shape), absorbed = num_own * LatentDim(shape);
  const int64_t first = shape.q_rank > 0 ? shape.q_rank : queries;
  ASSIGN_OR_RETURN(attention.down_, device.Allocate(act, {tokens, first + LatentDim(shape)}));
  if (shape.q_rank > 0) {
    ASSIGN_OR_RETURN(attention.q_latent_, device.Allocate(act, {tokens, shape.q_rank}));
    ASSIGN_OR_RETURN(attention.queries_, device.Allocate(act, {tokens, queries}));
  }
  ASSIGN_OR_RETURN(attention.absorbed_, device.Allocate(act, {tokens, absorbed}));
  ASSIGN_OR_RETURN(attention.attended_, device.Allocate(act, {tokens, absorbed}));
  ASSIGN_OR_RETURN(
      attention.values_,
      context.AllocateShared(act, {tokens, context.config.num_heads * shape.value_dim}));
  return attention;
}

Tensor LatentAttention::NormedQueryLatent(const LatentLayer& layer, const Tensor& down) {
  const Tensor normed = q_latent_.view().Rows(0, down.rows());
  ops_->RmsNorm(normed, down.Columns(0, shape_.q_rank), layer.q_norm, norm_epsilon_);
  return normed;
}

Tensor LatentAttention::Queries(const LatentLayer& layer, const Tensor& down,
                                AdapterPicker* adapters) {
  if (shape_.q_rank == 0) return down.Columns(0, heads_.count * QueryDim(shape_));
  const Tensor queries = queries_.view().Rows(0, down.rows());
  const Tensor latent = down.Columns(0, shape_.q_rank);
  const AdapterRows rows = adapters->Pick(layer.q_up.adapter_site);
  if (rows.empty()) {
    ops_->RmsNormLinear(queries, latent, layer.q_norm, norm_epsilon_, *layer.q_up.weight);
    return queries;
  }
  const Tensor normed = NormedQueryLatent(layer, down);
  ops_->AdaptedLinear(queries, normed, *layer.q_up.weight, {}, LinearEpilogue::kStore, rows);
  return queries;
}

Tensor LatentAttention::Run(const LatentLayer& layer, const Tensor& cos, const Tensor& sin,
                            const LayerKv& kv, const AttentionPlan& plan, AdapterPicker* adapters) {
  const int64_t num_tokens = plan.num_tokens(), dim = LatentDim(shape_);
  const Tensor down = Down(num_tokens);
  const Tensor queries = Queries(layer, down, adapters);
  const Tensor absorbed = absorbed_.view().Rows(0, num_tokens);
  const Tensor attended = attended_.view().Rows(0, num_tokens);
  const Tensor values = values_.view().Rows(0, num_tokens);
  for (int64_t h = 0; h < heads_.count; ++h) {
    ops_->Linear(absorbed.Columns(h * dim, shape_.kv_rank),
                 queries.Columns(h * QueryDim(shape_), shape_.nope_dim),
                 *layer.keys[static_cast<size_t>(h)]);
  }
  ops_->LatentRopeWriteKv(
      absorbed, queries, down.Columns(down.shape[1] - dim, dim),
      {.cos = cos,
       .sin = sin,
       .pe_dim = static_cast<int>(shape_.pe_dim),
       .norm = layer.latent_norm,
       .norm_epsilon = norm_epsilon_,
       .index_key = layer.index ? index_->Key(*layer.index, cos, sin, kv, plan) : Tensor()},
      kv, plan);
  if (layer.index) {
    index_->Choose(*layer.index, NormedQueryLatent(layer, down), cos, sin, kv, plan);
  }
  if (index_) {
    ops_->AttendSelected(attended, absorbed, index_->chosen(num_tokens),
                         {.num_heads = heads_.count, .scale = scale_}, kv, plan);
  } else {
    ops_->PagedAttention(attended, absorbed, kv, {.scale = scale_}, plan);
  }
  const Slice own = OwnRows(heads_, shape_.value_dim);
  for (int64_t h = 0; h < heads_.count; ++h) {
    ops_->Linear(values.Columns(own.begin + h * shape_.value_dim, shape_.value_dim),
                 attended.Columns(h * dim, shape_.kv_rank), *layer.values[static_cast<size_t>(h)]);
  }
  return values;
}

}  // namespace tandem
