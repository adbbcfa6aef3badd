#include "engine_core/executor/token_masks.h"

#include <algorithm>

#include "kernels/sampling_config.h"

namespace tandem {

StatusOr<TokenMasks> TokenMasks::Create(Device* device, int64_t max_masks, int64_t vocab_size) {
  TokenMasks masks;
  masks.device_ = device;
  const int64_t words = TokenMaskWords(vocab_size);
  ASSIGN_OR_RETURN(masks.masks_, device->Allocate(DType::kI32, {max_masks, words}));
  if (device->memory_is_host()) return masks;
  ASSIGN_OR_RETURN(masks.staging_, device->AllocateStaging(DType::kI32, {max_masks, words}));
  return masks;
}

void TokenMasks::Send(std::span<const TokenMask> masks) {
  if (masks.empty()) return;
  const auto count = static_cast<int64_t>(masks.size());
  CHECK_LE(count, masks_.view().rows());
  device_->WaitFor(sent_);
  for (size_t i = 0; i < masks.size(); ++i) {
    CHECK_EQ(static_cast<int64_t>(masks[i].words.size()), masks_.view().row_stride);
    std::ranges::copy(masks[i].words, host().Row<int32_t>(static_cast<int64_t>(i)));
  }
  if (staging_.view().empty()) return;
  device_->StartCopyIn(masks_.view().Rows(0, count), staging_.view().Rows(0, count));
  sent_ = device_->SetMark();
}

std::span<const int32_t> TokenMasks::host_mask(int32_t mask_idx) const {
  return {host().Row<int32_t>(mask_idx), static_cast<size_t>(host().row_stride)};
}

}  // namespace tandem
