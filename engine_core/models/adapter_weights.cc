#include "engine_core/models/adapter_weights.h"

#include <algorithm>

namespace tandem {

AdapterRows AdapterPicker::Pick(std::span<const int> sites, const Tensor& rows) {
  if (step_.table != nullptr) return OfTable(sites, rows);
  if (step_.adapters.empty()) return {};
  pairs_.clear();
  bool changes = false;
  for (const int site : sites) {
    for (const SharedAdapter& adapter : step_.adapters) {
      pairs_.push_back(site == kNoAdapterSite ? nullptr : adapter->pair(site));
      changes = changes || pairs_.back() != nullptr;
    }
  }
  if (!changes) return {};
  return {.slots = step_.slots, .rows = rows, .pairs = pairs_};
}

// REQUIRES: the sites have equal distances.
AdapterRows AdapterPicker::OfTable(std::span<const int> sites, const Tensor& rows) const {
  const auto changes = [&](const SharedAdapter& adapter) {
    return std::ranges::any_of(sites, [&](int site) { return adapter->pair(site) != nullptr; });
  };
  if (sites[0] == kNoAdapterSite) return {};
  if (!step_.adapters.empty() && std::ranges::none_of(step_.adapters, changes)) return {};
  AdapterRows adapters = {.slots = step_.slots, .rows = rows};
  adapters.table = step_.table;
  adapters.site = sites[0];
  if (sites.size() > 1) adapters.site_stride = sites[1] - sites[0];
  return adapters;
}

}  // namespace tandem
