// The tower of Qwen3-VL and Qwen3.5: learned positions, interpolated to the image's grid, and
// rotation; features of some layers are handed to the first layers of the text model (deepstack,
// Meng et al. 2024), which Qwen3.5 has none of.
// Source: Qwen 2025; HF's Qwen3VLVisionModel.

#include <cmath>
#include <span>
#include <utility>

#include "engine_core/models/position_table.h"
#include "engine_core/models/qwen_tower.h"

namespace tandem {
namespace {

class Qwen3Tower final : public VisionTower {
 public:
  static StatusOr<std::unique_ptr<VisionTower>> Load(const LoadContext& context);

  Status Check(const ImagePatches& image) const override { return CheckQwenImage(config_, image); }
  int64_t NumTokens(const ImagePatches& image) const override { return MergedRows(config_, image); }
  int64_t num_columns() const override {
    return config_.out_size * (1 + static_cast<int64_t>(deepstack_.size()));
  }
  StatusOr<TowerWork> Begin(const ImagePatches& image, const Tensor& out) override;

 private:
  Qwen3Tower(const LoadContext& context, const TowerShape& shape)
      : backend_(&context.backend), config_(context.config.vision), shape_(shape) {}

  // The table's positions are added to the hidden states.
  void AddPositions(const std::shared_ptr<TowerRun>& run, std::vector<PatchPlace> places,
                    const ImagePatches& image, TowerWork* work) const;
  // The features of that layer, if there are some, in their columns of out.
  void AddDeepstack(int64_t layer_idx, const std::shared_ptr<TowerRun>& run, const Tensor& out,
                    TowerWork* work) const;

  Backend* backend_;
  VisionConfig config_;
  TowerShape shape_;
  LinearLayer patch_projection_;
  OwnedTensor positions_;  // [side * side, H] f32
  std::vector<TowerLayer> layers_;
  PatchMerger merger_;
  std::vector<PatchMerger> deepstack_;  // of config_.deepstack_layers
};

StatusOr<std::unique_ptr<VisionTower>> Qwen3Tower::Load(const LoadContext& context) {
  const VisionConfig& config = context.config.vision;
  ASSIGN_OR_RETURN(const Activation activation, UngatedActivation(config));
  const TowerShape shape = {.hidden = config.hidden_size,
                            .inner = config.intermediate_size,
                            .num_heads = config.num_heads,
                            .norm_epsilon = 1e-6f,
                            .activation = activation};
  const std::string prefix = QwenTowerPrefix(context.weights);
  auto tower = std::unique_ptr<Qwen3Tower>(new Qwen3Tower(context, shape));
  ASSIGN_OR_RETURN(
      tower->patch_projection_,
      LoadPatchProjection(context, prefix + ".patch_embed.proj", config.hidden_size,
                          {3, config.temporal_patch_size, config.patch_size, config.patch_size},
                          /*has_bias=*/true));
  ASSIGN_OR_RETURN(tower->positions_, LoadTable(context, prefix + ".pos_embed.weight",
                                                config.num_positions, config.hidden_size));
  const TowerLayerNames names = {.qkv = {"attn.qkv"},
                                 .out = "attn.proj",
                                 .up = {"mlp.linear_fc1"},
                                 .down = "mlp.linear_fc2",
                                 .norm1 = "norm1",
                                 .norm2 = "norm2"};
  ASSIGN_OR_RETURN(tower->layers_, LoadTowerLayers(context, shape, prefix + ".blocks.", names));
  const auto load_merger = [&](const std::string& name, bool norms_merged) {
    return LoadPatchMerger(context, config, name + ".norm", name + ".linear_fc1",
                           name + ".linear_fc2", norms_merged, /*has_rms_norm=*/false);
  };
  ASSIGN_OR_RETURN(tower->merger_, load_merger(prefix + ".merger", false));
  for (size_t i = 0; i < config.deepstack_layers.size(); ++i) {
    ASSIGN_OR_RETURN(PatchMerger merger,
                     load_merger(prefix + ".deepstack_merger_list." + std::to_string(i), true));
    tower->deepstack_.push_back(std::move(merger));
  }
  return std::unique_ptr<VisionTower>(std::move(tower));
}

StatusOr<TowerWork> Qwen3Tower::Begin(const ImagePatches& image, const Tensor& out) {
  RETURN_IF_ERROR(Check(image));
  std::vector<PatchPlace> places = PlacesOfPatches(image.grid_h, image.grid_w, config_.merge_size);
  const int64_t patches[] = {static_cast<int64_t>(places.size())};
  ASSIGN_OR_RETURN(const auto all, TowerWindows::Create(backend_, config_, patches));
  ASSIGN_OR_RETURN(const std::shared_ptr<TowerRun> run,
                   TowerRun::Create(backend_, shape_, patches[0], all->num_blocks(),
                                    AnglesOf(places, config_.head_dim())));
  const auto residual = [run] { return run->residual(); };
  TowerWork work(backend_->device());
  run->AddEmbedding(image.pixels, patch_projection_, &work);
  AddReport("patch_embed", residual, &work);
  AddPositions(run, std::move(places), image, &work);
  for (int64_t i = 0; i < config_.num_layers; ++i) {
    run->AddLayer(layers_[static_cast<size_t>(i)], all, &work);
    AddDeepstack(i, run, out, &work);
    if (i == 0) AddReport("vit_block0", residual, &work);
  }
  AddReport("vit_last", residual, &work);
  const Tensor rows = out.Columns(0, config_.out_size);
  AddPatchMerger(backend_, merger_, run, shape_.norm_epsilon, rows, &work);
  AddReport(
      "merger", [rows] { return rows; }, &work);
  return work;
}

void Qwen3Tower::AddPositions(const std::shared_ptr<TowerRun>& run, std::vector<PatchPlace> places,
                              const ImagePatches& image, TowerWork* work) const {
  const auto side = std::llround(std::sqrt(static_cast<double>(config_.num_positions)));
  const auto add = [this, run, side, places = std::move(places), h = image.grid_h,
                    w = image.grid_w](int64_t begin, int64_t count) -> Status {
    const auto some =
        std::span(places).subspan(static_cast<size_t>(begin), static_cast<size_t>(count));
    PositionMix mix = MixPositions(side, some, h, w);
    Device& device = backend_->device();
    ASSIGN_OR_RETURN(const OwnedTensor rows,
                     ForOps(&device, Tensor(mix.rows.data(), DType::kI32, {count, 4})));
    ASSIGN_OR_RETURN(const OwnedTensor weights,
                     ForOps(&device, Tensor(mix.weights.data(), DType::kF32, {count, 4})));
    backend_->ops().AddWeightedRows(run->residual().Rows(begin, count), positions_, rows, weights);
    return OkStatus();
  };
  constexpr double kWorkOfNumber = 16;  // of reading four of the table
  work->Add(run->residual().rows(), kWorkOfNumber * static_cast<double>(config_.hidden_size), add);
}

void Qwen3Tower::AddDeepstack(int64_t layer_idx, const std::shared_ptr<TowerRun>& run,
                              const Tensor& out, TowerWork* work) const {
  for (size_t i = 0; i < deepstack_.size(); ++i) {
    if (config_.deepstack_layers[i] != layer_idx) continue;
    const Tensor columns =
        out.Columns((1 + static_cast<int64_t>(i)) * config_.out_size, config_.out_size);
    AddPatchMerger(backend_, deepstack_[i], run, shape_.norm_epsilon, columns, work);
    AddReport(
        "deepstack" + std::to_string(i), [columns] { return columns; }, work);
  }
}

}  // namespace

StatusOr<std::unique_ptr<VisionTower>> LoadQwen3Tower(const LoadContext& context) {
  return Qwen3Tower::Load(context);
}

}  // namespace tandem
