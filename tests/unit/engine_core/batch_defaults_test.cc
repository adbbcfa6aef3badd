#include "engine_core/batch_defaults.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

std::pair<int64_t, int64_t> Defaults(const std::optional<CudaFacts>& cuda, bool offline = false,
                                     bool throughput = false) {
  const BatchDefaults defaults = BatchDefaultsFor(cuda, offline, throughput);
  return {defaults.max_num_batched_tokens, defaults.max_num_seqs};
}

TEST_CASE("batch defaults: by device, as vLLM's table has them") {
  using Pair = std::pair<int64_t, int64_t>;
  CHECK(Defaults({}) == Pair{2048, 128});
  CHECK(Defaults({}, true) == Pair{4096, 256});
  const CudaFacts l4 = {"NVIDIA L4", 22 * kGiB, 8, 9};
  CHECK(Defaults(l4) == Pair{2048, 256});
  CHECK(Defaults(l4, true) == Pair{8192, 256});
  const CudaFacts h200 = {"NVIDIA H200", 139 * kGiB, 9, 0};
  CHECK(Defaults(h200) == Pair{8192, 1024});
  CHECK(Defaults(h200, true) == Pair{16384, 1024});
  const CudaFacts b200 = {"NVIDIA B200", 178 * kGiB, 10, 0};
  CHECK(Defaults(b200) == Pair{16384, 1024});
  CHECK(Defaults(b200, true) == Pair{16384, 1024});
  // Memory of the large class without its units.
  CHECK(Defaults(CudaFacts{"NVIDIA A100-SXM4-80GB", 79 * kGiB, 8, 0}) == Pair{2048, 256});
  CHECK(Defaults(CudaFacts{"NVIDIA GB10", 119 * kGiB, 12, 1}) == Pair{2048, 256});
  CHECK(Defaults(CudaFacts()) == Pair{2048, 256});  // nothing could be read
}

TEST_CASE("batch defaults: throughput doubles both") {
  CHECK(Defaults({}, false, true) == std::pair<int64_t, int64_t>{4096, 256});
}

}  // namespace
}  // namespace tandem
