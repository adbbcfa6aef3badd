// The tower of Qwen2.5-VL: RMS norms, gated MLPs, rotation, and attention inside windows but in a
// few layers. The merged rows stand in the order of their windows from the first layer to the
// merger.
// Source: Bai et al. 2025; HF's Qwen2_5_VisionTransformerPretrainedModel.

#include <algorithm>
#include <memory>
#include <utility>

#include "engine_core/models/qwen_tower.h"
#include "engine_core/models/window_order.h"

namespace tandem {
namespace {

class Qwen25Tower final : public VisionTower {
 public:
  static StatusOr<std::unique_ptr<VisionTower>> Load(const LoadContext& context);

  Status Check(const ImagePatches& image) const override { return CheckQwenImage(config_, image); }
  int64_t NumTokens(const ImagePatches& image) const override { return MergedRows(config_, image); }
  int64_t num_columns() const override { return config_.out_size; }
  StatusOr<TowerWork> Begin(const ImagePatches& image, const Tensor& out) override;

 private:
  Qwen25Tower(const LoadContext& context, const TowerShape& shape)
      : backend_(&context.backend), config_(context.config.vision), shape_(shape) {}

  bool HasWindows(int64_t layer_idx) const {
    return !std::binary_search(config_.full_attention_layers.begin(),
                               config_.full_attention_layers.end(), layer_idx);
  }
  // The run's hidden states are merged in the order of windows, and their rows put in the image's.
  Status AddMerger(const std::shared_ptr<TowerRun>& run, const WindowOrder& order,
                   const Tensor& out, TowerWork* work) const;

  Backend* backend_;
  VisionConfig config_;
  TowerShape shape_;
  LinearLayer patch_projection_;
  std::vector<TowerLayer> layers_;
  PatchMerger merger_;
};

StatusOr<std::unique_ptr<VisionTower>> Qwen25Tower::Load(const LoadContext& context) {
  const VisionConfig& config = context.config.vision;
  if (config.hidden_act != "silu") {
    return UnimplementedError("hidden_act " + config.hidden_act +
                              " of the vision tower must be silu");
  }
  if (config.window_size < config.merge_size * config.patch_size) {
    return InvalidArgumentError("window_size " + std::to_string(config.window_size) +
                                " of the vision tower must hold a merged patch, " +
                                std::to_string(config.merge_size * config.patch_size));
  }
  const TowerShape shape = {.hidden = config.hidden_size,
                            .inner = config.intermediate_size,
                            .num_heads = config.num_heads,
                            .norm_epsilon = 1e-6f,
                            .has_rms_norm = true,
                            .activation = Activation::kSiluAndMul};
  const std::string prefix = QwenTowerPrefix(context.weights);
  auto tower = std::unique_ptr<Qwen25Tower>(new Qwen25Tower(context, shape));
  ASSIGN_OR_RETURN(
      tower->patch_projection_,
      LoadPatchProjection(context, prefix + ".patch_embed.proj", config.hidden_size,
                          {3, config.temporal_patch_size, config.patch_size, config.patch_size},
                          /*has_bias=*/false));
  const TowerLayerNames names = {.qkv = {"attn.qkv"},
                                 .out = "attn.proj",
                                 .up = {"mlp.gate_proj", "mlp.up_proj"},
                                 .down = "mlp.down_proj",
                                 .norm1 = "norm1",
                                 .norm2 = "norm2"};
  ASSIGN_OR_RETURN(tower->layers_, LoadTowerLayers(context, shape, prefix + ".blocks.", names));
  const std::string merger = prefix + ".merger.";
  ASSIGN_OR_RETURN(tower->merger_,
                   LoadPatchMerger(context, config, merger + "ln_q", merger + "mlp.0",
                                   merger + "mlp.2", /*norms_merged=*/false,
                                   /*has_rms_norm=*/true));
  return std::unique_ptr<VisionTower>(std::move(tower));
}

StatusOr<TowerWork> Qwen25Tower::Begin(const ImagePatches& image, const Tensor& out) {
  RETURN_IF_ERROR(Check(image));
  const int64_t merge = config_.merge_size, of_cell = merge * merge;
  const WindowOrder order = OrderByWindows(image.grid_h / merge, image.grid_w / merge,
                                           config_.window_size / merge / config_.patch_size);
  const std::vector<PatchPlace> by_cell =
      PlacesOfPatches(image.grid_h, image.grid_w, config_.merge_size);
  std::vector<int32_t> rows;
  std::vector<PatchPlace> places;
  for (const int32_t cell : order.cells) {
    for (int64_t i = cell * of_cell; i < (cell + 1) * of_cell; ++i) {
      rows.push_back(static_cast<int32_t>(i));
      places.push_back(by_cell[static_cast<size_t>(i)]);
    }
  }
  std::vector<int64_t> ends = order.ends;
  for (int64_t& end : ends) end *= of_cell;
  const int64_t patches[] = {static_cast<int64_t>(rows.size())};
  ASSIGN_OR_RETURN(const auto all, TowerWindows::Create(backend_, config_, patches));
  ASSIGN_OR_RETURN(const auto windows, TowerWindows::Create(backend_, config_, ends));
  ASSIGN_OR_RETURN(const std::shared_ptr<TowerRun> run,
                   TowerRun::Create(backend_, shape_, patches[0],
                                    std::max(all->num_blocks(), windows->num_blocks()),
                                    AnglesOf(places, config_.head_dim())));
  const auto residual = [run] { return run->residual(); };
  TowerWork work(backend_->device());
  run->AddEmbedding(image.pixels, patch_projection_, &work);
  AddReport("patch_embed", residual, &work);
  run->AddOrder(std::move(rows), &work);
  for (int64_t i = 0; i < config_.num_layers; ++i) {
    run->AddLayer(layers_[static_cast<size_t>(i)], HasWindows(i) ? windows : all, &work);
    if (i == 0) AddReport("vit_block0", residual, &work);
  }
  AddReport("vit_last", residual, &work);
  RETURN_IF_ERROR(AddMerger(run, order, out, &work));
  return work;
}

Status Qwen25Tower::AddMerger(const std::shared_ptr<TowerRun>& run, const WindowOrder& order,
                              const Tensor& out, TowerWork* work) const {
  ASSIGN_OR_RETURN(OwnedTensor memory,
                   backend_->device().Allocate(DType::kF32, {out.rows(), config_.out_size}));
  const auto merged = std::make_shared<const OwnedTensor>(std::move(memory));
  AddPatchMerger(backend_, merger_, run, shape_.norm_epsilon, *merged, work);
  AddReport(
      "merger", [merged] { return merged->view(); }, work);
  std::vector<int32_t> places(order.cells.size());  // of the image's cells in that order
  for (size_t i = 0; i < places.size(); ++i) {
    places[static_cast<size_t>(order.cells[i])] = static_cast<int32_t>(i);
  }
  const auto put = [this, merged, out, places = std::move(places)](int64_t, int64_t) -> Status {
    // The view is only read.
    const Tensor view(const_cast<int32_t*>(places.data()), DType::kI32, {out.rows()});
    ASSIGN_OR_RETURN(const OwnedTensor rows, ForOps(&backend_->device(), view));
    backend_->ops().GatherRows(out, *merged, rows);
    return OkStatus();
  };
  work->AddRuns({out.rows()}, static_cast<double>(config_.out_size), put);
  return OkStatus();
}

}  // namespace

StatusOr<std::unique_ptr<VisionTower>> LoadQwen25Tower(const LoadContext& context) {
  return Qwen25Tower::Load(context);
}

}  // namespace tandem
