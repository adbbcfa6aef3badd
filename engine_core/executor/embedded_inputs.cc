#include "engine_core/executor/embedded_inputs.h"

#include <algorithm>
#include <cstring>

namespace tandem {
namespace {

template <class T>
T Load(const char* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

void ToFloats(PromptEmbeddings::Type type, std::string_view bytes, float* out) {
  switch (type) {
    case PromptEmbeddings::Type::kFloat32:
      std::memcpy(out, bytes.data(), bytes.size());
      return;
    case PromptEmbeddings::Type::kFloat16:
      for (size_t i = 0; i < bytes.size(); i += 2) {
        *out++ = HalfToFloat(Load<uint16_t>(bytes.data() + i));
      }
      return;
    case PromptEmbeddings::Type::kBfloat16:
      for (size_t i = 0; i < bytes.size(); i += 2) {
        *out++ = ToFloat(Bf16{Load<uint16_t>(bytes.data() + i)});
      }
  }
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
    if (embeddings == nullptr || request.num_computed_tokens >= embeddings->num_rows) continue;
    if (rows_.empty()) device_->WaitFor(sent_);
    const int32_t begin = request.num_computed_tokens;
    const int32_t end = std::min(begin + request.num_scheduled_tokens, embeddings->num_rows);
    const Tensor values = staging_.view().Rows(num_filled, end - begin);
    ToFloats(embeddings->type, embeddings->Rows(begin, end), values.Data<float>());
    rows_.push_back({.first = layout.query_start[r], .values = values});
    num_filled += end - begin;
  }
}

void EmbeddedInputs::SetSent() {
  if (!rows_.empty()) sent_ = device_->SetMark();
}

}  // namespace tandem
