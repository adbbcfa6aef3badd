#include "engine_core/executor/model_drafter.h"

#include <algorithm>
#include <utility>

namespace tandem {

ModelDrafter::ModelDrafter(Backend* backend, DraftModel draft, KvFormat kv_format,
                           InputBatch* batch)
    : PassDrafter(backend, draft, /*shift=*/0, kv_format, batch),
      model_(std::move(draft.model)),
      num_taken_(static_cast<size_t>(batch->limits().max_num_seqs)),
      written_(num_taken_.size()) {
  for (std::vector<TokenId>& drafts : written_) {
    drafts.reserve(static_cast<size_t>(batch->limits().drafts.num_speculative_tokens));
  }
}

StatusOr<std::unique_ptr<ModelDrafter>> ModelDrafter::Create(Backend* backend, DraftModel draft,
                                                             KvFormat kv_format,
                                                             InputBatch* batch) {
  std::unique_ptr<ModelDrafter> drafter(
      new ModelDrafter(backend, std::move(draft), kv_format, batch));
  RETURN_IF_ERROR(drafter->Allocate());
  return drafter;
}

Status ModelDrafter::AllocateKvCache(int32_t num_blocks) {
  num_filled_.assign(static_cast<size_t>(num_blocks), 0);
  return PassDrafter::AllocateKvCache(num_blocks);
}

void ModelDrafter::AppendBlocks(const ScheduledRequest& request,
                                std::span<const BlockId> block_ids) {
  PassDrafter::AppendBlocks(request, block_ids);
  const bool enters = request.kind != ScheduledKind::kRunning;
  const int32_t num_known = enters ? request.num_computed_tokens : 0;
  const auto num_cached = static_cast<size_t>(num_known / kv_spec_.block_size);
  for (size_t i = std::min(num_cached, block_ids.size()); i < block_ids.size(); ++i) {
    num_filled_[static_cast<size_t>(Index(block_ids[i]))] = 0;
  }
  if (!enters) return;
  int32_t num_taken = 0;
  for (size_t i = 0; i < num_cached; ++i) {
    const int32_t num_filled = num_filled_[static_cast<size_t>(Index(block_ids[i]))];
    num_taken += num_filled;
    if (num_filled < kv_spec_.block_size) break;
  }
  NumTaken(request.slot) = num_taken;
  Written(request.slot).clear();
}

int32_t ModelDrafter::NumBehind(RequestSlot slot, int32_t /*num_emitted*/) const {
  return batch_->row(slot).num_tokens - num_taken_[static_cast<size_t>(Index(slot))];
}

// The keys and values of a draft that was accepted are those of the token.
void ModelDrafter::KeepAccepted(RequestSlot slot) {
  if (Written(slot).empty()) return;
  const std::span<const TokenId> tokens = batch_->token_ids(slot);
  int32_t end = NumTaken(slot);
  for (const TokenId draft : Written(slot)) {
    // The last token is an input in any case: the first draft comes from its logits.
    if (static_cast<size_t>(end) + 1 >= tokens.size()) break;
    if (tokens[static_cast<size_t>(end)] != draft) break;
    ++end;
  }
  Written(slot).clear();
  MarkTaken(slot, end);
}

void ModelDrafter::MarkTaken(RequestSlot slot, int32_t end) {
  const std::span<const int32_t> blocks = batch_->block_table(slot);
  const int32_t block_size = kv_spec_.block_size;
  for (int32_t i = NumTaken(slot) / block_size; i * block_size < end; ++i) {
    int32_t& num_filled = num_filled_[static_cast<size_t>(blocks[static_cast<size_t>(i)])];
    num_filled = std::max(num_filled, std::min(end - i * block_size, block_size));
  }
  NumTaken(slot) = end;
}

void ModelDrafter::TakeIn(std::span<const Wish> wishes) {
  for (const Wish& wish : wishes) KeepAccepted(wish.slot);
  int32_t room = batch_->limits().max_num_batched_tokens;
  for (const Wish& wish : wishes) {
    const InputBatch::Row& row = batch_->row(wish.slot);
    if (!row.in_use || row.embeddings != nullptr) continue;
    const int32_t num_tokens = std::min({wish.num_tokens, row.num_tokens, NumPositions(wish.slot)});
    const int32_t begin = NumTaken(wish.slot);
    const int32_t count = std::min(num_tokens - begin, room);
    if (count <= 0) continue;
    AddChunk(wish, begin, count);
    room -= count;
    MarkTaken(wish.slot, begin + count);
  }
}

void ModelDrafter::TakeDrafts(std::span<const Wish> wishes) {
  for (const Wish& wish : wishes) {
    if (wish.drafts == nullptr || wish.drafts->empty()) continue;
    Written(wish.slot).assign(wish.drafts->begin(), wish.drafts->end() - 1);
  }
}

void ModelDrafter::Forward(const StepInputs::Views& inputs) {
  model_->Forward(
      {.token_ids = inputs.token_ids, .plan = plan_.get(), .kv_cache = kv_cache_.get()});
}

}  // namespace tandem
