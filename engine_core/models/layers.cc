#include "engine_core/models/layers.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "engine_core/models/adapter_weights.h"
#include "engine_core/models/load_packed.h"

namespace tandem {

namespace {

// Blocks that follow one another in their module, as in the packed matrix, are one part.
AdapterSite SiteOf(std::span<const StoredMatrix> blocks, const LinearOptions& options,
                   const PackedMatrix& matrix) {
  AdapterSite site = {.parts = {},
                      .columns = matrix.k(),
                      .is_embedding = options.adapted_as == AdaptedAs::kEmbedding,
                      .matrix = matrix.form()};
  int64_t begin = 0;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const Slice rows = blocks[i].rows_to_load();
    AdapterSite::Part part = {.module = blocks[i].name,
                              .module_rows = blocks[i].rows,
                              .first = rows.begin,
                              .num_rows = rows.count,
                              .begin = begin};
    if (!options.modules.empty()) {
      part.module = options.modules[i];
      part.module_rows = options.module_rows;
      part.first = options.rows_of_module.begin;
    }
    begin += rows.count;
    AdapterSite::Part* last = site.parts.empty() ? nullptr : &site.parts.back();
    if (last != nullptr && last->module == part.module &&
        last->first + last->num_rows == part.first) {
      last->num_rows += part.num_rows;
    } else {
      site.parts.push_back(std::move(part));
    }
  }
  return site;
}

// Stacks the blocks and packs them.
StatusOr<std::unique_ptr<PackedMatrix>> PackStored(const LoadContext& context,
                                                   std::span<const StoredMatrix> blocks,
                                                   WeightFormat format, bool is_gated) {
  std::vector<LoadedMatrix> matrices;
  std::vector<MatrixSource> sources;
  for (const StoredMatrix& block : blocks) {
    ASSIGN_OR_RETURN(LoadedMatrix matrix,
                     LoadMatrix(context.weights, context.config.quantization, block));
    sources.push_back(matrix.source());
    matrices.push_back(std::move(matrix));
  }
  return is_gated ? context.backend.PackGated(sources, format)
                  : context.backend.Pack(sources, format);
}

// A vector of what `change` makes of each stored number.
template <class Change>
StatusOr<OwnedTensor> LoadEach(const LoadContext& context, const std::string& name, int64_t size,
                               Change change) {
  return LoadNumbers(context, name, 0, size, [&](float* out) -> Status {
    ASSIGN_OR_RETURN(const WeightTensor tensor, context.weights.Get(name, 0, size));
    ConvertTensor(Tensor(out, DType::kF32, {size}), tensor.view());
    std::transform(out, out + size, out, change);
    return OkStatus();
  });
}

}  // namespace

void MultiplyBy(const LinearLayer& layer, const Tensor& out, const Tensor& x,
                LinearEpilogue epilogue, AdapterPicker* adapters, Ops* ops) {
  const AdapterRows rows = adapters->Pick(layer.adapter_site);
  if (rows.empty()) return ops->Linear(out, x, *layer.weight, layer.bias, epilogue);
  ops->AdaptedLinear(out, x, *layer.weight, layer.bias, epilogue, rows);
}

StatusOr<LinearLayer> LoadLinear(const LoadContext& context, std::span<const StoredMatrix> blocks,
                                 const LinearOptions& options) {
  LinearLayer layer;
  const WeightFormat format = options.format.value_or(context.formats.layers);
  PackedFile::Wanted wanted = {.name = PackedName(blocks),
                               .n = 0,
                               .k = blocks[0].columns_to_load().count,
                               .format = format,
                               .is_gated = options.is_gated};
  for (const StoredMatrix& block : blocks) wanted.n += block.rows_to_load().count;
  ASSIGN_OR_RETURN(layer.weight, LoadPacked(context, wanted, [&] {
                     return PackStored(context, blocks, format, options.is_gated);
                   }));
  layer.adapter_site = AddAdapterSite(context, blocks, options, *layer.weight);
  if (options.has_bias) {
    ASSIGN_OR_RETURN(layer.bias, LoadBias(context, blocks));
  }
  return layer;
}

int AddAdapterSite(const LoadContext& context, std::span<const StoredMatrix> blocks,
                   const LinearOptions& options, const PackedMatrix& matrix) {
  if (context.adapter_sites == nullptr || options.adapted_as == AdaptedAs::kNothing) {
    return kNoAdapterSite;
  }
  return context.adapter_sites->Add(SiteOf(blocks, options, matrix));
}

StatusOr<OwnedTensor> LoadBias(const LoadContext& context, std::span<const StoredMatrix> blocks) {
  int64_t size = 0;
  for (const StoredMatrix& block : blocks) size += block.rows_to_load().count;
  return LoadNumbers(context, PackedName(blocks) + ".bias", 0, size, [&](float* out) -> Status {
    for (const StoredMatrix& block : blocks) {
      const Slice rows = block.rows_to_load();
      ASSIGN_OR_RETURN(const WeightTensor bias,
                       context.weights.Get(block.name + ".bias", 0, block.rows));
      ConvertTensor(Tensor(out, DType::kF32, {rows.count}),
                    bias.view().Rows(rows.begin, rows.count));
      out += rows.count;
    }
    return OkStatus();
  });
}

StatusOr<OwnedTensor> LoadVector(const LoadContext& context, const std::string& name, int64_t size,
                                 float offset) {
  return LoadEach(context, name, size, [offset](float stored) { return stored + offset; });
}

StatusOr<OwnedTensor> LoadScaledVector(const LoadContext& context, const std::string& name,
                                       int64_t size, double factor) {
  return LoadEach(context, name, size,
                  [factor](float stored) { return static_cast<float>(stored * factor); });
}

StatusOr<NormLayer> LoadRmsNorm(const LoadContext& context, const std::string& name, float offset) {
  NormLayer norm;
  ASSIGN_OR_RETURN(norm.weight,
                   LoadVector(context, name + ".weight", context.config.hidden_size, offset));
  return norm;
}

StatusOr<NormLayer> LoadLayerNorm(const LoadContext& context, const std::string& name,
                                  bool has_bias) {
  const int64_t hidden = context.config.hidden_size;
  ASSIGN_OR_RETURN(NormLayer norm, LoadRmsNorm(context, name));
  if (has_bias) {
    ASSIGN_OR_RETURN(norm.bias, LoadVector(context, name + ".bias", hidden));
  } else {
    std::vector<float> zeros(static_cast<size_t>(hidden));
    ASSIGN_OR_RETURN(norm.bias, context.backend.device().Upload(
                                    Tensor(zeros.data(), DType::kF32, {hidden}), DType::kF32));
  }
  return norm;
}

float AttentionScale(double dim) { return static_cast<float>(1 / std::sqrt(dim)); }

AttentionOptions AttentionOptionsOf(const ModelConfig& config, int64_t layer_idx) {
  return {.scale = AttentionScale(static_cast<double>(config.head_dim)),
          .sliding_window = config.WindowOf(layer_idx),
          .is_bidirectional = config.is_bidirectional};
}

std::array<StoredMatrix, 3> QkvBlocks(const LoadContext& context, const LayerPlace& place,
                                      int64_t columns) {
  const HeadShare all = HeadsOf(context.config), mine = context.heads();
  const auto block = [&](const char* name, int64_t rows, Slice slice) {
    return StoredMatrix{.name = place.prefix + "." + place.attention + "." + name,
                        .rows = rows,
                        .columns = columns > 0 ? columns : context.config.hidden_size,
                        .row_slice = slice};
  };
  return {block("q_proj", all.q_size(), mine.q_rows()),
          block("k_proj", all.kv_size(), mine.kv_rows()),
          block("v_proj", all.kv_size(), mine.kv_rows())};
}

StatusOr<LinearLayer> LoadOutProjection(const LoadContext& context, const LayerPlace& place,
                                        bool has_bias) {
  const StoredMatrix out[] = {{.name = place.prefix + "." + place.attention + ".o_proj",
                               .rows = context.config.hidden_size,
                               .columns = HeadsOf(context.config).q_size(),
                               .row_slice = context.share.Of(context.config.hidden_size)}};
  return LoadLinear(context, out, {.has_bias = has_bias});
}

StatusOr<AttentionLayer> LoadAttention(const LoadContext& context, const LayerPlace& place) {
  const bool has_bias = context.config.attention_bias;
  return LoadAttention(context, place, {.qkv = has_bias, .out = has_bias});
}

StatusOr<AttentionLayer> LoadAttention(const LoadContext& context, const LayerPlace& place,
                                       AttentionBiases biases) {
  AttentionLayer layer;
  ASSIGN_OR_RETURN(layer.qkv,
                   LoadLinear(context, QkvBlocks(context, place), {.has_bias = biases.qkv}));
  ASSIGN_OR_RETURN(layer.out, LoadOutProjection(context, place, biases.out));
  layer.options = AttentionOptionsOf(context.config, place.idx);
  return layer;
}

Status LoadHeadNorms(const LoadContext& context, const LayerPlace& place, const char* q_name,
                     const char* k_name, AttentionLayer* layer) {
  const int64_t head_dim = context.config.head_dim;
  const std::string prefix = place.prefix + ".self_attn.";
  ASSIGN_OR_RETURN(layer->q_norm, LoadVector(context, prefix + q_name + ".weight", head_dim));
  ASSIGN_OR_RETURN(layer->k_norm, LoadVector(context, prefix + k_name + ".weight", head_dim));
  return OkStatus();
}

Status LoadNormsOfEachHead(const LoadContext& context, const LayerPlace& place,
                           AttentionLayer* layer) {
  const HeadShare own = context.heads();
  const int64_t dim = own.head_dim;
  const auto load = [&](const char* name, int64_t num_heads, Slice heads) {
    const std::string full = place.prefix + ".self_attn." + name + ".weight";
    return LoadNumbers(context, full, 0, heads.count * dim, [&](float* out) -> Status {
      ASSIGN_OR_RETURN(const WeightTensor all, context.weights.Get(full, num_heads, dim));
      ConvertTensor(Tensor(out, DType::kF32, {heads.count, dim}),
                    all.view().Rows(heads.begin, heads.count));
      return OkStatus();
    });
  };
  ASSIGN_OR_RETURN(layer->q_head_norms, load("q_norm", context.config.num_heads, own.heads));
  ASSIGN_OR_RETURN(layer->k_head_norms, load("k_norm", context.config.num_kv_heads, own.kv_heads));
  ASSIGN_OR_RETURN(layer->no_bias, context.backend.device().Allocate(DType::kF32, {dim}));
  return OkStatus();
}

StatusOr<AttentionLayer> LoadProjectionNormedAttention(const LoadContext& context,
                                                       const LayerPlace& place) {
  ASSIGN_OR_RETURN(AttentionLayer layer, LoadAttention(context, place));
  // Over the heads of all ranks.
  const HeadShare heads = HeadsOf(context.config);
  const std::string prefix = place.prefix + ".self_attn.";
  ASSIGN_OR_RETURN(layer.q_projection_norm,
                   LoadVector(context, prefix + "q_norm.weight", heads.q_size()));
  ASSIGN_OR_RETURN(layer.k_projection_norm,
                   LoadVector(context, prefix + "k_norm.weight", heads.kv_size()));
  return layer;
}

StatusOr<OwnedTensor> LoadOfHeads(const LoadContext& context, const std::string& name) {
  const Slice heads = context.heads().heads;
  return LoadNumbers(context, name, 0, heads.count, [&](float* out) -> Status {
    ASSIGN_OR_RETURN(const WeightTensor all,
                     context.weights.Get(name, 0, context.config.num_heads));
    ConvertTensor(Tensor(out, DType::kF32, {heads.count}),
                  all.view().Rows(heads.begin, heads.count));
    return OkStatus();
  });
}

StatusOr<LinearLayer> LoadMergedQkv(const LoadContext& context, const std::string& name,
                                    bool has_bias, std::span<const Slice> runs) {
  std::vector<StoredMatrix> blocks;
  for (const Slice& run : runs) {
    blocks.push_back({.name = name,
                      .rows = HeadsOf(context.config).qkv_size(),
                      .columns = context.config.hidden_size,
                      .row_slice = run});
  }
  return LoadLinear(context, blocks, {.has_bias = has_bias});
}

std::vector<Slice> RunsByKvHead(const LoadContext& context) {
  const HeadShare mine = context.heads();
  const int64_t dim = mine.head_dim, group = context.config.num_heads / context.config.num_kv_heads;
  const int64_t stride = (group + 2) * dim;  // of a key-value head
  std::vector<Slice> runs;
  for (int64_t head = mine.heads.begin; head < mine.heads.end(); ++head) {
    runs.push_back({.begin = head / group * stride + head % group * dim, .count = dim});
  }
  for (const int64_t part : {group, group + 1}) {
    for (int64_t head = mine.kv_heads.begin; head < mine.kv_heads.end(); ++head) {
      runs.push_back({.begin = head * stride + part * dim, .count = dim});
    }
  }
  return runs;
}

StatusOr<LinearLayer> LoadRows(const LoadContext& context, const std::string& name, int64_t rows,
                               int64_t columns, bool has_bias) {
  const StoredMatrix block[] = {
      {.name = name, .rows = rows, .columns = columns, .row_slice = context.share.Of(rows)}};
  return LoadLinear(context, block, {.has_bias = has_bias});
}

StatusOr<MlpLayer> LoadPlainMlp(const LoadContext& context, const std::string& up,
                                const std::string& down, bool has_bias, int64_t inner) {
  const ModelConfig& config = context.config;
  const int64_t hidden = config.hidden_size;
  if (inner == 0) inner = config.intermediate_size;
  MlpLayer layer;
  if (config.hidden_act == "gelu") {
    layer.activation = Activation::kErfGelu;
  } else if (config.hidden_act == "gelu_new" || config.hidden_act == "gelu_pytorch_tanh") {
    layer.activation = Activation::kGelu;
  } else if (config.hidden_act == "relu") {
    layer.activation = Activation::kRelu;
  } else if (config.hidden_act == "relu2") {
    layer.activation = Activation::kSquaredRelu;
  } else {
    return InvalidArgumentError("hidden_act " + config.hidden_act + " of " + config.architecture +
                                " must be gelu, gelu_new, gelu_pytorch_tanh, relu or relu2");
  }
  ASSIGN_OR_RETURN(layer.up, LoadRows(context, up, inner, hidden, has_bias));
  ASSIGN_OR_RETURN(layer.down, LoadRows(context, down, hidden, inner, has_bias));
  return layer;
}

namespace {

StatusOr<MlpLayer> LoadMlp(const LoadContext& context, std::span<const StoredMatrix> gate_up,
                           const StoredMatrix& down) {
  const ModelConfig& config = context.config;
  MlpLayer layer;
  if (config.hidden_act == "gelu_pytorch_tanh") {
    layer.activation = Activation::kGeluAndMul;
  } else if (config.hidden_act != "silu") {
    return InvalidArgumentError("hidden_act " + config.hidden_act + " of " + config.architecture +
                                " must be silu or gelu_pytorch_tanh");
  }
  if (config.ScalesMlp()) {
    if (layer.activation != Activation::kSiluAndMul || config.mlp_bias) {
      return UnimplementedError("mlp_multipliers of " + config.architecture +
                                " are built for hidden_act silu and mlp_bias false");
    }
    layer.activation = Activation::kScaledSiluAndMul;
    layer.gate_scale = static_cast<float>(config.mlp_gate_multiplier);
    layer.out_scale = static_cast<float>(config.mlp_out_multiplier);
  }
  ASSIGN_OR_RETURN(
      layer.up,
      LoadLinear(context, gate_up, {.has_bias = config.mlp_bias, .is_gated = !config.ScalesMlp()}));
  ASSIGN_OR_RETURN(layer.down, LoadLinear(context, {&down, 1}, {.has_bias = config.mlp_bias}));
  return layer;
}

StoredMatrix DownProjection(const LoadContext& context, const std::string& module, int64_t inner) {
  return {.name = module + ".down_proj",
          .rows = context.config.hidden_size,
          .columns = inner,
          .row_slice = context.share.Of(context.config.hidden_size)};
}

}  // namespace

StatusOr<MlpLayer> LoadGatedMlp(const LoadContext& context, const LayerPlace& place) {
  return LoadGatedMlp(context, place.prefix + ".mlp", context.config.intermediate_size);
}

StatusOr<MlpLayer> LoadGatedMlp(const LoadContext& context, const std::string& module,
                                int64_t inner) {
  const auto block = [&](const char* name) {
    return StoredMatrix{.name = module + name,
                        .rows = inner,
                        .columns = context.config.hidden_size,
                        .row_slice = context.share.Of(inner)};
  };
  const StoredMatrix gate_up[] = {block(".gate_proj"), block(".up_proj")};
  return LoadMlp(context, gate_up, DownProjection(context, module, inner));
}

StatusOr<MlpLayer> LoadMergedMlp(const LoadContext& context, const std::string& gate_up,
                                 const std::string& down, int64_t inner) {
  const int64_t hidden = context.config.hidden_size;
  const Slice own = context.share.Of(inner);
  const StoredMatrix gate = {
      .name = gate_up, .rows = 2 * inner, .columns = hidden, .row_slice = own};
  StoredMatrix up = gate;
  up.row_slice = own.Shifted(inner);
  const StoredMatrix both[] = {gate, up};
  return LoadMlp(
      context, both,
      {.name = down, .rows = hidden, .columns = inner, .row_slice = context.share.Of(hidden)});
}

StatusOr<MlpLayer> LoadGatedMlp(const LoadContext& context, const LayerPlace& place,
                                std::span<const StoredMatrix> gate_up) {
  return LoadMlp(context, gate_up,
                 DownProjection(context, place.prefix + ".mlp", context.config.intermediate_size));
}

}  // namespace tandem
