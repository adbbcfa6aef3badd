#pragma once

// The adapters of a rank other than the engine core's, by the numbers that the engine core knows
// them by (AdapterWeights::number). Their pairs are of the rank's own rows.
// Thread: Add and Remove any; Of the rank's loop, which takes in what was added before it. Owns:
// the weights, until they are removed and no step has them.

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "common/mailbox.h"
#include "engine_core/models/adapter_weights.h"

namespace tandem {

class RankAdapters {
 public:
  void Add(int64_t number, SharedAdapter adapter) { changes_.Push({number, std::move(adapter)}); }
  void Remove(int64_t number) { changes_.Push({number, nullptr}); }

  // Those of a step, valid until the next call.  REQUIRES: they were added and not removed.
  std::span<const SharedAdapter> Of(std::span<const int64_t> numbers);

 private:
  struct Change {
    int64_t number = 0;
    SharedAdapter adapter;  // null: it is removed
  };

  Mailbox<Change> changes_;
  std::vector<Change> new_changes_;
  std::map<int64_t, SharedAdapter> adapters_;
  std::vector<SharedAdapter> of_step_;
};

}  // namespace tandem
