#include "tests/simulation/sim_executor.h"

#include <algorithm>
#include <set>

#include "common/random.h"

namespace tandem {
namespace {

// What the layers of a group keep for a position.
uint64_t ContentOf(uint64_t prefix_hash, int32_t group) {
  return prefix_hash ^ static_cast<uint64_t>(group) * 0x9e3779b97f4a7c15;
}

Status Breach(const RequestId& id, const std::string& what) {
  return InternalError("request " + id + ": " + what);
}

}  // namespace

uint64_t ExtendPrefixHash(uint64_t prefix_hash, TokenId token) {
  return MixBits(prefix_hash * 31 + static_cast<uint64_t>(token) + 1);
}

TokenId InputAt(const RequestImages* images, std::span<const TokenId> token_ids, int32_t position) {
  const TokenId token = token_ids[static_cast<size_t>(position)];
  if (images == nullptr) return token;
  for (const auto& image : *images) {
    uint64_t row = 0;
    for (const ImageInput::Run& run : image->runs) {
      if (position >= run.begin && position < run.end()) {
        row += static_cast<uint64_t>(position - run.begin);
        for (const char c : image->identifier) row = MixBits(row * 31 + static_cast<uint64_t>(c));
        return static_cast<TokenId>(row >> 33);
      }
      row += static_cast<uint64_t>(run.num_rows);
    }
  }
  return token;
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
      writer_(static_cast<size_t>(limits.num_blocks)),
      changed_at_(static_cast<size_t>(limits.num_blocks), -1) {}

Status SimExecutor::Submit(const SchedulerOutput& step) {
  ModelOutput* result = results_.Push();
  spoiled_.emplace_back();
  verified_.emplace_back();
  if (++num_steps_ == lost_at_step_) {
    lost_ = true;
    if (num_steps_ % 2 == 1) return UnavailableError("the simulated device is gone");
  }
  distrusted_.clear();
  if (step.polls_kv_transfers) RETURN_IF_ERROR(transfer_(&result->kv_transfers));
  for (RequestSlot slot : step.freed_slots) RETURN_IF_ERROR(Free(slot));
  for (const AdmittedRequest& admitted : step.admitted) RETURN_IF_ERROR(Admit(step, admitted));
  RETURN_IF_ERROR(TakeEncoderOutputs(step));

  if (released_.any() && !step.requests.empty()) {
    return InternalError("a step runs while memory is released");
  }
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
    RETURN_IF_ERROR(TakeDrafts(step, scheduled));
    RETURN_IF_ERROR(Compute(scheduled));
    total += scheduled.num_scheduled_tokens;
    result->sampled_token_ids.push_back(kNoToken);
    if (scheduled.needs_sample) Sample(scheduled, static_cast<int32_t>(i), result);
  }
  // A worker writes the KV of the whole step before any request reads.
  for (const ScheduledRequest& scheduled : step.requests) {
    RETURN_IF_ERROR(Read(RowOf(scheduled.slot)).status());
  }
  if (total != step.num_scheduled_tokens) return InternalError("the step's sum is wrong");
  const int32_t num_slots =
      limits_.drafts.num_input_slots * static_cast<int32_t>(step.requests.size());
  if (total + num_slots > limits_.max_num_batched_tokens) {
    return InternalError("the budget is overrun");
  }
  num_tokens_ += total;
  return OkStatus();
}

// Nothing is dropped that is not there, or computed that is; one image is left to go on with.
Status SimExecutor::TakeEncoderOutputs(const SchedulerOutput& step) {
  for (const std::string& key : step.dropped_encoder_outputs) {
    const auto output = encoder_outputs_.find(key);
    if (output == encoder_outputs_.end()) return InternalError(key + " is dropped twice");
    num_kept_rows_ -= output->second.num_rows;
    encoder_outputs_.erase(output);
  }
  int64_t num_begun = 0;
  max_kept_rows_ = std::max<int64_t>(max_kept_rows_, limits_.max_num_batched_tokens);
  for (const EncoderInput& input : step.encoder_inputs) {
    EncoderOutput& output = encoder_outputs_[input.key];
    if (input.image != nullptr) {
      if (output.num_rows > 0) return InternalError(input.key + " is computed while it is kept");
      output = {input.image->num_rows, input.image->num_slices};
      num_kept_rows_ += output.num_rows;
      num_begun += output.num_rows;
      max_kept_rows_ = std::max<int64_t>(max_kept_rows_, output.num_rows);
    } else {
      ++num_continued_images_;
    }
    if (input.num_slices < 1 || input.num_slices > output.num_slices_left) {
      return InternalError(input.key + " gets slices that it does not have");
    }
    output.num_slices_left -= input.num_slices;
    if (output.num_slices_left == 0) ++num_encoded_images_;
  }
  if (num_kept_rows_ > max_kept_rows_) return InternalError("too many rows of images are kept");
  if (num_begun > max_kept_rows_) return InternalError("too many rows of images are computed");
  const auto num_left = std::ranges::count_if(
      encoder_outputs_, [](const auto& output) { return output.second.num_slices_left > 0; });
  return num_left <= 1 ? OkStatus() : InternalError("several images are under way");
}

// The rows that a chunk reads are there, and it ends inside no image that must be whole.
Status SimExecutor::CheckImages(const Row& row, int32_t end) const {
  if (row.images == nullptr) return OkStatus();
  for (const auto& image : *row.images) {
    if (image->end() <= row.num_computed || image->begin >= end) continue;
    const auto output = encoder_outputs_.find(image->key);
    const bool is_there = output != encoder_outputs_.end() && output->second.num_slices_left == 0;
    if (image->HasRowsIn(row.num_computed, end) && !is_there) {
      return Breach(row.id, "reads rows of " + image->key + ", which are not there");
    }
    if (limits_.images->are_whole && end < image->end()) {
      return Breach(row.id, "ends inside " + image->key);
    }
  }
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
  for (const Verified& verified : verified_.front()) {
    Row& row = RowOf(verified.slot);
    if (row.admission != verified.admission) continue;
    row.num_uncollected_accepted -= verified.num_accepted;
    row.num_uncollected_rejected -= verified.num_rejected;
  }
  verified_.pop_front();
  results_.Pop(result);
  ++num_collected_steps_;
  return OkStatus();
}

Status SimExecutor::Release(const MemoryParts& parts, bool rereads) {
  if (num_collected_steps_ != num_steps_) return InternalError("a step is in flight");
  if (parts.kv_cache) std::fill(kv_.begin(), kv_.end(), 0);
  released_ = {released_.weights || parts.weights, released_.kv_cache || parts.kv_cache};
  rereads_ = rereads_ || rereads;
  return OkStatus();
}

Status SimExecutor::Restore(const MemoryParts& parts) {
  if (parts.weights && std::exchange(fails_next_load_, false)) {
    return InvalidArgumentError("the simulated folder lacks a tensor");
  }
  released_ = {released_.weights && !parts.weights, released_.kv_cache && !parts.kv_cache};
  if (parts.weights) rereads_ = false;
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
  row.images = admitted.images;
  row.max_computed = admitted.num_prompt_tokens + admitted.sampling_params->max_tokens - 1;
  row.is_garbage = false;
  row.was_garbage = holders_of_garbage_.contains(row.id);
  row.num_cached = row.num_computed = scheduled.num_computed_tokens;
  return OkStatus();
}

Status SimExecutor::TakeBlocks(const SchedulerOutput& step, const ScheduledRequest& scheduled) {
  Row& row = RowOf(scheduled.slot);
  // The scheduler counts all drafts in flight as accepted.
  const int32_t num_supposed = row.num_computed + row.num_uncollected_rejected;
  if (scheduled.num_computed_tokens != num_supposed) {
    return Breach(row.id, "computed tokens jump from " + std::to_string(num_supposed) + " to " +
                              std::to_string(scheduled.num_computed_tokens));
  }
  for (BlockId block : step.NewBlocks(scheduled)) {
    const auto group = static_cast<int32_t>(row.blocks.size()) % limits_.groups.count();
    const int32_t lowest = limits_.groups.IsLocal(group) ? Index(kNullBlock) : 1;
    if (Index(block) < lowest || Index(block) >= limits_.num_blocks) {
      return Breach(row.id, "block " + std::to_string(Index(block)) + " does not exist");
    }
    row.blocks.push_back(block);
  }
  const auto num_seen_blocks = static_cast<size_t>(NumBlocksFor(row.num_computed));
  for (size_t i = 0; i < std::min(num_seen_blocks, row.blocks.size()); ++i) {
    if (!distrusted_.contains(row.blocks[i])) continue;
    row.is_garbage = true;
    holders_of_garbage_.insert(row.id);
  }
  const int32_t num_groups = limits_.groups.count();
  for (int32_t i = 0; i < static_cast<int32_t>(row.blocks.size()); ++i) {
    const int32_t group = i % num_groups, end = (i / num_groups + 1) * limits_.block_size;
    if (end <= FirstSeen(row.num_computed, group)) row.blocks[static_cast<size_t>(i)] = kNullBlock;
  }
  // Of its known tokens; the drafts come after them.
  const int32_t end =
      row.num_computed + scheduled.num_scheduled_tokens - scheduled.num_draft_tokens;
  const auto num_tokens = static_cast<int32_t>(row.token_ids.size());
  if (end <= row.num_computed) return Breach(row.id, "scheduled without tokens");
  if (end - row.num_uncollected_accepted > row.max_computed) {
    return Breach(row.id, "runs after its last allowed token");
  }
  if (end > num_tokens) return Breach(row.id, "scheduled beyond its tokens");
  if (scheduled.needs_sample != (end == num_tokens)) return Breach(row.id, "needs_sample is wrong");
  const int32_t supposed_end = num_supposed + scheduled.num_scheduled_tokens;
  if (supposed_end >= limits_.max_model_len) return Breach(row.id, "is too long");
  const int32_t room =
      std::min(supposed_end + limits_.drafts.num_lookahead_tokens, limits_.max_model_len);
  if (row.blocks.size() < static_cast<size_t>(NumBlocksFor(room)))
    return Breach(row.id, "has too few blocks");
  return OkStatus();
}

Status SimExecutor::TakeDrafts(const SchedulerOutput& step, const ScheduledRequest& scheduled) {
  const Row& row = RowOf(scheduled.slot);
  const std::span<const TokenId> drafts = step.Drafts(scheduled);
  if (static_cast<int32_t>(drafts.size()) > limits_.drafts.num_speculative_tokens) {
    return Breach(row.id, "has too many drafts");
  }
  if (!drafts.empty() && !scheduled.needs_sample) return Breach(row.id, "has drafts too early");
  guesses_.clear();
  for (size_t i = 0; i < drafts.size(); ++i) {
    guesses_.push_back(i < row.drafts.size() ? row.drafts[i] : kNoToken);
    if (drafts[i] != kNoToken && drafts[i] != guesses_[i]) {
      return Breach(row.id, "has a draft that is not its own");
    }
  }
  return OkStatus();
}

// Checks what the row's next token sees and returns the hash of all tokens before it.
StatusOr<uint64_t> SimExecutor::Read(const Row& row) const {
  uint64_t hash = FirstHashOf(row.id);
  if (row.is_garbage) hash = ~hash;
  for (int32_t p = 0; p < row.step_begin; ++p) {
    hash = ExtendPrefixHash(hash, InputAt(row.images.get(), row.token_ids, p));
    if (row.is_garbage) continue;
    for (int32_t group = 0; group < limits_.groups.count(); ++group) {
      if (p < FirstSeen(row.step_begin, group)) continue;
      if (kv_[KvIdx(row, p, group)] != ContentOf(hash, group)) {
        return Breach(row.id, "reads a wrong KV entry at position " + std::to_string(p));
      }
    }
  }
  return hash;
}

Status SimExecutor::Compute(const ScheduledRequest& scheduled) {
  Row& row = RowOf(scheduled.slot);
  row.step_begin = row.num_computed;
  ASSIGN_OR_RETURN(uint64_t hash, Read(row));
  prefix_hashes_.clear();
  const int32_t end = row.num_computed + scheduled.num_scheduled_tokens;
  const int32_t first_guess = end - scheduled.num_draft_tokens;
  RETURN_IF_ERROR(CheckImages(row, end));
  for (int32_t p = row.num_computed; p < end; ++p) {
    hash = ExtendPrefixHash(hash, p < first_guess ? InputAt(row.images.get(), row.token_ids, p)
                                                  : guesses_[static_cast<size_t>(p - first_guess)]);
    for (int32_t group = 0; group < limits_.groups.count(); ++group) {
      RETURN_IF_ERROR(Write(scheduled.slot, p, group, ContentOf(hash, group)));
    }
    if (p >= first_guess - 1) prefix_hashes_.push_back(hash);
  }
  if (!scheduled.needs_sample) row.num_computed = end;
  return OkStatus();
}

Status SimExecutor::Write(RequestSlot slot, int32_t position, int32_t group, uint64_t content) {
  const Row& row = RowOf(slot);
  const BlockId block = BlockAt(row, position, group);
  const auto b = static_cast<size_t>(Index(block));
  if (block == kNullBlock) return Breach(row.id, "writes the null block");
  const bool both_recover = row.was_garbage && RowOf(writer_[b]).was_garbage;
  if (written_at_[b] == num_steps_ && writer_[b] != slot && !both_recover) {
    return Breach(row.id, "writes a block that another request writes in the same step");
  }
  written_at_[b] = num_steps_;
  writer_[b] = slot;
  uint64_t& entry = kv_[KvIdx(row, position, group)];
  if (std::exchange(entry, content) != content) changed_at_[b] = num_steps_;
  return OkStatus();
}

// Advances the row by what it has computed and accepted, and appends its next tokens.
void SimExecutor::Sample(const ScheduledRequest& scheduled, int32_t request_idx,
                         ModelOutput* result) {
  Row& row = RowOf(scheduled.slot);
  const auto begin = static_cast<int32_t>(result->draft_token_ids.size());
  const auto num_verified = static_cast<int32_t>(
      std::count_if(guesses_.begin(), guesses_.end(), [](TokenId id) { return id != kNoToken; }));
  int32_t num_accepted = 0;
  row.drafts.clear();
  if (row.is_garbage) {
    result->sampled_token_ids.back() = limits_.vocab_size;  // no right output
    row.token_ids.push_back(0);
  } else if (fails_at_ && fails_at_(row.id, row.token_ids)) {
    RequestResult& failed = result->results.emplace_back();
    failed.request_idx = request_idx;
    failed.status = InternalError("simulated NaN");
    failed.num_nans_in_logits = 1;
    Spoil(scheduled, &spoiled_.back());
    row.token_ids.push_back(0);  // it may run once more, with any token
  } else {
    num_accepted = Verify(scheduled, result);
  }
  row.num_computed += scheduled.num_scheduled_tokens - scheduled.num_draft_tokens + num_accepted;
  NoteVerified(scheduled, num_accepted);
  if (num_verified == 0 && row.drafts.empty()) return;
  result->draft_token_ids.insert(result->draft_token_ids.end(), row.drafts.begin(),
                                 row.drafts.end());
  result->drafts.push_back({.request_idx = request_idx,
                            .num_verified = num_verified,
                            .begin = begin,
                            .num_accepted = num_accepted,
                            .num_proposed = static_cast<int32_t>(row.drafts.size())});
}

// Returns the number of accepted guesses. It need not accept all that are right; if the request is
// to fail, the step ends before that.
int32_t SimExecutor::Verify(const ScheduledRequest& scheduled, ModelOutput* result) {
  Row& row = RowOf(scheduled.slot);
  size_t num_accepted = 0;
  TokenId token = NextSimToken(prefix_hashes_[0], limits_.vocab_size);
  row.token_ids.push_back(token);
  while (num_accepted < guesses_.size() && guesses_[num_accepted] == token && !Chance(0.05) &&
         !(fails_at_ && fails_at_(row.id, row.token_ids))) {
    result->draft_token_ids.push_back(token);
    token = NextSimToken(prefix_hashes_[++num_accepted], limits_.vocab_size);
    row.token_ids.push_back(token);
  }
  result->sampled_token_ids.back() = token;
  Propose(ExtendPrefixHash(prefix_hashes_[num_accepted], token), &row);
  return static_cast<int32_t>(num_accepted);
}

void SimExecutor::Propose(uint64_t prefix_hash, Row* row) {
  if (!random_) return;
  const int32_t num_at_most = limits_.drafts.num_speculative_tokens;
  const auto num_drafts =
      Chance(0.7) ? num_at_most
                  : static_cast<int32_t>(random_->Next() % static_cast<uint64_t>(num_at_most + 1));
  for (int32_t i = 0; i < num_drafts; ++i) {
    TokenId guess = NextSimToken(prefix_hash, limits_.vocab_size);
    if (Chance(0.25)) {
      guess = static_cast<TokenId>(random_->Next() % static_cast<uint64_t>(limits_.vocab_size));
    }
    row->drafts.push_back(guess);
    prefix_hash = ExtendPrefixHash(prefix_hash, guess);
  }
}

void SimExecutor::NoteVerified(const ScheduledRequest& scheduled, int32_t num_accepted) {
  if (scheduled.num_draft_tokens == 0) return;
  Row& row = RowOf(scheduled.slot);
  const int32_t num_rejected = scheduled.num_draft_tokens - num_accepted;
  row.num_uncollected_accepted += num_accepted;
  row.num_uncollected_rejected += num_rejected;
  verified_.back().push_back({scheduled.slot, row.admission, num_accepted, num_rejected});
}

void SimExecutor::WriteKv(BlockId block, int32_t position, uint64_t prefix_hash) {
  kv_[static_cast<size_t>(Index(block)) * static_cast<size_t>(limits_.block_size) +
      static_cast<size_t>(position % limits_.block_size)] = prefix_hash;
}

// What was computed for a failed request is as bad as its logits. Blocks that another request
// shares already are left alone: they cannot be taken back.
void SimExecutor::Spoil(const ScheduledRequest& scheduled, std::vector<Spoiled>* spoiled) const {
  const Row& row = RowOf(scheduled.slot);
  const int32_t end = row.num_computed + scheduled.num_scheduled_tokens;
  for (int32_t group = 0; group < limits_.groups.count(); ++group) {
    const int32_t begin = std::max(row.num_cached, FirstSeen(row.num_computed, group));
    for (int32_t p = begin; p < end; ++p) {
      spoiled->push_back({row.admission, BlockAt(row, p, group), KvIdx(row, p, group)});
    }
  }
}

bool SimExecutor::Chance(double probability) { return random_ && random_->Chance(probability); }

int32_t SimExecutor::FirstSeen(int32_t position, int32_t group) const {
  return limits_.groups.IsLocal(group) ? limits_.groups.FirstSeen(position) : 0;
}

int32_t SimExecutor::NumBlocksFor(int32_t num_tokens) const {
  return (num_tokens + limits_.block_size - 1) / limits_.block_size * limits_.groups.count();
}

BlockId SimExecutor::BlockAt(const Row& row, int32_t position, int32_t group) const {
  return row
      .blocks[static_cast<size_t>(position / limits_.block_size * limits_.groups.count() + group)];
}

size_t SimExecutor::KvIdx(const Row& row, int32_t position, int32_t group) const {
  return static_cast<size_t>(Index(BlockAt(row, position, group))) *
             static_cast<size_t>(limits_.block_size) +
         static_cast<size_t>(position % limits_.block_size);
}

}  // namespace tandem
