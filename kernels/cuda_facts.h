#pragma once

// What a CUDA device is, read without opening it. Thread: any.

#include <cstdint>
#include <optional>
#include <string>

namespace tandem {

struct CudaFacts {
  std::string name;  // "NVIDIA H100 80GB HBM3"
  int64_t memory_bytes = 0;
  int major = 0, minor = 0;  // compute capability
};

// Of the first device; nullopt: this build has no CUDA, or the host no device for it.
std::optional<CudaFacts> ReadCudaFacts();

}  // namespace tandem
