#pragma once

// What a LoRA adapter adds to the matrices of one model, and the adapters of a step as its model
// sees them.
// Thread: made by the thread that loads an adapter, read by the engine loop. Ownership: requests
// share the weights of their adapter; they go away before the model's backend.

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "engine_core/models/adapter_sites.h"
#include "kernels/adapter_pair.h"

namespace tandem {

class AdapterWeights {
 public:
  // pairs: by site; null: the adapter leaves that matrix as it is. number: of this load of an
  // adapter, by which other ranks know their parts of it.
  explicit AdapterWeights(std::vector<std::unique_ptr<PackedPair>> pairs, int64_t number = 0)
      : pairs_(std::move(pairs)), number_(number) {}

  const PackedPair* pair(int site) const { return pairs_[static_cast<size_t>(site)].get(); }
  int64_t number() const { return number_; }
  int64_t num_bytes() const {
    int64_t sum = 0;
    for (const auto& pair : pairs_) sum += pair == nullptr ? 0 : pair->num_bytes();
    return sum;
  }

 private:
  std::vector<std::unique_ptr<PackedPair>> pairs_;
  int64_t number_;
};

using SharedAdapter = std::shared_ptr<const AdapterWeights>;

// The adapters of a step.
struct StepAdapters {
  Tensor slots = {};  // [T] i32: of each token, into `adapters`; -1: none
  std::span<const SharedAdapter> adapters = {};
  // Where a device has a table: slots are its places. Without adapters the ops are for any that
  // come later, as a graph's are.
  const PairTable* table = nullptr;
};

// The pairs that the ops of a step need. Owns the list that an AdapterRows names, until the next.
class AdapterPicker {
 public:
  // Its adapters live until the next step; null: none.
  void Begin(const StepAdapters* step) { step_ = step == nullptr ? StepAdapters() : *step; }

  // The rows of an op on the matrix of that site. Empty: no adapter of the step changes it.
  // rows: the token of each of the op's rows; empty: all tokens.
  AdapterRows Pick(int site, const Tensor& rows = {}) { return Pick(std::span(&site, 1), rows); }
  // The same for several matrices, one after another.
  AdapterRows Pick(std::span<const int> sites, const Tensor& rows);

 private:
  AdapterRows OfTable(std::span<const int> sites, const Tensor& rows) const;

  StepAdapters step_;
  std::vector<const PackedPair*> pairs_;
};

}  // namespace tandem
