#include "engine_core/executor/step_inputs.h"

#include <algorithm>

#include "engine_core/executor/last_seen.h"
#include "engine_core/executor/mrope_positions.h"
#include "kernels/device_sampler.h"

namespace tandem {
namespace {

constexpr int64_t kAlign = 4;  // numbers; parts start at 16 bytes

// Cuts parts off a block, one after another; without a block it only measures them.
class Cutter {
 public:
  explicit Cutter(int32_t* block) : block_(block) {}
  Tensor Cut(std::initializer_list<int64_t> shape) {
    const Tensor part(block_ == nullptr ? nullptr : block_ + end_, DType::kI32, shape);
    end_ += (part.NumElements() + kAlign - 1) / kAlign * kAlign;
    return part;
  }
  int64_t end() const { return end_; }

 private:
  int32_t* block_;
  int64_t end_ = 0;
};

StepInputs::Views CutViews(const StepShape& shape, Cutter* cutter) {
  StepInputs::Views views;
  views.attention_work = cutter->Cut({shape.num_groups * shape.attention_work});
  views.token_ids = cutter->Cut({shape.num_tokens});
  views.positions = cutter->Cut({shape.num_tokens});
  views.slots = cutter->Cut({shape.num_groups * shape.num_tokens});
  if (shape.has_adapters) views.adapters = cutter->Cut({shape.num_tokens});
  if (shape.has_token_types) views.token_types = cutter->Cut({shape.num_tokens});
  if (shape.has_mrope) views.mrope_positions = cutter->Cut({3, shape.num_tokens});
  if (shape.has_last_seen) views.last_seen = cutter->Cut({shape.num_tokens});
  views.logits_rows = cutter->Cut({shape.num_logits_rows});
  views.sampling_rows = cutter->Cut({shape.num_logits_rows, kSamplingRowWidth});
  views.block_table = cutter->Cut({shape.num_groups * shape.num_requests, shape.table_columns});
  return views;
}

}  // namespace

int64_t StepInputs::NumNumbers(const StepShape& shape) {
  Cutter cutter(nullptr);
  CutViews(shape, &cutter);
  return cutter.end();
}

StepInputs::Views StepInputs::ViewsOf(const StepShape& shape, int32_t* numbers) {
  Cutter cutter(numbers);
  return CutViews(shape, &cutter);
}

std::span<const int32_t> StepInputs::numbers() const {
  return {host_views_.token_ids.Data<int32_t>(), static_cast<size_t>(size_ - work_size_)};
}

StatusOr<StepInputs> StepInputs::Create(Device* device, const StepShape& most) {
  StepInputs inputs;
  inputs.device_ = device;
  const int64_t size = NumNumbers(most);
  ASSIGN_OR_RETURN(inputs.numbers_, device->Allocate(DType::kI32, {size}));
  if (device->memory_is_host()) return inputs;
  ASSIGN_OR_RETURN(inputs.staging_, device->AllocateStaging(DType::kI32, {size}));
  return inputs;
}

void StepInputs::Begin(const StepShape& shape) {
  device_->WaitFor(sent_);
  shape_ = shape;
  Cutter numbers(numbers_.view().Data<int32_t>());
  device_views_ = host_views_ = CutViews(shape, &numbers);
  size_ = numbers.end();
  work_size_ = host_views_.token_ids.Data<int32_t>() - numbers_.view().Data<int32_t>();
  CHECK_LE(size_, numbers_.view().rows());
  if (staging_.view().empty()) return;
  Cutter staging(staging_.view().Data<int32_t>());
  host_views_ = CutViews(shape, &staging);
}

void StepInputs::Fill(const StepLayout& layout, const InputBatch& batch,
                      int64_t numbers_per_block) {
  auto* token_ids = host_views_.token_ids.Data<int32_t>();
  auto* positions = host_views_.positions.Data<int32_t>();
  int32_t t = 0;
  for (const ScheduledRequest& request : layout.requests) {
    const std::span<const TokenId> tokens = batch.input_ids(request.slot);
    const int32_t begin = request.num_computed_tokens;
    for (int32_t p = begin; p < begin + request.num_scheduled_tokens; ++p, ++t) {
      token_ids[t] = tokens[static_cast<size_t>(p)];
      positions[t] = p;
    }
  }
  for (auto r = static_cast<int64_t>(layout.requests.size()); r < layout.num_requests(); ++r) {
    const int32_t count = layout.context_len[static_cast<size_t>(r)];
    for (int32_t p = 0; p < count; ++p, ++t) {
      token_ids[t] = 0;
      positions[t] = p;
    }
  }
  for (int32_t group = 0; group < shape_.num_groups; ++group) {
    FillTables(layout, batch, group, static_cast<int32_t>(numbers_per_block));
  }
  if (shape_.has_adapters) FillAdapters(layout);
  if (shape_.has_mrope) FillMrope(layout, batch);
  if (shape_.has_last_seen) FillLastKeys(layout, batch);
  auto* logits_rows = host_views_.logits_rows.Data<int32_t>();
  for (const LogitsRow& row : layout.logits_rows) *logits_rows++ = row.token_row;
  for (auto i = static_cast<int32_t>(layout.logits_rows.size()); i < layout.num_logits_rows();
       ++i) {
    *logits_rows++ = i;
  }
}

void StepInputs::FillTables(const StepLayout& layout, const InputBatch& batch, int32_t group,
                            int32_t numbers_per_block) {
  const int32_t block_size = batch.limits().block_size;
  int32_t* slot = host_views_.slots.Data<int32_t>() + group * shape_.num_tokens;
  int64_t r = group * shape_.num_requests;
  for (const ScheduledRequest& request : layout.requests) {
    auto* const blocks = host_views_.block_table.Row<int32_t>(r++);
    std::ranges::transform(batch.block_table(request.slot, group), blocks,
                           [=](int32_t block) { return block * numbers_per_block; });
    const int32_t begin = request.num_computed_tokens;
    for (int32_t p = begin; p < begin + request.num_scheduled_tokens; ++p) {
      *slot++ = blocks[p / block_size] * block_size + p % block_size;
    }
  }
  // Padding sees the null block, and is written nowhere.
  for (size_t i = layout.requests.size(); i < layout.context_len.size(); ++i) {
    const int32_t count = layout.context_len[i];
    std::fill_n(host_views_.block_table.Row<int32_t>(r++), (count + block_size - 1) / block_size,
                0);
    slot = std::fill_n(slot, count, -1);
  }
}

void StepInputs::Take(std::span<const int32_t> numbers) {
  CHECK_EQ(static_cast<int64_t>(numbers.size()), size_ - work_size_);
  std::ranges::copy(numbers, host_views_.token_ids.Data<int32_t>());
}

void StepInputs::FillAdapters(const StepLayout& layout) {
  auto* adapters = host_views_.adapters.Data<int32_t>();
  std::fill_n(adapters, layout.num_tokens(), -1);
  for (size_t r = 0; r < layout.requests.size(); ++r) {
    std::fill(adapters + layout.query_start[r], adapters + layout.query_start[r + 1],
              layout.adapter_of_request[r]);
  }
}

void StepInputs::FillMrope(const StepLayout& layout, const InputBatch& batch) {
  const int32_t merge_size = batch.limits().images->merge_size;
  const auto part = [&](int64_t axis, int32_t begin, int32_t end) {
    return std::span(host_views_.mrope_positions.Row<int32_t>(axis) + begin,
                     static_cast<size_t>(end - begin));
  };
  for (size_t r = 0; r < layout.context_len.size(); ++r) {
    const bool is_padding = r >= layout.requests.size();
    const RequestImages* images =
        is_padding ? nullptr : batch.row(layout.requests[r].slot).images.get();
    const int32_t begin = layout.query_start[r], end = layout.query_start[r + 1];
    FillMropePositions(images, merge_size, is_padding ? 0 : layout.requests[r].num_computed_tokens,
                       {part(0, begin, end), part(1, begin, end), part(2, begin, end)});
  }
}

void StepInputs::FillLastKeys(const StepLayout& layout, const InputBatch& batch) {
  auto* last = host_views_.last_seen.Data<int32_t>();
  std::fill_n(last, layout.num_tokens(), 0);  // also of padding
  for (size_t r = 0; r < layout.requests.size(); ++r) {
    const ScheduledRequest& request = layout.requests[r];
    FillLastSeen(batch.row(request.slot).images.get(), request.num_computed_tokens,
                 {last + layout.query_start[r], static_cast<size_t>(request.num_scheduled_tokens)});
  }
}

void FillPlan(const StepLengths& lengths, const StepInputs& inputs, AttentionPlan* plan,
              int64_t group) {
  const StepInputs::Views &host = inputs.host(), &device = inputs.device();
  AttentionBatch attention = AttentionBatchOf(device, lengths, group);
  const int64_t work = inputs.shape().attention_work;
  if (work > 0) {
    attention.host_work = host.attention_work.Rows(group * work, work);
    attention.work = device.attention_work.Rows(group * work, work);
  }
  const AttentionBatch copies = AttentionBatchOf(host, lengths, group);
  attention.host_slot_mapping = copies.slot_mapping;
  attention.host_block_table = copies.block_table;
  plan->Fill(attention);
}

void StepInputs::Send() {
  if (staging_.view().empty()) return;
  device_->StartCopyIn(numbers_.view().Rows(0, size_), staging_.view().Rows(0, size_));
  sent_ = device_->SetMark();
}

AttentionBatch AttentionBatchOf(const StepInputs::Views& inputs, const StepLengths& lengths,
                                int64_t group) {
  const int64_t num_tokens = inputs.positions.rows();
  const auto num_requests = static_cast<int64_t>(lengths.context_len.size());
  AttentionBatch batch;
  batch.query_start = lengths.query_start;
  batch.context_len = lengths.context_len;
  batch.num_drafts = lengths.num_drafts;
  batch.positions = inputs.positions;
  batch.slot_mapping = inputs.slots.Rows(group * num_tokens, num_tokens);
  batch.block_table = inputs.block_table.Rows(group * num_requests, num_requests);
  return batch;
}

}  // namespace tandem
