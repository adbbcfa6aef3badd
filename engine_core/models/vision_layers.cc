#include "engine_core/models/vision_layers.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <utility>

#include "engine_core/models/load_packed.h"
#include "engine_core/weights/number_type.h"

namespace tandem {
namespace {

constexpr int kBlockSize = 32;  // of the cpu backend's tiles
constexpr LinearOptions kOfTower = {
    .has_bias = true, .format = WeightFormat::kCompute, .adapted_as = AdaptedAs::kNothing};

int64_t NumBlocks(int64_t num_patches) { return (num_patches + kBlockSize - 1) / kBlockSize; }

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
  if (!IsNumberType(type) || (stored->shape() != shape && !is_flat)) {
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
  blocks.reserve(names.size());
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
    whole.reserve(parts.size());
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

StatusOr<OwnedTensor> ForOps(Device* device, const Tensor& host) {
  if (device->memory_is_host()) return OwnedTensor(nullptr, host);
  return device->Upload(host, host.dtype);
}

StatusOr<Activation> UngatedActivation(const VisionConfig& config) {
  if (config.hidden_act == "gelu") return Activation::kErfGelu;
  if (config.hidden_act == "gelu_pytorch_tanh") return Activation::kGelu;
  return UnimplementedError("hidden_act " + config.hidden_act +
                            " of the vision tower must be gelu_pytorch_tanh or gelu");
}

StatusOr<std::shared_ptr<const TowerWindows>> TowerWindows::Create(Backend* backend,
                                                                   const VisionConfig& config,
                                                                   std::span<const int64_t> ends) {
  const int64_t num_patches = ends.back(), num_windows = static_cast<int64_t>(ends.size());
  int64_t most = 0;
  for (int64_t w = 0, begin = 0; w < num_windows; begin = ends[static_cast<size_t>(w++)]) {
    most = std::max(most, ends[static_cast<size_t>(w)] - begin);
  }
  auto windows = std::make_shared<TowerWindows>();
  windows->row_work_ = config.LayerWork(most);
  const int64_t most_blocks = NumBlocks(most);
  std::vector<int32_t> positions(static_cast<size_t>(num_patches)), slots(positions.size());
  std::vector<int32_t> blocks(static_cast<size_t>(num_windows * most_blocks));
  std::iota(positions.begin(), positions.end(), 0);
  for (int64_t w = 0, begin = 0; w < num_windows; begin = ends[static_cast<size_t>(w++)]) {
    const int64_t size = ends[static_cast<size_t>(w)] - begin;
    int32_t* const of_window = blocks.data() + w * most_blocks;
    const auto first = static_cast<int32_t>(windows->num_blocks_);
    std::iota(of_window, of_window + NumBlocks(size), first);
    std::iota(slots.data() + begin, slots.data() + begin + size, first * kBlockSize);
    windows->num_blocks_ += NumBlocks(size);
  }
  const auto upload = [&](std::vector<int32_t>& numbers, std::initializer_list<int64_t> shape) {
    return backend->device().Upload(Tensor(numbers.data(), DType::kI32, shape), DType::kI32);
  };
  ASSIGN_OR_RETURN(windows->positions_, upload(positions, {num_patches}));
  ASSIGN_OR_RETURN(windows->slots_, upload(slots, {num_patches}));
  ASSIGN_OR_RETURN(windows->blocks_, upload(blocks, {num_windows, most_blocks}));
  windows->Cut(TowerWork::RunWorkOf(backend->device()), ends);
  const auto heads = static_cast<int>(config.num_heads);
  const AttentionShape shape = {.num_heads = heads,
                                .num_kv_heads = heads,
                                .head_dim = static_cast<int>(config.head_dim()),
                                .is_bidirectional = true};
  int64_t begin = 0;
  for (const int64_t end : windows->ends_) {
    RETURN_IF_ERROR(windows->MakePlan(backend, shape, begin, end, ends));
    begin = end;
  }
  return std::shared_ptr<const TowerWindows>(std::move(windows));
}

// Small windows go together, a large one is cut.
void TowerWindows::Cut(double run_work, std::span<const int64_t> ends) {
  const int64_t at_once = TowerWork::RowsAtOnce(row_work_, run_work);
  int64_t begin = 0;   // of the run
  int64_t before = 0;  // the end of the window before
  for (const int64_t end : ends) {
    if (end - begin > at_once && before > begin) ends_.push_back(begin = before);
    for (; end - begin > at_once; begin += at_once) ends_.push_back(begin + at_once);
    before = end;
  }
  ends_.push_back(before);
}

Status TowerWindows::MakePlan(Backend* backend, const AttentionShape& shape, int64_t begin,
                              int64_t end, std::span<const int64_t> ends) {
  std::vector<int32_t> query_start = {0}, context_len;
  const auto first = std::ranges::upper_bound(ends, begin) - ends.begin();
  for (int64_t w = first; query_start.back() < end - begin; ++w) {
    const int64_t window_end = ends[static_cast<size_t>(w)];
    const int64_t window_begin = w == 0 ? 0 : ends[static_cast<size_t>(w - 1)];
    context_len.push_back(static_cast<int32_t>(window_end - window_begin));
    query_start.push_back(static_cast<int32_t>(std::min(window_end, end) - begin));
  }
  const auto num_windows = static_cast<int64_t>(context_len.size());
  ASSIGN_OR_RETURN(std::unique_ptr<AttentionPlan> plan,
                   backend->MakeAttentionPlan(shape, end - begin, num_windows));
  AttentionBatch batch;
  batch.query_start = query_start;
  batch.context_len = context_len;
  batch.positions = positions_.view().Rows(begin, end - begin);
  batch.slot_mapping = slots_.view().Rows(begin, end - begin);
  batch.block_table = blocks_.view().Rows(first, num_windows);
  plan->Fill(batch);
  plans_.push_back(std::move(plan));
  return OkStatus();
}

const AttentionPlan& TowerWindows::PlanAt(int64_t begin) const {
  return *plans_[static_cast<size_t>(std::ranges::upper_bound(ends_, begin) - ends_.begin())];
}

StatusOr<std::shared_ptr<TowerRun>> TowerRun::Create(Backend* backend, const TowerShape& shape,
                                                     int64_t num_patches, int64_t num_blocks,
                                                     PatchAngles angles) {
  std::shared_ptr<TowerRun> run(new TowerRun(backend, shape, std::move(angles)));
  Device& device = backend->device();
  const DType act = backend->activation_dtype();
  const int64_t hidden = shape.hidden;
  const int64_t rows =
      std::min(TowerWork::RowsAtOnce(0, TowerWork::RunWorkOf(device)), num_patches);
  const int64_t pairs = static_cast<int64_t>(run->angles_.cos.size()) / num_patches;
  if (pairs > 0) {
    const auto table = [&](std::vector<float>& numbers) {
      return ForOps(&device, Tensor(numbers.data(), DType::kF32, {num_patches, pairs}));
    };
    ASSIGN_OR_RETURN(run->cos_, table(run->angles_.cos));
    ASSIGN_OR_RETURN(run->sin_, table(run->angles_.sin));
  }
  ASSIGN_OR_RETURN(run->residual_,
                   device.Allocate(backend->residual_dtype(), {num_patches, hidden}));
  ASSIGN_OR_RETURN(run->q_, device.Allocate(act, {num_patches, hidden}));
  ASSIGN_OR_RETURN(run->qkv_, device.Allocate(act, {rows, 3 * hidden}));
  ASSIGN_OR_RETURN(run->attended_, device.Allocate(act, {rows, hidden}));
  ASSIGN_OR_RETURN(run->normed_, device.Allocate(act, {rows, hidden}));
  ASSIGN_OR_RETURN(run->inner_, device.Allocate(act, {rows, shape.inner}));
  ASSIGN_OR_RETURN(run->keys_,
                   backend->AllocateKvCache({.num_layers = 1,
                                             .num_kv_heads = static_cast<int>(shape.num_heads),
                                             .head_dim = static_cast<int>(hidden / shape.num_heads),
                                             .block_size = kBlockSize,
                                             .num_blocks = num_blocks}));
  return run;
}

void TowerRun::AddEmbedding(const Tensor& pixels, const LinearLayer& projection, TowerWork* work) {
  work->Add(pixels.rows(), static_cast<double>(pixels.shape[1] * shape_.hidden),
            [self = shared_from_this(), pixels, &projection](int64_t begin, int64_t count) {
              return self->Embed(pixels, projection, begin, count);
            });
}

Status TowerRun::Embed(const Tensor& pixels, const LinearLayer& projection, int64_t begin,
                       int64_t count) {
  Device& device = backend_->device();
  ASSIGN_OR_RETURN(const OwnedTensor patches,
                   device.Allocate(backend_->activation_dtype(), {count, pixels.shape[1]}));
  ASSIGN_OR_RETURN(const OwnedTensor numbers, ForOps(&device, pixels.Rows(begin, count)));
  Ops& ops = backend_->ops();
  ops.Convert(patches, numbers);
  ops.Linear(residual().Rows(begin, count), patches, *projection.weight, projection.bias);
  return OkStatus();
}

void TowerRun::AddOrder(std::vector<int32_t> rows, TowerWork* work) {
  const auto order = [self = shared_from_this(), rows = std::move(rows)](int64_t,
                                                                         int64_t count) -> Status {
    const Tensor& x = self->residual();
    Device& device = self->backend_->device();
    ASSIGN_OR_RETURN(OwnedTensor ordered, device.Allocate(x.dtype, {x.shape[0], x.shape[1]}));
    // The view is only read.
    const Tensor view(const_cast<int32_t*>(rows.data()), DType::kI32, {count});
    ASSIGN_OR_RETURN(const OwnedTensor from, ForOps(&device, view));
    self->backend_->ops().GatherRows(ordered, x, from);
    self->residual_ = std::move(ordered);
    return OkStatus();
  };
  work->AddRuns({residual().rows()}, static_cast<double>(shape_.hidden), order);
}

void TowerRun::AddLayer(const TowerLayer& layer, const std::shared_ptr<const TowerWindows>& windows,
                        TowerWork* work) {
  const auto self = shared_from_this();
  const auto hidden = static_cast<double>(shape_.hidden);
  const double qkv_work = 3 * hidden * hidden;
  work->AddRuns(windows->ends(), qkv_work, [self, &layer, windows](int64_t begin, int64_t count) {
    self->ProjectQkv(layer, windows->PlanAt(begin), begin, count);
    return OkStatus();
  });
  work->AddRuns(windows->ends(), windows->row_work() - qkv_work,
                [self, &layer, windows](int64_t begin, int64_t count) {
                  self->Attend(layer, windows->PlanAt(begin), begin, count);
                  self->RunMlp(layer, begin, count);
                  return OkStatus();
                });
}

Tensor TowerRun::Normed(const NormLayer& norm, int64_t begin, int64_t count) {
  const Tensor out = normed_.view().Rows(0, count);
  TowerNorm(&backend_->ops(), out, residual().Rows(begin, count), norm, shape_.norm_epsilon);
  return out;
}

void TowerRun::ProjectQkv(const TowerLayer& layer, const AttentionPlan& plan, int64_t begin,
                          int64_t count) {
  Ops& ops = backend_->ops();
  const Tensor qkv = qkv_.view().Rows(0, count);
  ops.Linear(qkv, Normed(layer.norm1, begin, count), *layer.qkv.weight, layer.qkv.bias);
  QkRope rope;
  rope.cos = cos_;
  rope.sin = sin_;
  rope.rotary_dim = cos_.view().empty() ? 0 : static_cast<int>(2 * cos_.view().shape[1]);
  ops.QkNormRopeWriteKv(q_.view().Rows(begin, count), qkv, rope, keys_->layer(0), plan);
}

void TowerRun::Attend(const TowerLayer& layer, const AttentionPlan& plan, int64_t begin,
                      int64_t count) {
  Ops& ops = backend_->ops();
  const AttentionOptions options = {.scale = AttentionScale(static_cast<double>(shape_.hidden) /
                                                            static_cast<double>(shape_.num_heads)),
                                    .is_bidirectional = true};
  const Tensor attended = attended_.view().Rows(0, count);
  ops.PagedAttention(attended, q_.view().Rows(begin, count), keys_->layer(0), options, plan);
  ops.Linear(residual().Rows(begin, count), attended, *layer.out.weight, layer.out.bias,
             LinearEpilogue::kAddResidual);
}

void TowerRun::RunMlp(const TowerLayer& layer, int64_t begin, int64_t count) {
  Ops& ops = backend_->ops();
  const Tensor x = Normed(layer.norm2, begin, count), inner = inner_.view().Rows(0, count);
  if (shape_.activation == Activation::kSiluAndMul) {
    ops.Linear(inner, x, *layer.up.weight, layer.up.bias, LinearEpilogue::kSiluAndMul);
  } else {
    ops.Linear(inner, x, *layer.up.weight, layer.up.bias);
    ops.Activate(
        inner, inner,
        shape_.activation == Activation::kGelu ? Nonlinearity::kTanhGelu : Nonlinearity::kErfGelu);
  }
  ops.Linear(residual().Rows(begin, count), inner, *layer.down.weight, layer.down.bias,
             LinearEpilogue::kAddResidual);
}

void TowerNorm(Ops* ops, const Tensor& out, const Tensor& x, const NormLayer& norm, float epsilon) {
  if (norm.bias.view().empty()) {
    ops->RmsNorm(out, x, norm.weight, epsilon);
  } else {
    ops->LayerNorm(out, x, norm.weight, norm.bias, epsilon);
  }
}

}  // namespace tandem
