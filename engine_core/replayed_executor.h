#pragma once

// The executor of a replay. It compares each step with the recorded one, and runs it on a model or
// takes the recorded result. A model's result is compared too.
// A checkpoint has no content of KV blocks. A block is cold until a step of the replay has written
// it; a request that enters with computed tokens in cold blocks has them computed first, into the
// same blocks. Its own tokens are known, and the bits are those of the recorded run because they
// depend on these tokens alone.
// Thread: engine loop. Owns nothing. A step with a model is collected as soon as it is submitted.
// Failure: CANCELLED ends the replay in order (has_ended); else what the model or the record says.

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "engine_core/engine_core.h"
#include "engine_core/executor/executor.h"
#include "engine_core/executor/result_queue.h"
#include "engine_core/replay_cursor.h"

namespace tandem {

class ReplayedExecutor final : public Executor {
 public:
  // Reads a recorded adapter again; fails where its files have changed.
  using AdapterSource =
      std::function<StatusOr<std::shared_ptr<const AdapterWeights>>(const Adapter& recorded)>;
  struct Options {
    ExecutorLimits limits;      // of the recorded engine
    Executor* model = nullptr;  // nullptr: results are those recorded
    AdapterSource adapters = {};
    int64_t until_step = 0;  // ends before this step; 0: with the recording
  };
  ReplayedExecutor(const Options& options, ReplayCursor* cursor)
      : options_(options),
        cursor_(cursor),
        is_live_(static_cast<size_t>(options.limits.max_num_seqs)),
        is_warm_(static_cast<size_t>(options.limits.num_blocks)) {}
  // Before the first step. The engine outlives this.
  void Attach(const EngineCore* engine, int64_t num_submitted, int64_t num_collected) {
    engine_ = engine;
    num_submitted_ = cursor_->step = num_submitted;
    num_collected_ = num_collected;
  }

  // A model must have as many blocks more than the recorded engine: they stand for blocks that lie
  // before a sliding window.
  static int32_t NumSpareBlocks(const ExecutorLimits& limits);

  const ExecutorLimits& limits() const override { return options_.limits; }
  Status Submit(const SchedulerOutput& step) override;
  Status Collect(ModelOutput* result) override;
  // The model keeps its memory: it would get the same weights again.
  Status Release(const MemoryParts&, bool) override { return TakeChange(); }
  Status Restore(const MemoryParts&) override { return TakeChange(); }

  int64_t num_submitted() const { return num_submitted_; }
  int64_t num_collected() const { return num_collected_; }
  int64_t num_compared_tokens() const { return num_compared_tokens_; }
  // Reached: until_step, or a step without which nothing can go on.
  bool has_ended() const { return has_ended_; }

 private:
  Status End(const std::string& why);
  Status TakeLoss();
  Status TakeChange();
  Status Compare(const SchedulerOutput& step);
  void CompareResult(const ModelOutput& recorded, const ModelOutput& result);
  Status RunModel(const SchedulerOutput& step, ModelOutput* result);
  void NameDrafts(SchedulerOutput* step) const;
  Status FreeSlots(const std::vector<RequestSlot>& slots);
  Status Warm(const Request& request, const ScheduledRequest& scheduled);
  void Enter(const Request& request, size_t request_idx, SchedulerOutput* step);
  Status RestoreAdapters(SchedulerOutput* step);
  const wire::SamplingParams* WithoutPromptLogprobs(const Request& request);
  void MarkWritten(const ScheduledRequest& scheduled);
  const Request* RequestAt(RequestSlot slot) const;

  const Options options_;
  ReplayCursor* const cursor_;
  const EngineCore* engine_ = nullptr;
  std::vector<bool> is_live_;  // by slot: the model has a row for it
  std::vector<bool> is_warm_;  // by block
  ResultQueue results_;
  std::deque<std::vector<RequestId>> ids_;   // of the steps in flight, for messages
  std::deque<wire::SamplingParams> params_;  // of the step that is being made
  std::map<AdapterId, Adapter> adapters_;    // with their weights
  int64_t num_submitted_ = 0;
  int64_t num_collected_ = 0;
  int64_t num_compared_tokens_ = 0;
  bool has_ended_ = false;
};

// Called before each step of a replay; a debugger stops here.
extern "C" void TandemReplayStep(int64_t step);

}  // namespace tandem
