#include "tests/simulation/sim_executor.h"

#include <algorithm>
#include <set>

#include "common/random.h"

namespace tandem {
namespace {

Status Breach(const RequestId& id, const std::string& what) {
  return InternalError("request " + id + ": " + what);
}

}  // namespace

uint64_t ExtendPrefixHash(uint64_t prefix_hash, TokenId token) {
  return MixBits(prefix_hash * 31 + static_cast<uint64_t>(token) + 1);
}

TokenId NextSimToken(uint64_t prefix_hash, int32_t vocab_size) {
  return static_cast<TokenId>(MixBits(prefix_hash ^ 0x746f6b656e) %
                              static_cast<uint64_t>(vocab_size));
}

SimExecutor::SimExecutor(const ExecutorLimits& limits)
    : limits_(limits),
      rows_(static_cast<size_t>(limits.max_num_seqs)),
      kv_(static_cast<size_t>(limits.num_blocks) * static_cast<size_t>(limits.block_size)),
      written_at_(static_cast<size_t>(limits.num_blocks), -1),
      writer_(static_cast<size_t>(limits.num_blocks)) {}

Status SimExecutor::Submit(const SchedulerOutput& step) {
  ModelOutput* result = results_.Push();
  std::vector<Spoiled>& spoiled = spoiled_.emplace_back();
  if (++num_steps_ == lost_at_step_) {
    lost_ = true;
    if (num_steps_ % 2 == 1) return UnavailableError("the simulated device is gone");
  }
  if (step.polls_kv_transfers) RETURN_IF_ERROR(transfer_(&result->kv_transfers));
  for (RequestSlot slot : step.freed_slots) RETURN_IF_ERROR(Free(slot));
  for (const AdmittedRequest& admitted : step.admitted) RETURN_IF_ERROR(Admit(step, admitted));

  std::set<RequestSlot> seen;
  for (const ScheduledRequest& scheduled : step.requests) {
    RETURN_IF_ERROR(CheckSlot(scheduled.slot));
    const Row& row = RowOf(scheduled.slot);
    if (!row.in_use) return InternalError("a step names a slot that is not in use");
    if (!seen.insert(scheduled.slot).second) return Breach(row.id, "twice in a step");
    RETURN_IF_ERROR(TakeBlocks(step, scheduled));
    used_blocks_.insert(used_blocks_.end(), row.blocks.begin(), row.blocks.end());
  }

  int32_t total = 0;
  for (size_t i = 0; i < step.requests.size(); ++i) {
    const ScheduledRequest& scheduled = step.requests[i];
    Row& row = RowOf(scheduled.slot);
    uint64_t prefix_hash = 0;
    RETURN_IF_ERROR(Compute(scheduled, &prefix_hash));
    total += scheduled.num_scheduled_tokens;
    result->sampled_token_ids.push_back(kNoToken);
    if (!scheduled.needs_sample) continue;
    if (row.is_garbage) {
      result->sampled_token_ids.back() = limits_.vocab_size;  // nobody's answer
      row.token_ids.push_back(0);
      continue;
    }
    if (fails_at_ && fails_at_(row.id, row.token_ids)) {
      RequestResult& failed = result->results.emplace_back();
      failed.request_idx = static_cast<int32_t>(i);
      failed.status = InternalError("simulated NaN");
      failed.num_nans_in_logits = 1;
      Spoil(scheduled, &spoiled);
      row.token_ids.push_back(0);  // it may run once more, with any token
      continue;
    }
    const TokenId token = NextSimToken(prefix_hash, limits_.vocab_size);
    result->sampled_token_ids.back() = token;
    row.token_ids.push_back(token);
  }
  if (total != step.num_scheduled_tokens) return InternalError("the step's sum is wrong");
  if (total > limits_.max_num_batched_tokens) return InternalError("the budget is overrun");
  num_tokens_ += total;
  return OkStatus();
}

Status SimExecutor::Collect(ModelOutput* result) {
  if (lost_ && spoiled_.size() == 1) return UnavailableError("the simulated device is gone");
  for (const Spoiled& one : spoiled_.front()) {
    const auto holds = [&](const Row& row) {
      return row.admission != one.admission &&
             std::find(row.blocks.begin(), row.blocks.end(), one.block) != row.blocks.end();
    };
    if (is_kept_ && is_kept_(one.block)) continue;
    if (std::none_of(rows_.begin(), rows_.end(), holds)) kv_[one.kv_idx] = ~kv_[one.kv_idx];
  }
  spoiled_.pop_front();
  results_.Pop(result);
  return OkStatus();
}

Status SimExecutor::CheckSlot(RequestSlot slot) const {
  if (Index(slot) >= 0 && Index(slot) < limits_.max_num_seqs) return OkStatus();
  return InternalError("slot " + std::to_string(Index(slot)) + " does not exist");
}

Status SimExecutor::Free(RequestSlot slot) {
  RETURN_IF_ERROR(CheckSlot(slot));
  if (!RowOf(slot).in_use) return InternalError("a slot is freed that is not in use");
  RowOf(slot) = {};
  return OkStatus();
}

Status SimExecutor::Admit(const SchedulerOutput& step, const AdmittedRequest& admitted) {
  const ScheduledRequest& scheduled = step.requests[static_cast<size_t>(admitted.request_idx)];
  RETURN_IF_ERROR(CheckSlot(scheduled.slot));
  if (scheduled.kind == ScheduledKind::kRunning) {
    return Breach(*admitted.request_id, "admitted, but scheduled as running");
  }
  Row& row = RowOf(scheduled.slot);
  if (row.in_use) return Breach(*admitted.request_id, "admitted to the slot of " + row.id);
  row.in_use = true;
  row.admission = ++num_admissions_;
  row.id = *admitted.request_id;
  row.token_ids.assign(admitted.token_ids.begin(), admitted.token_ids.end());
  row.max_computed = admitted.num_prompt_tokens + admitted.sampling_params->max_tokens - 1;
  row.is_garbage = distrusted_.erase(row.id) > 0;
  row.num_cached = row.num_computed = scheduled.num_computed_tokens;
  return OkStatus();
}

Status SimExecutor::TakeBlocks(const SchedulerOutput& step, const ScheduledRequest& scheduled) {
  Row& row = RowOf(scheduled.slot);
  if (scheduled.num_computed_tokens != row.num_computed) {
    return Breach(row.id, "computed tokens jump from " + std::to_string(row.num_computed) + " to " +
                              std::to_string(scheduled.num_computed_tokens));
  }
  for (BlockId block : step.NewBlocks(scheduled)) {
    const int32_t lowest = limits_.sliding_window > 0 ? Index(kNullBlock) : 1;
    if (Index(block) < lowest || Index(block) >= limits_.num_blocks) {
      return Breach(row.id, "block " + std::to_string(Index(block)) + " does not exist");
    }
    row.blocks.push_back(block);
  }
  const int32_t hidden_end = FirstSeen(scheduled.num_computed_tokens) / limits_.block_size;
  std::fill_n(row.blocks.begin(),
              std::min<size_t>(static_cast<size_t>(hidden_end), row.blocks.size()), kNullBlock);
  const int32_t end = scheduled.num_computed_tokens + scheduled.num_scheduled_tokens;
  const auto num_tokens = static_cast<int32_t>(row.token_ids.size());
  if (scheduled.num_scheduled_tokens < 1) return Breach(row.id, "scheduled without tokens");
  if (end > row.max_computed) return Breach(row.id, "runs behind its last allowed token");
  if (end > num_tokens) return Breach(row.id, "scheduled beyond its tokens");
  if (scheduled.needs_sample != (end == num_tokens)) return Breach(row.id, "needs_sample is wrong");
  const auto needed = static_cast<size_t>((end + limits_.block_size - 1) / limits_.block_size);
  if (row.blocks.size() < needed) return Breach(row.id, "has too few blocks");
  return OkStatus();
}

Status SimExecutor::Compute(const ScheduledRequest& scheduled, uint64_t* prefix_hash) {
  Row& row = RowOf(scheduled.slot);
  uint64_t hash = FirstHashOf(row.id);
  if (row.is_garbage) hash = ~hash;
  for (int32_t p = 0; p < scheduled.num_computed_tokens; ++p) {
    hash = ExtendPrefixHash(hash, row.token_ids[static_cast<size_t>(p)]);
    if (row.is_garbage) continue;
    if (p >= FirstSeen(scheduled.num_computed_tokens) && kv_[KvIdx(row, p)] != hash) {
      return Breach(row.id, "reads a wrong KV entry at position " + std::to_string(p));
    }
  }
  const int32_t end = scheduled.num_computed_tokens + scheduled.num_scheduled_tokens;
  for (int32_t p = scheduled.num_computed_tokens; p < end; ++p) {
    const BlockId block = row.blocks[static_cast<size_t>(p / limits_.block_size)];
    const auto b = static_cast<size_t>(Index(block));
    if (block == kNullBlock) return Breach(row.id, "writes the null block");
    if (written_at_[b] == num_steps_ && writer_[b] != scheduled.slot) {
      return Breach(row.id, "writes a block that another request writes in the same step");
    }
    written_at_[b] = num_steps_;
    writer_[b] = scheduled.slot;
    hash = ExtendPrefixHash(hash, row.token_ids[static_cast<size_t>(p)]);
    kv_[KvIdx(row, p)] = hash;
  }
  row.num_computed = end;
  *prefix_hash = hash;
  return OkStatus();
}

void SimExecutor::WriteKv(BlockId block, int32_t position, uint64_t prefix_hash) {
  kv_[static_cast<size_t>(Index(block)) * static_cast<size_t>(limits_.block_size) +
      static_cast<size_t>(position % limits_.block_size)] = prefix_hash;
}

// What was computed for a request that failed is as bad as its logits. Blocks that another request
// shares already are left alone: nobody can take those back.
void SimExecutor::Spoil(const ScheduledRequest& scheduled, std::vector<Spoiled>* spoiled) const {
  const Row& row = RowOf(scheduled.slot);
  const int32_t end = scheduled.num_computed_tokens + scheduled.num_scheduled_tokens;
  const int32_t begin = std::max(row.num_cached, FirstSeen(scheduled.num_computed_tokens));
  for (int32_t p = begin; p < end; ++p) {
    spoiled->push_back(
        {row.admission, row.blocks[static_cast<size_t>(p / limits_.block_size)], KvIdx(row, p)});
  }
}

int32_t SimExecutor::FirstSeen(int32_t position) const {
  if (limits_.sliding_window == 0) return 0;
  return std::max(0, position - limits_.sliding_window + 1);
}

size_t SimExecutor::KvIdx(const Row& row, int32_t position) const {
  const BlockId block = row.blocks[static_cast<size_t>(position / limits_.block_size)];
  return static_cast<size_t>(Index(block)) * static_cast<size_t>(limits_.block_size) +
         static_cast<size_t>(position % limits_.block_size);
}

}  // namespace tandem
