#include "engine_core/executor/step_inputs.h"

namespace tandem {
namespace {

constexpr int64_t kAlign = 4;  // numbers; parts start at 16 bytes

// Cuts parts off a block, one after another; of no block, only to know how far they go.
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
  views.token_ids = cutter->Cut({shape.num_tokens});
  views.positions = cutter->Cut({shape.num_tokens});
  views.slots = cutter->Cut({shape.num_tokens});
  views.logits_rows = cutter->Cut({shape.num_logits_rows});
  views.sampling_rows = cutter->Cut({shape.num_logits_rows, kSamplingRowWidth});
  views.attention_work = cutter->Cut({shape.attention_work});
  views.block_table = cutter->Cut({shape.num_requests, shape.table_columns});
  return views;
}

}  // namespace

StatusOr<StepInputs> StepInputs::Create(Backend* backend, const StepShape& most) {
  StepInputs inputs;
  inputs.backend_ = backend;
  Cutter cutter(nullptr);
  CutViews(most, &cutter);
  ASSIGN_OR_RETURN(inputs.device_, backend->Allocate(DType::kI32, {cutter.end()}));
  if (backend->memory_is_host()) return inputs;
  ASSIGN_OR_RETURN(inputs.host_, backend->AllocateStaging(DType::kI32, {cutter.end()}));
  return inputs;
}

void StepInputs::Begin(const StepShape& shape) {
  backend_->WaitFor(sent_);
  Cutter device(device_.view().Data<int32_t>());
  device_views_ = host_views_ = CutViews(shape, &device);
  size_ = device.end();
  CHECK_LE(size_, device_.view().rows());
  if (host_.view().empty()) return;
  Cutter host(host_.view().Data<int32_t>());
  host_views_ = CutViews(shape, &host);
}

void StepInputs::Send() {
  if (host_.view().empty()) return;
  backend_->StartCopyIn(device_.view().Rows(0, size_), host_.view().Rows(0, size_));
  sent_ = backend_->SetMark();
}

}  // namespace tandem
