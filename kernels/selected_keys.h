#pragma once

// What the backends of the host share of attention over keys that each token chooses (SelectKeys
// and AttendSelected of ops.def). All of it looks at one token and its request alone.
// Thread: any, on different tokens. Pure but for the outputs.
// Source: DeepSeek-AI 2025 (DeepSeek-V3.2); HF's DeepseekV32ForCausalLM.

#include <cstdint>
#include <span>

#include "kernels/ops.h"

namespace tandem {

// A token of one request of the step.
struct TokenOfRun {
  BatchSequence sequence;
  int64_t row = 0;  // of the step

  // Those up to its own.
  int32_t num_keys() const {
    return sequence.first_position + static_cast<int32_t>(row - sequence.first_token) + 1;
  }
  int64_t SlotOf(int32_t key, const LayerKv& kv) const {
    return int64_t{sequence.blocks[key / kv.block_size]} * kv.block_size + key % kv.block_size;
  }
};
TokenOfRun TokenOfRow(const AttentionPlan& plan, int64_t row);

// The row of a token in `selected`, and the keys in it.
std::span<int32_t> ChosenOf(const Tensor& selected, int64_t row);
std::span<const int32_t> Chosen(std::span<const int32_t> row);

// Chooses all keys if there is room for them; else does nothing and returns false.
bool ChooseAll(const TokenOfRun& token, std::span<int32_t> chosen);
// The keys of the largest scores. order: room for num_keys numbers. Scores that are not numbers
// become the smallest. REQUIRES: chosen.size() <= num_keys.
void ChooseBest(float* scores, int32_t num_keys, int32_t* order, std::span<int32_t> chosen);

}  // namespace tandem
