#pragma once

// The most this machine can do: the denominators of every figure about kernels. Measured beside the
// figures, because a shared host's memory bandwidth varies by half from run to run. Bandwidth is
// the best of several tries by wall clock, arithmetic is by thread CPU time.
// Thread: the caller's, which must be idle otherwise. Takes about a second.

#include <string>

namespace tandem {

struct MachineCeilings {
  double read_bytes_per_second = 0;   // from DRAM, all threads
  double bf16_flops_per_second = 0;   // vdpbf16ps; 0 where the CPU has none
  double float_flops_per_second = 0;  // FMA on the widest vectors
  double int8_ops_per_second = 0;     // vpdpbusd; 0 where the CPU has none
};

MachineCeilings MeasureCeilings(int num_threads);
std::string ToString(const MachineCeilings& ceilings);

}  // namespace tandem
