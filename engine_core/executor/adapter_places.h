#pragma once

// Which adapters are in the memory of a device whose ops cannot read the host's: as many as may run
// in one step, each in a place of the backend's PairTable. An adapter that a step needs and that is
// not there takes the place of the one that was used longest ago.
// Thread: engine loop. Owns: the table. Adapters may go away meanwhile; their places are free then.
// Failure: memory, in Create.

#include <cstdint>
#include <memory>
#include <vector>

#include "common/status.h"
#include "engine_core/executor/step_layout.h"
#include "engine_core/models/adapter_sites.h"
#include "engine_core/models/adapter_weights.h"
#include "kernels/backend.h"

namespace tandem {

// What the adapters of a model may be like.
struct AdapterLimits {
  const AdapterSites* sites = nullptr;  // null: there are none; until Create has returned
  int64_t max_rank = 0;
  int32_t max_in_step = 0;
};

class AdapterPlaces {
 public:
  // Null where ops read adapters in place.
  static StatusOr<std::unique_ptr<AdapterPlaces>> Create(Backend* backend,
                                                         const AdapterLimits& limits);
  AdapterPlaces(std::unique_ptr<PairTable> table, const AdapterLimits& limits);

  const PairTable* table() const { return table_.get(); }
  // Brings the step's adapters into places, whose numbers become those of the layout. Waits for the
  // steps before where one comes in. REQUIRES: at most max_in_step adapters.
  void Place(StepLayout* layout);
  int64_t num_loads() const { return num_loads_; }

 private:
  struct Held {
    std::weak_ptr<const AdapterWeights> adapter;
    int64_t last_step = 0;
  };

  size_t PlaceOf(const SharedAdapter& adapter);

  std::unique_ptr<PairTable> table_;
  std::vector<Held> places_;
  std::vector<const PackedPair*> pairs_;  // of an adapter, by site
  std::vector<int32_t> numbers_;          // of the step's adapters
  int64_t step_ = 0;
  int64_t num_loads_ = 0;
};

}  // namespace tandem
