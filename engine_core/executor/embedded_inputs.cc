#include "engine_core/executor/embedded_inputs.h"

#include <string_view>

#include "common/check.h"

namespace tandem {
namespace {

DType DTypeOf(PromptEmbeddings::Type type) {
  switch (type) {
    case PromptEmbeddings::Type::kFloat32:
      return DType::kF32;
    case PromptEmbeddings::Type::kFloat16:
      return DType::kF16;
    case PromptEmbeddings::Type::kBfloat16:
      return DType::kBf16;
  }
  CHECK(false) << static_cast<int>(type);
  return DType::kF32;
}

// A view that is only read.
Tensor RowsAt(const PromptEmbeddings& embeddings, std::string_view rows, int32_t num_rows) {
  return Tensor(const_cast<char*>(rows.data()), DTypeOf(embeddings.type),
                {num_rows, embeddings.num_columns});
}

}  // namespace

StatusOr<EmbeddedInputs> EmbeddedInputs::Create(Device* device, int64_t max_tokens,
                                                int64_t hidden_size) {
  EmbeddedInputs inputs;
  inputs.device_ = device;
  ASSIGN_OR_RETURN(inputs.staging_,
                   device->AllocateStaging(DType::kF32, {max_tokens, hidden_size}));
  return inputs;
}

void EmbeddedInputs::Fill(const StepLayout& layout, const InputBatch& batch) {
  rows_.clear();
  int64_t num_filled = 0;
  for (size_t r = 0; r < layout.requests.size(); ++r) {
    const ScheduledRequest& request = layout.requests[r];
    const PromptEmbeddings* embeddings = batch.row(request.slot).embeddings.get();
    if (embeddings == nullptr) continue;
    const int32_t begin = request.num_computed_tokens;
    embeddings->ForEachRun(
        begin, begin + request.num_scheduled_tokens,
        [&](PromptEmbeddings::Run run, std::string_view rows) {
          if (rows_.empty()) device_->WaitFor(sent_);
          const Tensor values = staging_.view().Rows(num_filled, run.num_rows);
          ConvertTensor(values, RowsAt(*embeddings, rows, run.num_rows));
          rows_.push_back({.first = layout.query_start[r] + run.begin - begin, .values = values});
          num_filled += run.num_rows;
        });
  }
}

void EmbeddedInputs::SetSent() {
  if (!rows_.empty()) sent_ = device_->SetMark();
}

}  // namespace tandem
