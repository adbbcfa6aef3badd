#pragma once

// All numbers (i32) that a step sends to the device, in one block of memory that the host fills and
// one copy sends. The shape of the step decides where each part starts, so that ops which were
// captured for a shape find their numbers whenever a step has that shape again. The block table
// comes last: the width of its rows moves no other part, but the tables of groups after the first.
// What the plans write for themselves comes first, as no other rank needs it.
// Thread: engine loop. Owns: the block, twice where the device has memory of its own.
// Failure: memory, in Create.

#include <cstdint>
#include <span>

#include "common/status.h"
#include "engine_core/executor/step_layout.h"
#include "kernels/device.h"
#include "kernels/paged_kv.h"

namespace tandem {

struct StepShape {
  int64_t num_tokens = 0;
  int64_t num_requests = 0;
  int64_t num_logits_rows = 0;
  int64_t attention_work = 0;  // AttentionPlan::WorkSize, for each group
  int64_t table_columns = 0;   // blocks of the request with the longest block table
  int64_t num_groups = 1;      // of layers
  bool has_adapters = false;   // some token has one
  bool has_token_types = false;
  bool has_mrope = false;      // of a device's model with M-RoPE and a tower, in each step
  bool has_last_seen = false;  // likewise, in a step whose tokens see keys after them
};

class StepInputs {
 public:
  StepInputs() = default;
  // Room for steps of at most the shape `most`.
  static StatusOr<StepInputs> Create(Device* device, const StepShape& most);

  struct Views {
    Tensor attention_work;   // [groups * attention_work], group after group
    Tensor token_ids;        // [T]
    Tensor positions;        // [T]
    Tensor slots;            // [groups * T], group after group
    Tensor adapters;         // [T], AdapterRows::slots; empty without has_adapters
    Tensor token_types;      // [T], ModelStep::token_types; empty without has_token_types
    Tensor mrope_positions;  // [3, T], ModelStep's; empty without has_mrope
    Tensor last_seen;        // [T], ModelStep's; empty without has_last_seen
    Tensor logits_rows;      // [L]
    Tensor sampling_rows;    // [L, kSamplingRowWidth], SamplingRows
    Tensor block_table;      // [groups * R, table_columns], group after group
  };
  // The numbers of a step of this shape, and the parts that they are cut into.
  static int64_t NumNumbers(const StepShape& shape);
  static Views ViewsOf(const StepShape& shape, int32_t* numbers);
  // Places the parts for a step of this shape. The copy of the step before is done, so the host may
  // write.
  void Begin(const StepShape& shape);
  const StepShape& shape() const { return shape_; }
  const Views& host() const { return host_views_; }
  const Views& device() const { return device_views_; }  // for ops
  // Writes a layout of the shape that Begin was given: all parts but attention_work
  // (PlanAttention's), sampling_rows (StepSampler's) and token_types (Pooler's).
  // numbers_per_block: KvCache's.
  void Fill(const StepLayout& layout, const InputBatch& batch, int64_t numbers_per_block = 1);
  // Writes what numbers() returned at another rank, for a shape that differs in attention_work at
  // most.
  void Take(std::span<const int32_t> numbers);
  // Starts the copy; it is done before the next ops.
  void Send();
  // All numbers of the step but attention_work, on the host.
  std::span<const int32_t> numbers() const;

 private:
  // Block tables, and where the tokens' keys and values go.
  void FillTables(const StepLayout& layout, const InputBatch& batch, int32_t group,
                  int32_t numbers_per_block);
  void FillAdapters(const StepLayout& layout);
  // Of images. Padding is a text.
  void FillMrope(const StepLayout& layout, const InputBatch& batch);
  void FillLastKeys(const StepLayout& layout, const InputBatch& batch);

  Device* device_ = nullptr;
  OwnedTensor numbers_;
  OwnedTensor staging_;  // empty: numbers_ are in the host's memory
  StepShape shape_;
  Views host_views_, device_views_;
  int64_t size_ = 0;       // of this step
  int64_t work_size_ = 0;  // of it, attention_work's
  int64_t sent_ = 0;       // mark
};

// Describes the step to the attention plan of a group's layers, after StepInputs::Fill or Take and
// before Send.
void FillPlan(const StepLengths& lengths, const StepInputs& inputs, AttentionPlan* plan,
              int64_t group = 0);

// What attention takes of them, without the plan's own work.
AttentionBatch AttentionBatchOf(const StepInputs::Views& inputs, const StepLengths& lengths,
                                int64_t group = 0);

}  // namespace tandem
