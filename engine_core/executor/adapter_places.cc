#include "engine_core/executor/adapter_places.h"

#include <algorithm>
#include <utility>

namespace tandem {
namespace {

std::vector<PairShape> ShapesOf(const AdapterSites& sites) {
  std::vector<PairShape> shapes;
  for (const AdapterSite& site : sites.all()) {
    PairShape& shape = shapes.emplace_back();
    shape.is_embedding = site.is_embedding;
    // The rows of an embedding are ids.
    shape.n = site.is_embedding ? site.columns : site.matrix.n;
    shape.k = site.is_embedding ? site.matrix.n : site.columns;
    shape.num_blocks = static_cast<int64_t>(site.parts.size());
  }
  return shapes;
}

// Compared by owner: another adapter may come to lie at the same address.
bool IsSame(const std::weak_ptr<const AdapterWeights>& held, const SharedAdapter& adapter) {
  return !held.owner_before(adapter) && !adapter.owner_before(held);
}

}  // namespace

AdapterPlaces::AdapterPlaces(std::unique_ptr<PairTable> table, const AdapterLimits& limits)
    : table_(std::move(table)),
      places_(static_cast<size_t>(limits.max_in_step)),
      pairs_(limits.sites->all().size()) {
  numbers_.reserve(places_.size());
}

StatusOr<std::unique_ptr<AdapterPlaces>> AdapterPlaces::Create(Backend* backend,
                                                               const AdapterLimits& limits) {
  StatusOr<std::unique_ptr<PairTable>> table =
      backend->MakePairTable(ShapesOf(*limits.sites), limits.max_in_step, limits.max_rank);
  if (!table.ok()) return table.status().WithContext("adapters (--max-loras, --max-lora-rank)");
  if (*table == nullptr) return std::unique_ptr<AdapterPlaces>();
  return std::unique_ptr<AdapterPlaces>(new AdapterPlaces(*std::move(table), limits));
}

void AdapterPlaces::Place(StepLayout* layout) {
  if (layout->adapters.empty()) return;
  CHECK_LE(layout->adapters.size(), places_.size());
  ++step_;
  // Those that are there keep their places.
  for (Held& held : places_) {
    const auto is_held = [&](const SharedAdapter& adapter) {
      return IsSame(held.adapter, adapter);
    };
    if (std::ranges::any_of(layout->adapters, is_held)) held.last_step = step_;
  }
  numbers_.clear();
  for (const SharedAdapter& adapter : layout->adapters) {
    numbers_.push_back(static_cast<int32_t>(PlaceOf(adapter)));
  }
  for (int32_t& number : layout->adapter_of_request) {
    if (number >= 0) number = numbers_[static_cast<size_t>(number)];
  }
}

size_t AdapterPlaces::PlaceOf(const SharedAdapter& adapter) {
  auto found = std::ranges::find_if(
      places_, [&](const Held& held) { return IsSame(held.adapter, adapter); });
  if (found == places_.end()) {
    found = std::ranges::min_element(places_, {}, [](const Held& held) {
      return held.adapter.expired() ? int64_t{-1} : held.last_step;
    });
    for (size_t site = 0; site < pairs_.size(); ++site) {
      pairs_[site] = adapter->pair(static_cast<int>(site));
    }
    table_->Load(found - places_.begin(), pairs_);
    ++num_loads_;
    *found = {.adapter = adapter, .last_step = step_};
  }
  return static_cast<size_t>(found - places_.begin());
}

}  // namespace tandem
