#include "engine_core/batch_defaults.h"

#include "common/strings.h"

namespace tandem {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

// Large steps make an A100 slower, and a GB10 has the memory but not the units of such a device.
bool IsLarge(const CudaFacts& cuda) {
  const bool is_a100 = ToLower(cuda.name).find("a100") != std::string::npos;
  const bool is_gb10 = cuda.major == 12 && cuda.minor == 1;
  return cuda.memory_bytes >= 160 * kGiB ||
         (cuda.memory_bytes >= 70 * kGiB && !is_a100 && !is_gb10);
}

BatchDefaults Usual(const std::optional<CudaFacts>& cuda, bool offline) {
  if (!cuda) return offline ? BatchDefaults{4096, 256} : BatchDefaults{2048, 128};
  if (cuda->memory_bytes >= 160 * kGiB) return {16384, 1024};
  if (IsLarge(*cuda)) return {offline ? 16384 : 8192, 1024};
  return {offline ? 8192 : 2048, 256};
}

}  // namespace

BatchDefaults BatchDefaultsFor(const std::optional<CudaFacts>& cuda, bool offline,
                               bool prefers_throughput) {
  BatchDefaults defaults = Usual(cuda, offline);
  if (prefers_throughput) {
    defaults.max_num_batched_tokens *= 2;
    defaults.max_num_seqs *= 2;
  }
  return defaults;
}

}  // namespace tandem
