#pragma once

// Recorded logits of tiny models, and ours to compare with them. Thread: the test's.

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine_core/models/registry.h"
#include "engine_core/models/weight_formats.h"
#include "kernels/backend.h"

namespace tandem {

// The model folders of the set `models`, and of the larger set `models2` those whose architecture
// is built; sorted by name.
std::vector<std::string> GoldenModels(const std::string& golden_dir);

// A folder's goldens.json, packed or plain.
nlohmann::json ReadGoldens(const std::string& folder);

// A folder's logits.safetensors, read with a plain reader of the format.
class GoldenLogits {
 public:
  explicit GoldenLogits(const std::string& folder,
                        const std::string& file_name = "logits.safetensors");
  bool Has(const std::string& name) const { return header_.contains(name); }
  std::vector<float> Get(const std::string& name) const;
  std::vector<int64_t> Shape(const std::string& name) const;
  std::string Bytes(const std::string& name) const;

 private:
  std::string bytes_;
  nlohmann::json header_;
  size_t data_begin_ = 0;
};

// The adapter of all positions, packed for the matrices that the model has registered.
using AdapterOf = std::function<SharedAdapter(const AdapterSites& sites, const Backend& backend)>;

// Logits of every position of one prompt, directly from a Model with its own cache. The weights
// come from the folder, or the GGUF file.
std::vector<std::vector<float>> AllLogits(const StatusOr<ModelConfig>& config,
                                          const std::string& folder, int64_t max_positions,
                                          Backend* backend, const std::vector<int32_t>& prompt,
                                          WeightFormats formats = {},
                                          KvFormat kv_format = KvFormat::kCompute,
                                          const AdapterOf& adapter_of = {});

// The same from weights that are open.
std::vector<std::vector<float>> AllLogits(const ModelConfig& config, Weights* weights,
                                          int64_t max_positions, Backend* backend,
                                          const std::vector<int32_t>& prompt,
                                          WeightFormats formats = {},
                                          KvFormat kv_format = KvFormat::kCompute,
                                          const AdapterOf& adapter_of = {});

// Infinity if one of the numbers is NaN.
double MaxDifference(const std::vector<float>& a, const float* b);

}  // namespace tandem
