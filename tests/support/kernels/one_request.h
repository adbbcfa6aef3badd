#pragma once

// The attention batch of one request whose whole prompt runs in one step. Thread: the test's. Owns
// the memory of the batch, the host's or that of the device, if one is given, which must outlive
// it. Blocks have block_size tokens each, in the given order.

#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "kernels/device.h"
#include "kernels/paged_kv.h"
#include "kernels/tensor.h"

namespace tandem {

class OneRequest {
 public:
  OneRequest(int32_t num_tokens, int32_t block_size, std::vector<int32_t> blocks,
             Device* device = nullptr)
      : query_start_{0, num_tokens},
        context_len_{num_tokens},
        positions_(static_cast<size_t>(num_tokens)),
        blocks_(std::move(blocks)) {
    std::iota(positions_.begin(), positions_.end(), 0);
    for (const int32_t p : positions_) {
      slots_.push_back(blocks_[static_cast<size_t>(p / block_size)] * block_size + p % block_size);
    }
    const auto num_blocks = static_cast<int64_t>(blocks_.size());
    batch_.query_start = query_start_;
    batch_.context_len = context_len_;
    batch_.positions = Tensor(positions_.data(), DType::kI32, {num_tokens});
    batch_.slot_mapping = Tensor(slots_.data(), DType::kI32, {num_tokens});
    batch_.block_table = Tensor(blocks_.data(), DType::kI32, {1, num_blocks});
    if (device == nullptr) return;
    for (Tensor* tensor : {&batch_.positions, &batch_.slot_mapping, &batch_.block_table}) {
      *tensor = on_device_.emplace_back(device->Upload(*tensor, DType::kI32).value());
    }
  }
  OneRequest(const OneRequest&) = delete;
  OneRequest& operator=(const OneRequest&) = delete;

  const AttentionBatch& batch() const { return batch_; }

 private:
  const std::vector<int32_t> query_start_, context_len_;
  std::vector<int32_t> positions_, slots_, blocks_;
  std::vector<OwnedTensor> on_device_;
  AttentionBatch batch_;
};

}  // namespace tandem
