#pragma once

// The token masks of one step, where both samplers read them: a tensor at one address, so that a
// captured graph applies the masks of each step. A row of logits names its mask by its number, or
// none; a step without masks copies nothing.
// Thread: engine loop; the compute pool reads rows. Owns: the masks, twice where the device has
// memory of its own. Failure: memory, in Create.

#include <cstdint>
#include <span>

#include "common/status.h"
#include "engine_core/scheduler/scheduler_output.h"
#include "kernels/device.h"

namespace tandem {

class TokenMasks {
 public:
  TokenMasks() = default;
  // Room for max_masks masks in a step.
  static StatusOr<TokenMasks> Create(Device* device, int64_t max_masks, int64_t vocab_size);

  // Copies a step's masks, to the device before the next ops. REQUIRES: TokenMaskWords(vocab_size)
  // words each; host_mask of earlier steps is not read any more.
  void Send(std::span<const TokenMask> masks);

  std::span<const int32_t> host_mask(int32_t mask_idx) const;
  const Tensor& device() const { return masks_.view(); }  // [max_masks, words] i32

 private:
  const Tensor& host() const { return staging_.view().empty() ? masks_.view() : staging_.view(); }

  Device* device_ = nullptr;
  OwnedTensor masks_;
  OwnedTensor staging_;  // empty: masks_ are in the host's memory
  int64_t sent_ = 0;     // mark
};

}  // namespace tandem
