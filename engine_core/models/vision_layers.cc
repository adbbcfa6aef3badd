#include "engine_core/models/vision_layers.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <utility>

#include "engine_core/models/load_packed.h"

namespace tandem {
namespace {

constexpr int kBlockSize = 32;  // of the cpu backend's tiles
// Rows that products run over at a time, so that their room does not grow with the image.
constexpr int64_t kRowsAtOnce = 512;

constexpr LinearOptions kOfTower = {
    .has_bias = true, .format = WeightFormat::kCompute, .adapted_as = AdaptedAs::kNothing};

int64_t NumBlocks(int64_t num_patches) { return (num_patches + kBlockSize - 1) / kBlockSize; }

// Calls f(begin, count) for runs of rows.
template <class F>
void ForRows(int64_t num_rows, F f) {
  for (int64_t begin = 0; begin < num_rows; begin += kRowsAtOnce) {
    f(begin, std::min(kRowsAtOnce, num_rows - begin));
  }
}

// The numbers of a tensor of any shape, as float32.
StatusOr<std::vector<float>> ReadNumbers(Weights* weights, const std::string& name,
                                         const std::vector<int64_t>& shape) {
  const int64_t rows = shape[0];
  const int64_t columns =
      std::accumulate(shape.begin() + 1, shape.end(), int64_t{1}, std::multiplies<>());
  const StatusOr<StoredTensor> stored = weights->GetStored(name);
  if (!stored.ok()) {  // weights that are not files
    ASSIGN_OR_RETURN(const WeightTensor made, weights->Get(name, rows, columns));
    std::vector<float> numbers(static_cast<size_t>(rows * columns));
    ConvertTensor(Tensor(numbers.data(), DType::kF32, {rows, columns}), made.view());
    return numbers;
  }
  const std::string& type = stored->dtype();
  const bool is_flat = stored->shape() == std::vector<int64_t>{rows, columns};
  if ((type != "F32" && type != "F16" && type != "BF16") ||
      (stored->shape() != shape && !is_flat)) {
    return InvalidArgumentError("tensor " + name + " of type " + type +
                                " has another type or shape than the config needs");
  }
  return FloatsOf(*stored);
}

}  // namespace

StatusOr<LinearLayer> LoadTowerLinear(const LoadContext& context,
                                      const std::vector<std::string>& names, int64_t rows,
                                      int64_t columns, bool is_gated) {
  std::vector<StoredMatrix> blocks;
  for (const std::string& name : names) {
    blocks.push_back(
        {.name = name, .rows = rows / static_cast<int64_t>(names.size()), .columns = columns});
  }
  LinearOptions options = kOfTower;
  options.is_gated = is_gated;
  return LoadLinear(context, blocks, options);
}

StatusOr<NormLayer> LoadTowerNorm(const LoadContext& context, const std::string& name, int64_t size,
                                  bool has_rms_norm) {
  NormLayer norm;
  ASSIGN_OR_RETURN(norm.weight, LoadVector(context, name + ".weight", size));
  if (!has_rms_norm) {
    ASSIGN_OR_RETURN(norm.bias, LoadVector(context, name + ".bias", size));
  }
  return norm;
}

namespace {

StatusOr<TowerLayer> LoadTowerLayer(const LoadContext& context, const TowerShape& shape,
                                    const std::string& prefix, const TowerLayerNames& names) {
  const auto under = [&](const std::vector<std::string>& parts) {
    std::vector<std::string> whole;
    for (const std::string& part : parts) whole.push_back(prefix + "." + part);
    return whole;
  };
  const bool is_gated = names.up.size() == 2;
  const int64_t hidden = shape.hidden, inner = shape.inner;
  TowerLayer layer;
  ASSIGN_OR_RETURN(layer.norm1,
                   LoadTowerNorm(context, prefix + "." + names.norm1, hidden, shape.has_rms_norm));
  ASSIGN_OR_RETURN(layer.norm2,
                   LoadTowerNorm(context, prefix + "." + names.norm2, hidden, shape.has_rms_norm));
  ASSIGN_OR_RETURN(layer.qkv, LoadTowerLinear(context, under(names.qkv), 3 * hidden, hidden));
  ASSIGN_OR_RETURN(layer.out, LoadTowerLinear(context, under({names.out}), hidden, hidden));
  ASSIGN_OR_RETURN(layer.up, LoadTowerLinear(context, under(names.up), is_gated ? 2 * inner : inner,
                                             hidden, is_gated));
  ASSIGN_OR_RETURN(layer.down, LoadTowerLinear(context, under({names.down}), hidden, inner));
  return layer;
}

}  // namespace

StatusOr<std::vector<TowerLayer>> LoadTowerLayers(const LoadContext& context,
                                                  const TowerShape& shape,
                                                  const std::string& prefix,
                                                  const TowerLayerNames& names) {
  std::vector<TowerLayer> layers;
  for (int64_t i = 0; i < context.config.vision.num_layers; ++i) {
    ASSIGN_OR_RETURN(TowerLayer layer,
                     LoadTowerLayer(context, shape, prefix + std::to_string(i), names));
    layers.push_back(std::move(layer));
  }
  return layers;
}

StatusOr<LinearLayer> LoadPatchProjection(const LoadContext& context, const std::string& name,
                                          int64_t rows, const std::vector<int64_t>& dimensions,
                                          bool has_bias) {
  const int64_t columns =
      std::accumulate(dimensions.begin(), dimensions.end(), int64_t{1}, std::multiplies<>());
  std::vector<int64_t> shape = {rows};
  shape.insert(shape.end(), dimensions.begin(), dimensions.end());
  const StoredMatrix block[] = {{.name = name, .rows = rows, .columns = columns}};
  LinearLayer layer;
  const auto pack = [&]() -> StatusOr<std::unique_ptr<PackedMatrix>> {
    ASSIGN_OR_RETURN(std::vector<float> numbers,
                     ReadNumbers(&context.weights, name + ".weight", shape));
    const MatrixSource source[] = {
        MatrixSource(Tensor(numbers.data(), DType::kF32, {rows, columns}))};
    return context.backend.Pack(source);
  };
  ASSIGN_OR_RETURN(layer.weight,
                   LoadPacked(context, {.name = PackedName(block), .n = rows, .k = columns}, pack));
  if (has_bias) {
    ASSIGN_OR_RETURN(layer.bias, LoadBias(context, block));
  }
  return layer;
}

StatusOr<LinearLayer> LoadTransposed(const LoadContext& context, const std::string& name,
                                     int64_t rows, int64_t columns) {
  const StoredMatrix block[] = {{.name = name, .rows = rows, .columns = columns}};
  LinearLayer layer;
  const auto pack = [&]() -> StatusOr<std::unique_ptr<PackedMatrix>> {
    ASSIGN_OR_RETURN(const std::vector<float> stored,
                     ReadNumbers(&context.weights, name, {columns, rows}));
    std::vector<float> turned(stored.size());
    for (size_t i = 0; i < stored.size(); ++i) {
      const auto row = static_cast<int64_t>(i) % rows, column = static_cast<int64_t>(i) / rows;
      turned[static_cast<size_t>(row * columns + column)] = stored[i];
    }
    const MatrixSource source[] = {
        MatrixSource(Tensor(turned.data(), DType::kF32, {rows, columns}))};
    return context.backend.Pack(source);
  };
  ASSIGN_OR_RETURN(layer.weight,
                   LoadPacked(context, {.name = PackedName(block), .n = rows, .k = columns}, pack));
  return layer;
}

StatusOr<OwnedTensor> LoadTable(const LoadContext& context, const std::string& name, int64_t rows,
                                int64_t columns) {
  return LoadNumbers(context, name, rows, columns, [&](float* out) -> Status {
    ASSIGN_OR_RETURN(const WeightTensor table, context.weights.Get(name, rows, columns));
    ConvertTensor(Tensor(out, DType::kF32, {rows, columns}), table.view());
    return OkStatus();
  });
}

StatusOr<Activation> UngatedActivation(const VisionConfig& config) {
  if (config.hidden_act == "gelu") return Activation::kErfGelu;
  if (config.hidden_act == "gelu_pytorch_tanh") return Activation::kGelu;
  return UnimplementedError("hidden_act " + config.hidden_act +
                            " of the vision tower must be gelu_pytorch_tanh or gelu");
}

StatusOr<TowerWindows> TowerWindows::Create(Backend* backend, const TowerShape& shape,
                                            std::span<const int64_t> ends) {
  const int64_t num_patches = ends.back(), num_windows = static_cast<int64_t>(ends.size());
  int64_t most_blocks = 0;
  TowerWindows windows;
  windows.query_start_.push_back(0);
  for (const int64_t end : ends) {
    const int64_t size = end - windows.query_start_.back();
    windows.context_len_.push_back(static_cast<int32_t>(size));
    windows.query_start_.push_back(static_cast<int32_t>(end));
    most_blocks = std::max(most_blocks, NumBlocks(size));
  }
  Device& device = backend->device();
  ASSIGN_OR_RETURN(windows.positions_, device.Allocate(DType::kI32, {num_patches}));
  ASSIGN_OR_RETURN(windows.slots_, device.Allocate(DType::kI32, {num_patches}));
  ASSIGN_OR_RETURN(windows.blocks_, device.Allocate(DType::kI32, {num_windows, most_blocks}));
  auto* positions = windows.positions_.view().Data<int32_t>();
  std::iota(positions, positions + num_patches, 0);
  auto* slots = windows.slots_.view().Data<int32_t>();
  for (int64_t w = 0; w < num_windows; ++w) {
    const int32_t size = windows.context_len_[static_cast<size_t>(w)];
    auto* blocks = windows.blocks_.view().Row<int32_t>(w);
    const auto first = static_cast<int32_t>(windows.num_blocks_);
    std::iota(blocks, blocks + NumBlocks(size), first);
    std::iota(slots, slots + size, first * kBlockSize);
    slots += size;
    windows.num_blocks_ += NumBlocks(size);
  }
  const auto heads = static_cast<int>(shape.num_heads);
  const auto head_dim = static_cast<int>(shape.hidden / shape.num_heads);
  ASSIGN_OR_RETURN(windows.plan_,
                   backend->MakeAttentionPlan({heads, heads, head_dim}, num_patches, num_windows));
  AttentionBatch batch;
  batch.query_start = windows.query_start_;
  batch.context_len = windows.context_len_;
  batch.positions = windows.positions_;
  batch.slot_mapping = windows.slots_;
  batch.block_table = windows.blocks_;
  windows.plan_->Fill(batch);
  return windows;
}

StatusOr<TowerRun> TowerRun::Create(Backend* backend, const TowerShape& shape, int64_t num_patches,
                                    int64_t num_blocks, const Tensor& cos, const Tensor& sin) {
  TowerRun run(backend, shape, cos, sin);
  Device& device = backend->device();
  const DType act = backend->activation_dtype();
  const int64_t hidden = shape.hidden, rows = std::min(kRowsAtOnce, num_patches);
  ASSIGN_OR_RETURN(run.residual_,
                   device.Allocate(backend->residual_dtype(), {num_patches, hidden}));
  ASSIGN_OR_RETURN(run.qkv_, device.Allocate(act, {num_patches, 3 * hidden}));
  ASSIGN_OR_RETURN(run.q_, device.Allocate(act, {num_patches, hidden}));
  ASSIGN_OR_RETURN(run.attended_, device.Allocate(act, {num_patches, hidden}));
  ASSIGN_OR_RETURN(run.normed_, device.Allocate(act, {rows, hidden}));
  ASSIGN_OR_RETURN(run.inner_, device.Allocate(act, {rows, shape.inner}));
  ASSIGN_OR_RETURN(run.keys_,
                   backend->AllocateKvCache({.num_layers = 1,
                                             .num_kv_heads = static_cast<int>(shape.num_heads),
                                             .head_dim = static_cast<int>(hidden / shape.num_heads),
                                             .block_size = kBlockSize,
                                             .num_blocks = num_blocks}));
  return run;
}

Status TowerRun::Embed(const Tensor& pixels, const LinearLayer& projection) {
  const int64_t num_patches = pixels.rows(), numbers = pixels.shape[1];
  ASSIGN_OR_RETURN(const OwnedTensor patches,
                   backend_->device().Allocate(backend_->activation_dtype(),
                                               {std::min(kRowsAtOnce, num_patches), numbers}));
  Ops& ops = backend_->ops();
  ForRows(num_patches, [&](int64_t begin, int64_t count) {
    const Tensor rows = patches.view().Rows(0, count);
    ops.Convert(rows, pixels.Rows(begin, count));
    ops.Linear(residual().Rows(begin, count), rows, *projection.weight, projection.bias);
  });
  return OkStatus();
}

Status TowerRun::Reorder(const Tensor& rows) {
  const Tensor& x = residual();
  ASSIGN_OR_RETURN(OwnedTensor ordered,
                   backend_->device().Allocate(x.dtype, {x.shape[0], x.shape[1]}));
  backend_->ops().GatherRows(ordered, x, rows);
  residual_ = std::move(ordered);
  return OkStatus();
}

void TowerRun::RunLayer(const TowerLayer& layer, const TowerWindows& windows) {
  Ops& ops = backend_->ops();
  const int64_t num_patches = residual().rows();
  const auto normed = [&](const NormLayer& norm, int64_t begin, int64_t count) {
    const Tensor out = normed_.view().Rows(0, count);
    TowerNorm(&ops, out, residual().Rows(begin, count), norm, shape_.norm_epsilon);
    return out;
  };
  ForRows(num_patches, [&](int64_t begin, int64_t count) {
    ops.Linear(qkv_.view().Rows(begin, count), normed(layer.norm1, begin, count), *layer.qkv.weight,
               layer.qkv.bias);
  });
  QkRope rope;
  rope.cos = cos_;
  rope.sin = sin_;
  rope.rotary_dim = cos_.empty() ? 0 : static_cast<int>(2 * cos_.shape[1]);
  const AttentionOptions options = {.scale = AttentionScale(static_cast<double>(shape_.hidden) /
                                                            static_cast<double>(shape_.num_heads)),
                                    .is_bidirectional = true};
  ops.QkNormRopeWriteKv(q_, qkv_, rope, keys_->layer(0), windows.plan());
  ops.PagedAttention(attended_, q_, keys_->layer(0), options, windows.plan());
  ops.Linear(residual(), attended_, *layer.out.weight, layer.out.bias,
             LinearEpilogue::kAddResidual);
  ForRows(num_patches, [&](int64_t begin, int64_t count) {
    const Tensor x = normed(layer.norm2, begin, count), inner = inner_.view().Rows(0, count);
    if (shape_.activation == Activation::kSiluAndMul) {
      ops.Linear(inner, x, *layer.up.weight, layer.up.bias, LinearEpilogue::kSiluAndMul);
    } else {
      ops.Linear(inner, x, *layer.up.weight, layer.up.bias);
      ops.Activate(inner, inner,
                   shape_.activation == Activation::kGelu ? Nonlinearity::kTanhGelu
                                                          : Nonlinearity::kErfGelu);
    }
    ops.Linear(residual().Rows(begin, count), inner, *layer.down.weight, layer.down.bias,
               LinearEpilogue::kAddResidual);
  });
}

void TowerNorm(Ops* ops, const Tensor& out, const Tensor& x, const NormLayer& norm, float epsilon) {
  if (norm.bias.view().empty()) {
    ops->RmsNorm(out, x, norm.weight, epsilon);
  } else {
    ops->LayerNorm(out, x, norm.weight, norm.bias, epsilon);
  }
}

}  // namespace tandem
