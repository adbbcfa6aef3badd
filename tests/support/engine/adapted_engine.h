#pragma once

// An EngineDriver with LoRA adapters of random numbers for its model, read from folders.
// Thread: the test's own.

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine_core/adapters/adapter_reader.h"
#include "tests/support/dice.h"
#include "tests/support/engine/engine_driver.h"
#include "tests/support/files/adapter_folder.h"

#include <catch2/catch.hpp>

namespace tandem {

inline constexpr int kNumTestAdapters = 3;

// Of all matrices of the model, or of half of them.
inline std::vector<FileTensor> PairsOfModel(const AdapterSites& sites, bool all, int64_t rank,
                                            Dice* dice, uint64_t seed) {
  std::vector<ModuleShape> modules;
  std::vector<FileTensor> embeddings;
  std::set<std::string> seen;  // rows of one module may lie in several parts
  for (const AdapterSite& site : sites.all()) {
    for (const AdapterSite::Part& part : site.parts) {
      if (!seen.insert(part.module).second) continue;
      if (!all && dice->Roll(0, 1) == 0) continue;
      if (!site.is_embedding) {
        modules.push_back({part.module, part.module_rows, site.columns});
        continue;
      }
      embeddings.push_back(
          RandomTensor(part.module + ".lora_embedding_A", {rank, part.module_rows}, seed));
      embeddings.push_back(
          RandomTensor(part.module + ".lora_embedding_B", {site.columns, rank}, seed + 1));
    }
  }
  std::vector<FileTensor> tensors = RandomPairs(modules, rank, seed);
  tensors.insert(tensors.end(), embeddings.begin(), embeddings.end());
  return tensors;
}

// By all ranks of the driver, each of which packs its part. number: AdapterWeights::number.
inline ReadAdapter ReadOnAllRanks(const AdapterSites& sites, EngineDriver* driver,
                                  const std::string& folder, AdapterId number, int64_t max_rank) {
  AdapterReader reader(&sites, &driver->runner().backend(), max_rank);
  for (const auto& rank : driver->other_ranks()) reader.AddModules(ModulesOf(rank->sites));
  StatusOr<ReadAdapter> adapter = reader.Read("x", folder, number);
  INFO(folder << ": " << adapter.status().ToString());
  REQUIRE(adapter.ok());
  for (const auto& rank : driver->other_ranks()) {
    AdapterReader of_rank(&rank->sites, rank->backend, max_rank);
    of_rank.AddModules(reader.modules());
    const StatusOr<ReadAdapter> part = of_rank.Read("x", folder, number);
    REQUIRE(part.ok());
    CHECK(part->digest == adapter->digest);
    rank->adapters.Add(number, part->weights);
  }
  return *std::move(adapter);
}

// Number 0 of its adapters is none, number 1 has pairs for all matrices. Equal seeds make equal
// adapters, over one rank.
class AdaptedEngine {
 public:
  AdaptedEngine(EngineDriverOptions options, uint64_t seed) {
    Start(&options);
    Dice dice(seed);
    for (AdapterId id = 1; id <= kNumTestAdapters; ++id) {
      const int64_t rank = dice.Roll(1, 16);
      WriteAdapter(folder_, NameOf(id), AdapterConfigText(rank, 2.0 * static_cast<double>(rank)),
                   PairsOfModel(sites_, id == 1, rank, &dice, seed + id));
      Read(id, folder_.PathOf(NameOf(id)), options.max_lora_rank);
    }
  }
  // With the adapters of another one.
  AdaptedEngine(EngineDriverOptions options, const AdaptedEngine& other) {
    Start(&options);
    for (AdapterId id = 1; id <= kNumTestAdapters; ++id) {
      Read(id, other.folder_.PathOf(NameOf(id)), options.max_lora_rank);
    }
  }

  size_t num_modules() const { return ModulesOf(sites_).size(); }

 private:
  static std::string NameOf(AdapterId id) { return "adapter-" + std::to_string(id); }
  void Start(EngineDriverOptions* options) {
    options->adapter_sites = &sites_;
    driver.emplace(*options);
    adapters.emplace_back();
  }
  void Read(AdapterId id, const std::string& folder, int64_t max_rank) {
    const ReadAdapter adapter = ReadOnAllRanks(sites_, &*driver, folder, id, max_rank);
    adapters.push_back({.id = id,
                        .name = NameOf(id),
                        .path = NameOf(id),
                        .digest = adapter.digest,
                        .weights = adapter.weights});
  }

  TempFolder folder_;
  AdapterSites sites_;

 public:
  std::optional<EngineDriver> driver;
  std::vector<Adapter> adapters;
};

}  // namespace tandem
