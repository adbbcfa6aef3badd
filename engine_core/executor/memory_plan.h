#pragma once

// What a model will need memory for under given limits, worked out from its config before anything
// is loaded: a first check that it can fit at all, the part of it that a KV cache on the host has
// to leave, and the text of an error. Close to what is taken then, and rather too little: a padded
// row or a norm is not counted. Thread: any; values. Units: bytes.

#include <cstdint>
#include <string>

#include "common/status.h"
#include "engine_core/executor/executor.h"
#include "engine_core/executor/kv_cache_size.h"
#include "engine_core/models/weight_formats.h"
#include "engine_core/weights/model_config.h"
#include "kernels/tensor.h"

namespace tandem {

struct MemoryPlanInput {
  DType dtype = DType::kBf16;  // what is computed in
  WeightFormats formats = {};
  int64_t kv_bytes_per_block = 0;
  bool is_device = false;  // memory of its own; integers are not kept there
};

struct MemoryPlan {
  bool is_device = false;
  ExecutorLimits limits = {};
  int64_t weights = 0;
  int64_t rope = 0;             // angles of max_model_len positions
  int64_t activations = 0;      // of a step of max_num_batched_tokens
  int64_t logits = 0;           // of max_num_seqs requests, or fewer at a time
  int64_t token_counts = 0;     // when that many requests have penalties
  int64_t kv_of_a_request = 0;  // of max_model_len tokens

  // Beside weights, angles and KV cache. Memory that is first touched by a step of that size.
  int64_t step_bytes() const { return activations + logits + token_counts; }
};

MemoryPlan PlanMemory(const ModelConfig& config, const ExecutorLimits& limits,
                      const MemoryPlanInput& input);

// What a KV cache on the host is sized by, once the weights are there and no step has run.
HostMemory LessStep(HostMemory memory, const MemoryPlan& plan);

// ResourceExhausted when not even the weights and a step without penalties fit into all the memory
// there is: on a host all of that is memory of the process, which the kernel cannot take back when
// a limit is met. The checkpoint is not counted: its pages are a file's and are dropped for others.
Status CheckFits(const MemoryPlan& plan, const HostMemory& memory);

// What there is, what it is needed for and which flags change that, a line each.
std::string MemoryAdvice(const MemoryPlan& plan, const HostMemory& memory);

// A ResourceExhausted status with that advice behind its message; others as they are.
Status WithMemoryAdvice(const Status& status, const MemoryPlan& plan, const HostMemory& memory);

}  // namespace tandem
