#pragma once

// What the ranks of one engine share while they run a model together: memory, and the steps that go
// through it. The engine core's process is one of the ranks, the first of the last stage: it
// schedules, and samples from the logits that are made there. All others only run their part of
// the model, for which the numbers of StepInputs are all they need: they know no requests.
//
// A step is published once, in a slot of a BroadcastRing, which every rank reads in place. Its
// hidden states have one tensor in shared memory, in which stage after stage goes on. Rank numbers
// are vLLM's: the ranks of a stage are neighbours.
// Ranks with a device each (Backend::exchange) copy a step's numbers there, and have hidden states
// of their own; they are one stage.
//
// Thread: engine loop of each rank; lines() any. Owns: the memory. Failure: memory, in Create and
// Open; a rank that is lost is noticed outside (engine_core/workers), and Abandon ends all waits.

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "common/broadcast_ring.h"
#include "common/shared_memory.h"
#include "common/status.h"
#include "common/wait_mark.h"
#include "engine_core/executor/executor.h"
#include "engine_core/executor/step_inputs.h"
#include "engine_core/executor/step_layout.h"
#include "engine_core/executor/step_rows.h"
#include "engine_core/kv_cache/layer_groups.h"
#include "engine_core/models/eagle_config.h"
#include "engine_core/models/rank_share.h"
#include "kernels/backend.h"
#include "kernels/shared_communicator.h"

namespace tandem {

struct RankCounts {
  int tensor = 1;    // ranks that share each stage
  int pipeline = 1;  // stages

  int num_ranks() const { return tensor * pipeline; }
  // The engine core's.
  int output_rank() const { return num_ranks() - tensor; }
  RankPlace PlaceOf(int rank) const;
};

// What all ranks agree on: the output rank's choice, which the others read where they open the
// memory.
struct RankGroupShape {
  RankCounts counts;
  // A rank whose layers form other groups, or whose blocks are of another size, would read tables
  // wrongly.
  LayerGroups groups;
  int32_t block_size = 0;
  int64_t max_tokens = 0;  // of a step
  int64_t hidden_size = 0;
  int64_t num_layer_inputs = 0;  // ModelConfig's
  int64_t row_size = 0;  // numbers of a row of StepRows, deepstack's among them; 0: none come
  // Where stages hand on what a head reads of the layers before the last (StateTap), in a pipeline.
  std::array<int32_t, kMostStateLayers> state_layers = {};
  int32_t num_state_layers = 0;
  int64_t max_record_bytes = 0;
  int spins = kFutexSpins;

  // max_adapters: of a step; state_layers: EagleConfig's, of a head.
  static RankGroupShape Of(const RankCounts& counts, const ExecutorLimits& limits,
                           const ModelConfig& model, int64_t max_adapters, int spins = kFutexSpins,
                           std::span<const int> state_layers = {});
  std::span<const int> taken_layers() const {
    return {state_layers.data(), static_cast<size_t>(num_state_layers)};
  }
};

// What a rank's thread sleeps for, as the kind of a WaitMark.
enum class RankWait : uint8_t { kNothing, kStage, kStageBefore, kNextStep, kRoom };
// "waits for the other ranks of its stage"; kNothing: empty.
std::string_view TextOf(RankWait wait);

// What a rank is at, for the watcher of its process.
struct alignas(64) RankLine {
  std::atomic<int64_t> step{0};  // the first is 1
  // A thread of the rank's process copies the one to the other, so a process that is stopped shows.
  FutexWord ping{0};
  FutexWord pong{0};
  // How many changes of weights the rank has made, and whether the last one failed.
  FutexWord num_changes{0};
  std::atomic<uint32_t> change_failed{0};
  // Of the rank's device, when it was asked (WeightsChange::kReportMemory).
  std::atomic<int64_t> free_bytes{0};
  WaitWord wait{0};
  // What its process found at the last ping (Standstill).
  std::atomic<int32_t> num_still_looks{0};
  std::atomic<bool> awaits_ranks{false};

  RankWait rank_wait() const { return RankWait{WaitMark::KindOf(wait.load())}; }
};

// What a rank does with its weights (Executor::Release, Restore); kReportMemory: nothing, it
// reports what its device has free.
enum class WeightsChange : int32_t { kNone, kRelease, kForget, kLoad, kReportMemory };

// How a step's ops run on a device: as they are; once so, and then captured for steps of as many
// requests; as those that were captured. kTakeInDrafts: this is what follows a step with drafts,
// and has its number, Model::TakeInDrafts of the tokens that it has; inputs.logits_rows are the
// drafts. In a pipeline steps may lie between the two.
enum class StepMode : int32_t { kRun, kCapture, kReplay, kTakeInDrafts };

// How many runs of rows a step has, and which of the rest.
struct StepRowCounts {
  int32_t embedded = 0, deepstack = 0;
  bool has_mrope_positions = false, has_last_seen = false;
};

class RankGroup {
 public:
  // The output rank's; the memory is new.
  static StatusOr<std::unique_ptr<RankGroup>> Create(const RankGroupShape& shape);
  // Another rank's. REQUIRES: the memory is that of Create.
  static StatusOr<std::unique_ptr<RankGroup>> Open(UniqueFd file, int rank);

  int file() const { return memory_.file(); }
  int rank() const { return rank_; }
  const RankGroupShape& shape() const { return shape_; }
  const RankCounts& counts() const { return shape_.counts; }
  const RankPlace& place() const { return place_; }
  // The ranks of this stage.
  SharedCommunicator* communicator() { return communicator_.get(); }
  RankLine* lines() { return lines_; }  // by rank
  // Brings the ranks of the stage together where each has a device of its own; all call it, and
  // each waits for the others.
  Status Join(Backend* backend);
  // What the ranks of the stage make whole tensors with.
  RankExchange* ExchangeOf(Backend* backend) {
    return backend->exchange() != nullptr ? backend->exchange() : communicator_.get();
  }

  // ---- the output rank ----
  struct PublishedStep {
    int64_t number = 0;
    // In the ring and in shared memory, until as many steps as stages have come after it, and what
    // follows these.
    StepInputs::Views inputs;
    ListedStepRows rows = {};
  };
  PublishedStep PublishStep(const StepInputs& inputs, const StepLayout& layout,
                            const StepRows& rows = {}, StepMode mode = StepMode::kRun);
  // What follows the step of that number: StepMode::kTakeInDrafts.
  PublishedStep PublishTakenDrafts(const StepInputs& inputs, const StepLayout& layout,
                                   int64_t step);
  // From now on the ranks have caches of num_blocks blocks; 0: none. numbers_per_block: KvCache's,
  // by which the tables of steps are made.
  void PublishKvCache(int32_t num_blocks, int64_t numbers_per_block);
  // The ranks release their weights (kForget: with the files that these came from), or load them.
  void PublishWeights(WeightsChange change);
  // Returns when all have done so. Not OK: a rank could not, its log says why.
  Status AwaitWeights();
  // The least that a device of the other ranks has free.
  StatusOr<int64_t> LeastFreeBytes();

  // ---- the other ranks ----
  struct Record {
    int64_t step = 0;  // its number; 0: this is none
    WeightsChange weights = WeightsChange::kNone;
    int32_t num_blocks = 0;  // of a new KV cache, where there is no other change
    int64_t numbers_per_block = 1;
    StepMode mode = StepMode::kRun;
    StepShape shape = {};
    std::span<const int32_t> numbers = {};  // StepInputs::numbers
    StepInputs::Views inputs = {};
    StepLengths lengths = {};
    std::span<const int64_t> adapters = {};  // AdapterWeights::number, of inputs.adapters
    ListedStepRows rows = {};
  };
  // The next one, once it is there, valid until Release; nullopt: abandoned.
  std::optional<Record> Read();
  void Release();
  void EndWeightsChange(bool failed);

  // ---- all ----
  // Puts the memory that all ranks see for a rank's KV cache in the place of the cache's own. Its
  // pages may be smaller: huge ones are off by default for such memory
  // (transparent_hugepage/shmem_enabled).
  Status PlaceKvCache(int rank, const KvCache& cache) const;
  // The step's hidden states, [num_tokens, H] f32, once the stage before has done its part.
  Tensor AwaitHidden(int64_t step, int64_t num_tokens);
  // What its tokens bring to all layers, [num_tokens, num_layer_inputs] f32, as far as the stages
  // before have made it; empty: nothing.
  Tensor LayerInputsOf(int64_t step, int64_t num_tokens) const;
  // What a head reads of it, [num_tokens, num_state_layers * H] of that type; as the one before.
  Tensor StatesOf(int64_t step, int64_t num_tokens, DType dtype) const;
  // ModelStep::turn.
  int TurnOf(int64_t step) const { return static_cast<int>(step % counts().pipeline); }
  // This stage has done its part. REQUIRES: all its ranks have met since.
  void EndStage(int64_t step);
  void Abandon();
  Status status();

 private:
  struct alignas(64) StageLine {
    FutexWord num_steps{0};  // done, modulo 2^32
    FutexWord num_asleep{0};
  };

  RankGroup(SharedMemory memory, const RankGroupShape& shape, int rank);
  Status MapAll();
  PublishedStep Publish(int64_t step, const StepInputs& inputs, const StepLayout& layout,
                        const StepRows& rows, StepMode mode);
  void PublishChange(WeightsChange weights, int32_t num_blocks = 0, int64_t numbers_per_block = 1);
  void PublishPlace(const std::string& place);
  StatusOr<std::string> AwaitPlace();
  RingShape ring_shape() const;
  // Of a step: the hidden states, the layers' inputs, rows of the host by token, and states for a
  // head.
  int64_t numbers_before_states() const {
    return shape_.hidden_size + shape_.num_layer_inputs + shape_.row_size;
  }
  int64_t states_width() const { return shape_.num_state_layers * shape_.hidden_size; }
  int64_t step_bytes() const {
    return shape_.max_tokens * (numbers_before_states() + states_width()) * int64_t{sizeof(float)};
  }
  // [num_tokens, size] f32, after the parts that have numbers_before numbers of each token.
  Tensor PartOf(int64_t step, int64_t num_tokens, int64_t numbers_before, int64_t size) const;
  Tensor HostRowsOf(int64_t step) const {
    return PartOf(step, shape_.max_tokens, shape_.hidden_size + shape_.num_layer_inputs,
                  shape_.row_size);
  }
  // Those that a record lists.
  ListedStepRows ListRows(int64_t step, const StepRowCounts& has, int64_t num_tokens,
                          std::byte* listed) const;
  WaitMark MarkOf(RankWait wait) {
    return WaitMark(&lines_[rank_].wait, static_cast<uint8_t>(wait));
  }
  int reader() const { return rank_ < counts().output_rank() ? rank_ : rank_ - 1; }

  SharedMemory memory_;
  RankGroupShape shape_;
  int rank_;
  RankPlace place_;
  // Where ranks with devices meet: Backend::MakeMeetingPlace.
  struct alignas(64) MeetingPlace {
    static constexpr size_t kMostBytes = 252;
    FutexWord num_bytes{0};  // 0: it is not known yet
    std::array<char, kMostBytes> bytes = {};
  };

  SharedMemory::Mapping control_, hidden_;
  MeetingPlace* meeting_place_ = nullptr;
  RankLine* lines_ = nullptr;
  StageLine* stages_ = nullptr;
  std::optional<BroadcastRing> ring_;
  std::unique_ptr<SharedCommunicator> communicator_;
  int64_t num_published_ = 0;
  uint32_t num_changes_ = 0;
};

}  // namespace tandem
