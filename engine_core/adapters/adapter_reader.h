#pragma once

// Reads a LoRA adapter from a PEFT folder (adapter_config.json, adapter_model.safetensors) and
// packs it for the matrices of a model; of several ranks for the rows, layers and experts that one
// of them has. Everything is checked before anything is packed: each tensor must belong to a module
// that the model has, on this rank or another, with its shape and the rank that the configuration
// names, and come as a pair. Files are read into memory, not mapped: they may change at any time.
// Thread: any one; the model's matrices are only read. Failure: NOT_FOUND for a folder without an
// adapter, else what is wrong with which key or tensor; no partial result.

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "common/status.h"
#include "engine_core/models/adaptable_modules.h"
#include "engine_core/models/adapter_sites.h"
#include "engine_core/models/adapter_weights.h"
#include "kernels/backend.h"

namespace tandem {

struct ReadAdapter {
  SharedAdapter weights;
  // Of the files' bytes: adapters of equal digests are equal.
  uint64_t digest = 0;
  std::string warning = {};  // AdapterConfig::warning
};

class AdapterReader {
 public:
  // Both outlive it.
  AdapterReader(const AdapterSites* sites, const Backend* backend, int64_t max_rank);

  // Those of other ranks, before the first Read: they are checked, and not packed.
  void AddModules(const AdaptableModules& modules);
  // All that an adapter may change.
  const AdaptableModules& modules() const { return modules_; }

  // Of the largest adapter, in the memory of one rank that has a share of each module.
  int64_t max_adapter_bytes() const;
  // `name` is for messages; number: AdapterWeights::number.
  StatusOr<ReadAdapter> Read(const std::string& name, const std::string& folder,
                             int64_t number = 0) const;

 private:
  struct Tensors;

  // The model's name of a module of a file, where it has that module.
  std::optional<std::string> KnownName(std::string_view module) const;
  StatusOr<ReadAdapter> ReadFiles(const std::string& folder, int64_t number) const;
  Status UnknownModule(std::string_view module) const;
  StatusOr<SharedAdapter> Pack(const std::map<std::string, Tensors, std::less<>>& modules,
                               int64_t number) const;
  int64_t MaxFileBytes() const;

  const AdapterSites* sites_;
  const Backend* backend_;
  int64_t max_rank_;
  AdaptableModules modules_;
  std::set<std::string> kinds_;  // the last parts of their names
};

}  // namespace tandem
