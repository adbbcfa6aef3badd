#pragma once

// How much memory a model will need under given limits, computed from its config before anything is
// loaded: for a first check that it fits, for the part that a KV cache on the host must leave, and
// for the text of errors. An estimate that is slightly low: padded rows and norms are not counted.
// Thread: any; values. Units: bytes.

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
  DType dtype = DType::kBf16;  // compute type
  WeightFormats formats = {};
  int64_t kv_bytes_per_block = 0;
  bool is_device = false;  // memory of its own; keeps no integer weights
  int num_shares = 1;      // of the model, of which the memory holds one
};

struct MemoryPlan {
  bool is_device = false;
  ExecutorLimits limits = {};
  int64_t weights = 0;
  int64_t rope = 0;             // cosines and sines of max_model_len positions
  int64_t activations = 0;      // of a step of max_num_batched_tokens
  int64_t logits = 0;           // of the rows that are made at a time
  int64_t token_counts = 0;     // when all max_num_seqs requests have penalties
  int64_t kv_of_a_request = 0;  // of max_model_len tokens
  // Of a model that takes images: its tower, the rows of images that are kept, and what computing
  // an image of as many rows takes.
  int64_t tower = 0;
  int64_t image_rows = 0;
  int64_t image_activations = 0;

  // A second model that runs under the same limits; its keys and values lie in the same blocks, and
  // are counted already.
  void AddDrafter(const MemoryPlan& drafter) {
    weights += drafter.weights;
    rope += drafter.rope;
    activations += drafter.activations;
    logits += drafter.logits;
  }

  int64_t image_bytes() const { return image_rows + image_activations; }
  // Without weights, angles and KV cache: memory that the first step of that size touches.
  int64_t step_bytes() const { return activations + logits + token_counts + image_bytes(); }
  // Of it, what is not taken yet when the size of the KV cache is chosen: a device has run steps by
  // then, but without images.
  int64_t later_bytes() const { return is_device ? image_bytes() : step_bytes(); }
};

MemoryPlan PlanMemory(const ModelConfig& config, const ExecutorLimits& limits,
                      const MemoryPlanInput& input);

// The memory left for a KV cache, once weights are loaded; of a device, once its steps have run.
HostMemory LessStep(HostMemory memory, const MemoryPlan& plan);

// ResourceExhausted when weights and a step without penalties exceed all the memory there is: on a
// host that is memory of the process, which the kernel cannot reclaim when a limit is reached. The
// checkpoint is not counted: the kernel drops pages of a mapped file when others need memory.
Status CheckFits(const MemoryPlan& plan, const HostMemory& memory);

// A line each: the memory there is, every need, and the flag that changes it.
std::string MemoryAdvice(const MemoryPlan& plan, const HostMemory& memory);

// Appends that advice to the message of a ResourceExhausted status; other statuses are unchanged.
Status WithMemoryAdvice(const Status& status, const MemoryPlan& plan, const HostMemory& memory);

}  // namespace tandem
