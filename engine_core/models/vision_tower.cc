#include "engine_core/models/vision_tower.h"

#include <numeric>

namespace tandem {

// Each in the file of its name.
using TowerLoader = StatusOr<std::unique_ptr<VisionTower>>(const LoadContext&);
TowerLoader LoadQwen25Tower, LoadQwen3Tower, LoadSiglipTower;

namespace {

struct TowerRow {
  VisionFamily family;
  bool has_mrope;  // the text model turns images' tokens by time, height and width
  TowerLoader* load;
};
constexpr TowerRow kTowers[] = {
    {VisionFamily::kQwen25, true, LoadQwen25Tower},
    {VisionFamily::kQwen3, true, LoadQwen3Tower},
    {VisionFamily::kSiglip, false, LoadSiglipTower},
};

// Whether the text model takes what the tower makes.
Status CheckMeeting(const ModelConfig& config) {
  if (config.vision.out_size != config.hidden_size) {
    return InvalidArgumentError("out_hidden_size " + std::to_string(config.vision.out_size) +
                                " of vision_config must be the text model's hidden_size " +
                                std::to_string(config.hidden_size));
  }
  const auto num_levels = static_cast<int64_t>(config.vision.deepstack_layers.size());
  if (num_levels > config.num_layers) {
    return InvalidArgumentError("deepstack_visual_indexes of vision_config are " +
                                std::to_string(num_levels) + " for a text model of " +
                                std::to_string(config.num_layers) + " layers");
  }

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
    if (row.has_mrope) RETURN_IF_ERROR(CheckMeeting(context.config));
    return row.load(context);
  }
  return UnimplementedError("the model's vision tower is not built");
}

}  // namespace tandem
