#pragma once

// PEFT folders made by a test: their two files, and adapters of random numbers for a model.
// Thread: the test's own.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/files/temp_folder.h"

namespace tandem {

struct FileTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::string dtype = "F32";
  std::string bytes = {};  // empty: zeros
};

// The bytes of a safetensors file.
std::string SafetensorsBytes(const std::vector<FileTensor>& tensors);

// Small numbers from the seed, as F32.
FileTensor RandomTensor(std::string name, std::vector<int64_t> shape, uint64_t seed,
                        float scale = 0.2f);

// lora_A and lora_B of modules, given as (name, rows, columns).
struct ModuleShape {
  std::string name;
  int64_t rows = 0, columns = 0;
};
std::vector<FileTensor> RandomPairs(const std::vector<ModuleShape>& modules, int64_t rank,
                                    uint64_t seed);

// {"r": rank, "lora_alpha": alpha, "target_modules": [], more keys}
std::string AdapterConfigText(int64_t rank, double alpha, const std::string& more = "");

void WriteAdapter(const TempFolder& folder, const std::string& name, const std::string& config,
                  const std::vector<FileTensor>& tensors);

}  // namespace tandem
