#include "engine_core/models/adapter_weights.h"

namespace tandem {

AdapterRows AdapterPicker::Pick(std::span<const int> sites, const Tensor& rows) {
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

}  // namespace tandem
