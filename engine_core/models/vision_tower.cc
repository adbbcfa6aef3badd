#include "engine_core/models/vision_tower.h"

#include <numeric>

namespace tandem {

// Each in the file of its name.
using TowerLoader = StatusOr<std::unique_ptr<VisionTower>>(const LoadContext&);
TowerLoader LoadQwen3Tower;

namespace {

struct TowerRow {
  VisionFamily family;
  bool has_mrope;  // the text model turns images' tokens by time, height and width
  TowerLoader* load;
};
constexpr TowerRow kTowers[] = {
    {VisionFamily::kQwen3, true, LoadQwen3Tower},
};

Status CheckSections(const ModelConfig& config) {
  const std::vector<int64_t>& sections = config.rope.sections;
  const int64_t sum = std::accumulate(sections.begin(), sections.end(), int64_t{0});
  if (sum == config.rotary_dim / 2) return OkStatus();
  return InvalidArgumentError(
      "mrope_section of the rope parameters must be three numbers whose "
      "sum is " +
      std::to_string(config.rotary_dim / 2) + ", the pairs that turn; it is " +
      std::to_string(sum));
}

Status CheckPlace(const LoadContext& context) {
  if (!context.backend.device().memory_is_host()) {
    return UnimplementedError("vision towers are not built for this device");
  }
  if (context.share.size > 1 || context.stage.size > 1 || context.ranks != nullptr) {
    return UnimplementedError("vision towers are not built for a model in several ranks");
  }
  return OkStatus();
}

}  // namespace

StatusOr<std::unique_ptr<VisionTower>> LoadVisionTower(const LoadContext& context) {
  const VisionConfig& vision = context.config.vision;
  if (vision.family == VisionFamily::kNone) return std::unique_ptr<VisionTower>();
  for (const TowerRow& row : kTowers) {
    if (row.family != vision.family) continue;
    RETURN_IF_ERROR(CheckPlace(context));
    if (row.has_mrope) RETURN_IF_ERROR(CheckSections(context.config));
    return row.load(context);
  }
  return UnimplementedError("the model's vision tower is not built");
}

}  // namespace tandem
