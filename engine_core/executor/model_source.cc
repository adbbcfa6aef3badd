#include "engine_core/executor/model_source.h"

#include <unistd.h>

#include "common/log.h"
#include "engine_core/models/registry.h"
#include "engine_core/weights/open_weights.h"
#include "engine_core/weights/packed_file.h"

namespace tandem {
namespace {

constexpr ReportTimes kBarTimes = {.first_s = 0, .every_s = 0.2};
constexpr ReportTimes kLineTimes = {.first_s = 5, .every_s = 5};

std::vector<MatrixForm> FormsOf(const AdapterSites& sites) {
  std::vector<MatrixForm> forms;
  for (const AdapterSite& site : sites.all()) forms.push_back(site.matrix);
  return forms;
}

}  // namespace

Status ModelSource::Open() {
  if (weights_ != nullptr) return OkStatus();
  ASSIGN_OR_RETURN(
      weights_, OpenWeights(options_.path, options_.load_format, options_.config, options_.seed));
  const PackedFile* const packed = weights_->packed();
  if (packed != nullptr && options_.on_packed) options_.on_packed(packed->parts());
  return OkStatus();
}

// A bar on a terminal. Stages load at the same time, so they have lines.
std::unique_ptr<Weights> ModelSource::ReportingWeights(LoadingBar* bar) {
  const RankPlace place = options_.ranks != nullptr ? options_.ranks->place() : RankPlace();
  const bool has_bar = place.stage.size == 1 && isatty(STDERR_FILENO) == 1;
  return WithProgress(weights_.get(), LayersOf(options_.config, place.stage), &clock_,
                      has_bar ? kBarTimes : kLineTimes, [=](const LoadingState& state) {
                        // All ranks of a stage are about as far as each other.
                        if (!place.share.is_first()) return;
                        if (has_bar) return bar->Draw(state);
                        LOG_INFO << "[startup] weights: " << state.text;
                      });
}

StatusOr<std::unique_ptr<Model>> ModelSource::Load(Backend* backend, AdapterSites* adapter_sites) {
  RETURN_IF_ERROR(Open());
  LoadingBar bar;
  const std::unique_ptr<Weights> reporting = ReportingWeights(&bar);
  LoadContext context = {options_.config, options_.limits, *reporting, *backend, options_.formats};
  context.kv_format = options_.kv_format;
  AdapterSites again;
  context.adapter_sites = adapter_sites == nullptr && !adapted_.empty() ? &again : adapter_sites;
  context.makes_logits = options_.makes_logits;
  if (RankGroup* ranks = options_.ranks; ranks != nullptr) {
    context.stage = ranks->place().stage;
    context.share = ranks->place().share;
    context.splits_experts = options_.splits_experts;
    if (context.share.size > 1) context.ranks = ranks->ExchangeOf(backend);
  }
  ASSIGN_OR_RETURN(std::unique_ptr<Model> model, LoadModel(context));
  if (adapter_sites != nullptr) {
    adapted_ = FormsOf(*adapter_sites);
  } else if (FormsOf(again) != adapted_) {
    return InvalidArgumentError(options_.path + ": its matrices are not stored as those that " +
                                "adapters were loaded for");
  }
  return model;
}

StatusOr<std::unique_ptr<VisionTower>> ModelSource::LoadTower(Backend* backend) {
  RETURN_IF_ERROR(Open());
  const LoadContext context = {options_.config, options_.limits, *weights_, *backend,
                               options_.formats};
  return LoadVisionTower(context);
}

}  // namespace tandem
