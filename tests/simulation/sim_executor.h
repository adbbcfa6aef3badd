#pragma once

// An executor without a model. Its KV cache stores in each position the hash of the tokens up to
// there, of each group of layers another one, and the next token is a function of that hash: every
// request's right outputs are known, whatever it was batched with, however it was chunked,
// preempted or served from the cache. Before it computes a request, and again when the whole step
// is written, it reads everything that a model would read and compares. Its drafter guesses right
// more often than not, and the drafts' content is in its KV cache as well, right or wrong. Thread:
// engine loop. Failure: a breach of the contract (a wrong block, a slot in use, a budget overrun …)
// is INTERNAL and names it; requested failures are UNAVAILABLE.

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/ids.h"
#include "common/status.h"
#include "engine_core/executor/executor.h"
#include "engine_core/executor/result_queue.h"
#include "tests/simulation/sim_random.h"

namespace tandem {

// The hash of a prefix is folded token by token, from 0.
uint64_t ExtendPrefixHash(uint64_t prefix_hash, TokenId token);
// What a position of a prompt has as its input: the token, or a row of an image (null: none).
TokenId InputAt(const RequestImages* images, std::span<const TokenId> token_ids, int32_t position);
// The token that follows a prefix.
TokenId NextSimToken(uint64_t prefix_hash, int32_t vocab_size);

class SimExecutor final : public Executor {
 public:
  explicit SimExecutor(const ExecutorLimits& limits);

  const ExecutorLimits& limits() const override { return limits_; }
  Status Submit(const SchedulerOutput& step) override;
  Status Collect(ModelOutput* result) override;
  // What a cache has had is gone then, and nothing may run.
  Status Release(const MemoryParts& parts, bool rereads) override;
  Status Restore(const MemoryParts& parts) override;
  // The next Restore of weights fails.
  void FailNextLoad() { fails_next_load_ = true; }
  const MemoryParts& released() const { return released_; }
  bool rereads() const { return rereads_; }

  // Called before a token is sampled: true ends that request with an error instead.
  using FailsAt = std::function<bool(const RequestId& id, std::span<const TokenId> token_ids)>;
  void FailRequestsWhere(FailsAt fails_at) { fails_at_ = std::move(fails_at); }
  // The worker's side of a KV connector, called at the beginning of a step.
  void TransferWith(std::function<Status(KvTransferReport*)> work) { transfer_ = std::move(work); }
  void WriteKv(BlockId block, int32_t position, uint64_t prefix_hash);
  int64_t LastWrite(BlockId block) const { return written_at_[static_cast<size_t>(Index(block))]; }
  // Of other content. The holders of a block that a failed load has left wrong each compute it, and
  // one may end before another begins.
  int64_t LastChange(BlockId block) const { return changed_at_[static_cast<size_t>(Index(block))]; }
  // A block lacks KV that the step which begins now takes to be there: the results of requests that
  // have it are garbage until they are admitted again.
  void Distrust(BlockId block) { distrusted_.insert(block); }
  // The same for a request that has such a block without a row here.
  void NoteHolderOfGarbage(const RequestId& id) { holders_of_garbage_.insert(id); }
  bool HasHadGarbage(const RequestId& id) const { return holders_of_garbage_.contains(id); }
  // Blocks that have content for a request without a row here.
  void KeepWhere(std::function<bool(BlockId)> is_kept) { is_kept_ = std::move(is_kept); }
  // The hash of a request's empty prefix; 0 without this call.
  void BeginPrefixesWith(std::function<uint64_t(const RequestId& id)> first_hash) {
    first_hash_ = std::move(first_hash);
  }
  uint64_t FirstHashOf(const RequestId& id) const { return first_hash_ ? first_hash_(id) : 0; }
  // The seed of the drafter's guesses. Without this call it makes none.
  void DraftWith(uint64_t seed) { random_.emplace(seed); }
  // The executor is lost in its n-th step from now (1: the next); at even ones while it runs.
  void LoseAfter(int64_t num_steps) { lost_at_step_ = num_steps_ + num_steps; }
  int64_t num_steps() const { return num_steps_; }
  int64_t num_collected_steps() const { return num_collected_steps_; }
  int64_t num_tokens() const { return num_tokens_; }
  int64_t num_kept_rows() const { return num_kept_rows_; }  // of images
  int64_t num_encoded_images() const { return num_encoded_images_; }
  // How often a step went on with an image that an earlier one had begun.
  int64_t num_continued_images() const { return num_continued_images_; }
  // The blocks that steps since the last call have named in a table.
  std::vector<BlockId> TakeUsedBlocks() { return std::exchange(used_blocks_, {}); }
  bool IsSlotInUse(RequestSlot slot) const { return RowOf(slot).in_use; }

 private:
  struct Row {
    bool in_use = false;
    int64_t admission = 0;  // its number
    RequestId id;
    std::vector<TokenId> token_ids;
    std::shared_ptr<const RequestImages> images;
    std::vector<BlockId> blocks;  // place by place, of all groups
    int32_t max_computed = 0;     // its last allowed token is never an input
    int32_t num_cached = 0;       // at admission
    int32_t num_computed = 0;     // tokens whose KV is there
    int32_t step_begin = 0;       // num_computed before its last step
    bool is_garbage = false;
    bool was_garbage = false;     // it computes blocks again that others may share
    std::vector<TokenId> drafts;  // its own, for its next step
    // In steps that are not collected yet.
    int32_t num_uncollected_accepted = 0;
    int32_t num_uncollected_rejected = 0;
  };

  struct Spoiled {
    int64_t admission = 0;
    BlockId block{};
    size_t kv_idx = 0;
  };

  // A step in flight's result for a row's drafts.
  struct Verified {
    RequestSlot slot{};
    int64_t admission = 0;
    int32_t num_accepted = 0;
    int32_t num_rejected = 0;
  };

  Row& RowOf(RequestSlot slot) { return rows_[static_cast<size_t>(Index(slot))]; }
  const Row& RowOf(RequestSlot slot) const { return rows_[static_cast<size_t>(Index(slot))]; }
  Status CheckSlot(RequestSlot slot) const;
  Status Free(RequestSlot slot);
  Status Admit(const SchedulerOutput& step, const AdmittedRequest& admitted);
  Status TakeBlocks(const SchedulerOutput& step, const ScheduledRequest& scheduled);
  Status TakeDrafts(const SchedulerOutput& step, const ScheduledRequest& scheduled);
  StatusOr<uint64_t> Read(const Row& row) const;
  Status Compute(const ScheduledRequest& scheduled);
  Status Write(RequestSlot slot, int32_t position, int32_t group, uint64_t content);
  Status TakeEncoderOutputs(const SchedulerOutput& step);
  Status CheckImages(const Row& row, int32_t end) const;
  void Sample(const ScheduledRequest& scheduled, int32_t request_idx, ModelOutput* result);
  int32_t Verify(const ScheduledRequest& scheduled, ModelOutput* result);
  void Propose(uint64_t prefix_hash, Row* row);
  void NoteVerified(const ScheduledRequest& scheduled, int32_t num_accepted);
  void Spoil(const ScheduledRequest& scheduled, std::vector<Spoiled>* spoiled) const;
  bool Chance(double probability);
  // The first position that a token sees in a group of layers.
  int32_t FirstSeen(int32_t position, int32_t group) const;
  int32_t NumBlocksFor(int32_t num_tokens) const;  // of all groups
  BlockId BlockAt(const Row& row, int32_t position, int32_t group) const;
  size_t KvIdx(const Row& row, int32_t position, int32_t group) const;

  ExecutorLimits limits_;
  std::vector<Row> rows_;
  std::vector<uint64_t> kv_;         // [num_blocks, block_size]
  std::vector<int64_t> written_at_;  // by block: the step that last wrote it …
  std::vector<RequestSlot> writer_;  // … and for whom
  std::vector<int64_t> changed_at_;  // by block: the step that last wrote other content
  std::vector<BlockId> used_blocks_;
  ResultQueue results_;
  // KV that failed requests spoil, per step in flight. It is spoiled when the result is collected:
  // by then all requests that share a block hold it.
  std::deque<std::vector<Spoiled>> spoiled_;
  std::deque<std::vector<Verified>> verified_;  // per step in flight
  std::vector<TokenId> guesses_;                // of the request being run; kNoToken: none
  std::vector<uint64_t> prefix_hashes_;         // up to its last known token, and to each guess
  std::optional<SimRandom> random_;
  int64_t num_steps_ = 0;
  int64_t num_collected_steps_ = 0;
  int64_t num_tokens_ = 0;
  struct EncoderOutput {
    int32_t num_rows = 0;
    int32_t num_slices_left = 0;
  };
  std::map<std::string, EncoderOutput> encoder_outputs_;  // by key
  int64_t num_kept_rows_ = 0, max_kept_rows_ = 0, num_encoded_images_ = 0,
          num_continued_images_ = 0;
  int64_t num_admissions_ = 0;
  int64_t lost_at_step_ = -1;
  bool lost_ = false;
  MemoryParts released_;
  bool rereads_ = false;
  bool fails_next_load_ = false;
  FailsAt fails_at_;
  std::function<Status(KvTransferReport*)> transfer_;
  std::function<bool(BlockId)> is_kept_;
  std::function<uint64_t(const RequestId& id)> first_hash_;
  std::set<BlockId> distrusted_;  // in this step
  std::set<RequestId> holders_of_garbage_;
};

}  // namespace tandem
