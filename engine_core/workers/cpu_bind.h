#pragma once

// --cpu-bind: the CPUs of each rank, so that its threads stay on one NUMA node and its memory is
// taken there, where the threads that touch it first run. Words as in vLLM's
// VLLM_CPU_OMP_THREADS_BIND: "0-31|32-63", one list for each rank, in their order.
// Thread: main, before others start: threads inherit the CPUs of the one that starts them.
// Failure: INVALID_ARGUMENT with the text, or a CPU that this process may not use.

#include <string>
#include <vector>

#include "common/status.h"

namespace tandem {

// Of each rank; empty for an empty text.
StatusOr<std::vector<std::vector<int>>> ParseCpuBind(const std::string& text, int num_ranks);

Status BindToCpus(const std::vector<int>& cpus);

}  // namespace tandem
