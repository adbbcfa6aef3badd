#pragma once

// All numbers (i32) that a step tells the device, in one block of memory that is filled on the host
// and travels in one copy. Where each part stands follows from the shape of the step, so ops that
// were captured for a shape find their numbers there whenever a step has that shape again. The
// block table comes last: how wide its rows are moves nothing else.
// Thread: engine loop. Owns: the block, twice where the device has memory of its own.
// Failure: memory, in Create.

#include <cstdint>

#include "common/status.h"
#include "engine_core/executor/step_layout.h"
#include "kernels/backend.h"

namespace tandem {

struct StepShape {
  int64_t num_tokens = 0;
  int64_t num_requests = 0;
  int64_t num_logits_rows = 0;
  int64_t attention_work = 0;  // AttentionPlan::WorkSize
  int64_t table_columns = 0;   // blocks of the request that has most
};

class StepInputs {
 public:
  StepInputs() = default;
  // Room for steps that exceed `most` in nothing.
  static StatusOr<StepInputs> Create(Backend* backend, const StepShape& most);

  struct Views {
    Tensor token_ids;       // [T]
    Tensor positions;       // [T]
    Tensor slots;           // [T]
    Tensor logits_rows;     // [L]
    Tensor sampling_rows;   // [L, kSamplingRowWidth], SamplingRows
    Tensor attention_work;  // [.]
    Tensor block_table;     // [R, table_columns]
  };
  // Lays the next step out; the copy of the one before is done then, and the host may write.
  void Begin(const StepShape& shape);
  const Views& host() const { return host_views_; }
  const Views& device() const { return device_views_; }  // for ops
  // Fills the host's parts from a layout of the shape that was given to Begin; attention_work and
  // sampling_rows are left to those who plan attention and sample.
  void Fill(const StepLayout& layout, const InputBatch& batch);
  // Puts the copy before the next ops.
  void Send();

 private:
  Backend* backend_ = nullptr;
  OwnedTensor device_;
  OwnedTensor host_;  // empty: device_ is the host's
  Views host_views_, device_views_;
  int64_t size_ = 0;  // of this step
  int64_t sent_ = 0;  // mark
};

}  // namespace tandem
