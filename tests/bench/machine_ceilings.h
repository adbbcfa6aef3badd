#pragma once

// The most this machine can do: the denominators of every figure about kernels. Measured beside the
// figures, because a shared host's memory bandwidth varies by half from run to run. Bandwidth is
// the best of several tries by wall clock, arithmetic is by thread CPU time.
// Thread: the caller's, which must be idle otherwise. Takes about a second.

#include <string>

#include "kernels/backend.h"

namespace tandem {

struct MachineCeilings {
  double read_bytes_per_second = 0;   // from DRAM, all threads
  double bf16_flops_per_second = 0;   // of tiles, else vdpbf16ps; 0 where the CPU has none
  double float_flops_per_second = 0;  // FMA on the widest vectors
  double int8_ops_per_second = 0;     // of tiles, else vpdpbusd; 0 where the CPU has none
  // Where the CPU has tiles, its vectors beside them; else 0.
  double vector_bf16_flops_per_second = 0;
  double vector_int8_ops_per_second = 0;
};

MachineCeilings MeasureCeilings(int num_threads);
// The instruction set that TANDEM_BENCH_ISA names, else the best of this CPU.
CpuIsa BenchIsa();
std::string ToString(const MachineCeilings& ceilings);

}  // namespace tandem
