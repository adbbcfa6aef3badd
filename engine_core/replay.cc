#include "engine_core/replay.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "engine_core/replay_cursor.h"
#include "engine_core/replayed_executor.h"

namespace tandem {
namespace {

constexpr int32_t kBitsPerWord = 32;

class ReplayedClock final : public Clock {
 public:
  explicit ReplayedClock(ReplayCursor* cursor) : cursor_(cursor) {}
  double Monotonic() const override {
    if (const auto payload = cursor_->Take(RecordKind::kClock)) {
      last_ = ByteReader(*payload).Fixed<double>();
    }
    return last_;
  }
  double Unix() const override { return 0; }

 private:
  ReplayCursor* const cursor_;
  mutable double last_ = 0;
};

// Recorded waits and failures; the masks of a request allow the recorded tokens alone, and force
// what was recorded.
class ReplayedGrammars final : public RequestGrammars {
 public:
  ReplayedGrammars(const ReplayOptions& options, const ReplayedExecutor* executor,
                   ReplayCursor* cursor)
      : options_(options), executor_(executor), cursor_(cursor) {}

  const GrammarDefaults& defaults() const override { return options_.grammars; }
  bool Await(const Request&) override {
    const auto payload = cursor_->Take(RecordKind::kGrammarAwaited);
    return payload && ByteReader(*payload).Fixed<uint8_t>() != 0;
  }
  std::vector<GrammarResult> Take(const GrammarCompiled&) override {
    const auto payload = cursor_->Take(RecordKind::kGrammarsTaken);
    return payload ? UnpackGrammarResults(*payload) : std::vector<GrammarResult>();
  }
  void Foresee(const Scheduler&) override {}
  void BeginMasks(Step* step) override;
  void FinishMasks() override {}
  std::vector<GrammarFailure> TakeFailures() override {
    if (cursor_->next_kind() != RecordKind::kGrammarFailures) return {};
    return UnpackGrammarFailures(*cursor_->Take(RecordKind::kGrammarFailures));
  }
  void DropEnded(const Scheduler&) override {}

 private:
  const ReplayOptions& options_;
  const ReplayedExecutor* const executor_;
  ReplayCursor* const cursor_;
  std::deque<std::vector<int32_t>> masks_;  // of the step
};

// What becomes of a load is among the recorded events.
class ReplayedAdapterLoads final : public AdapterLoads {
 public:
  void Start(AdapterLoad) override {}
};

// What a step has emitted for its i-th request, forced tokens left out.
std::vector<TokenId> TokensOf(const ModelOutput& result, size_t i) {
  std::vector<TokenId> tokens;
  for (const DraftResult& drafted : result.drafts) {
    if (static_cast<size_t>(drafted.request_idx) != i) continue;
    const std::span<const TokenId> accepted = result.Accepted(drafted);
    tokens.assign(accepted.begin(), accepted.end());
  }
  if (i < result.sampled_token_ids.size()) tokens.push_back(result.sampled_token_ids[i]);
  return tokens;
}

void ReplayedGrammars::BeginMasks(Step* step) {
  masks_.clear();
  SchedulerOutput& output = step->output;
  ModelOutput recorded;
  ForcedRuns forced;
  int64_t number = 0;
  if (const auto payload = cursor_->ResultOf(executor_->num_submitted() + 1)) {
    if (!UnpackCollected(*payload, &number, &recorded, &forced).ok()) return;
  }
  const auto num_words =
      static_cast<size_t>((options_.limits.vocab_size + kBitsPerWord - 1) / kBitsPerWord);
  for (size_t i = 0; i < step->requests.size(); ++i) {
    if (!output.requests[i].needs_sample || !step->requests[i]->has_grammar_begun()) continue;
    const std::vector<TokenId> tokens = TokensOf(recorded, i);
    for (size_t place = 0; place <= static_cast<size_t>(output.requests[i].num_draft_tokens);
         ++place) {
      const TokenId token = place < tokens.size() ? tokens[place] : kNoToken;
      const bool is_known = token >= 0 && token < options_.limits.vocab_size;
      std::vector<int32_t>& words = masks_.emplace_back(num_words, is_known ? 0 : -1);
      if (is_known) {
        words[static_cast<size_t>(token / kBitsPerWord)] =
            static_cast<int32_t>(1u << (token % kBitsPerWord));
      }
      output.token_masks.push_back({.request_idx = static_cast<int32_t>(i), .words = words});
    }
  }
  std::ranges::stable_sort(output.token_masks, {}, &TokenMask::request_idx);
  SetForced(forced, &output);
}

bool IsCheckpoint(const FlightRecord& record) {
  return static_cast<RecordKind>(record.kind) == RecordKind::kCheckpoint;
}

int64_t StepOf(const FlightRecord& checkpoint) { return ByteReader(checkpoint.payload).Signed(); }

// The one to begin with.
StatusOr<size_t> ChooseCheckpoint(const FlightFile& file, const ReplayOptions& options) {
  std::optional<size_t> chosen;
  for (size_t i = 0; i < file.records.size(); ++i) {
    if (!IsCheckpoint(file.records[i])) continue;
    if (chosen && options.from_first) break;
    const bool is_late = options.until_step > 0 && StepOf(file.records[i]) >= options.until_step;
    if (!is_late) chosen = i;
  }
  if (chosen) return *chosen;
  const std::vector<int64_t> steps = CheckpointSteps(file);
  return FailedPreconditionError(steps.empty() ? "the recording has no checkpoint to begin with"
                                               : "its oldest checkpoint is after step " +
                                                     std::to_string(steps.front()));
}

// One replay: the engine with all that it sees.
class Flight {
 public:
  Flight(const FlightFile& file, const ReplayOptions& options, size_t begin)
      : options_(options),
        cursor_(&file, begin),
        executor_({.limits = options.limits,
                   .model = options.model,
                   .adapters = options.adapters,
                   .until_step = options.until_step},
                  &cursor_),
        clock_(&cursor_),
        grammars_(options, &executor_, &cursor_) {}

  Status Begin();
  Status Run();
  ReplayResult Result() const;

 private:
  Status Turn(std::string_view payload);
  void EndStep();
  void MeetCheckpoint(std::string_view payload);
  Status End(std::string why) {
    end_ = std::move(why);
    return OkStatus();
  }

  const ReplayOptions& options_;
  ReplayCursor cursor_;
  ReplayedExecutor executor_;
  ReplayedClock clock_;
  ReplayedGrammars grammars_;
  ReplayedAdapterLoads adapter_loads_;
  std::unique_ptr<EngineCore> engine_;
  std::vector<EngineEvent> pending_;
  std::vector<ClientMessage> messages_;
  int64_t first_step_ = 0;
  int64_t num_turns_ = 0;
  bool in_step_ = false;
  std::optional<std::string> end_;
};

Status Flight::Begin() {
  EngineCoreOptions engine = options_.engine;
  engine.grammars = &grammars_;
  engine.kv_connector = nullptr;
  if (engine.scheduler.max_loras > 0) engine.adapter_loads = &adapter_loads_;
  engine.kv_cache.enable_events = false;  // nobody listens
  ASSIGN_OR_RETURN(engine_, EngineCore::Create(engine, &executor_, &clock_));
  ByteReader checkpoint(*cursor_.Take(RecordKind::kCheckpoint));
  const int64_t num_submitted = checkpoint.Signed(), num_collected = checkpoint.Signed();
  RETURN_IF_ERROR(engine_->Load(&checkpoint));
  if (!checkpoint.ok() || !checkpoint.empty()) return DataLossError("its checkpoint is broken");
  executor_.Attach(engine_.get(), num_submitted, num_collected);
  first_step_ = num_submitted + 1;
  return OkStatus();
}

Status Flight::Run() {
  while (!end_ && !cursor_.difference()) {
    const std::optional<RecordKind> kind = cursor_.next_kind();
    if (!kind) {
      // The recorded process ended in this step, or before it had recorded its end.
      if (in_step_) EndStep();
      return End("the end of the recording");
    }
    switch (*kind) {
      case RecordKind::kEvent: {
        ASSIGN_OR_RETURN(EngineEvent event, UnpackEvent(*cursor_.Take(*kind)));
        pending_.push_back(std::move(event));
        break;
      }
      case RecordKind::kTurn:
        RETURN_IF_ERROR(Turn(*cursor_.Take(*kind)));
        break;
      case RecordKind::kEndStep:
        cursor_.Take(*kind);
        EndStep();
        break;
      case RecordKind::kCheckpoint:
        MeetCheckpoint(*cursor_.Take(*kind));
        break;
      case RecordKind::kGap:
        return End("a gap in the recording: " +
                   std::string(ByteReader(*cursor_.Take(*kind)).Bytes()));
      default:
        cursor_.Differ("recorded is a " + std::string(RecordKindName(*kind)) +
                       ", which the engine has not asked for");
    }
  }
  return OkStatus();
}

Status Flight::Turn(std::string_view payload) {
  const bool may_schedule = ByteReader(payload).Fixed<uint8_t>() != 0;
  for (EngineEvent& event : std::exchange(pending_, {})) {
    if (!std::holds_alternative<LogStateRequest>(event)) engine_->Handle(std::move(event));
    if (cursor_.difference()) return OkStatus();
  }
  ++num_turns_;
  Status begun = engine_->BeginStep(may_schedule);
  in_step_ = begun.ok();
  if (begun.ok() || cursor_.difference()) return OkStatus();
  if (executor_.has_ended()) return End(begun.message());
  if (begun.code() == StatusCode::kDataLoss) return begun;
  return End("the executor is lost: " + begun.ToString());
}

void Flight::EndStep() {
  for (const EngineEvent& event : pending_) engine_->HandleAborts(event);
  engine_->EndStep();
  engine_->TakeMessages(&messages_);
  for (ClientMessage& message : messages_) engine_->Recycle(std::move(message.outputs));
  in_step_ = false;
}

// Everything that later steps depend on is compared at once. The events that wait are recorded
// again after it.
void Flight::MeetCheckpoint(std::string_view payload) {
  pending_.clear();
  std::string own(payload.size() + 1, '\0');
  ByteWriter writer(own);
  writer.Signed(executor_.num_submitted());
  writer.Signed(executor_.num_collected());
  if (engine_->CanSave()) engine_->Save(&writer);
  if (!writer.fits() || std::string_view(own).substr(0, writer.size()) != payload) {
    cursor_.Differ("requests, queues or blocks are not those of the checkpoint");
  }
}

ReplayResult Flight::Result() const {
  return {.first_step = first_step_,
          .last_step = executor_.num_submitted(),
          .num_turns = num_turns_,
          .num_compared_tokens = executor_.num_compared_tokens(),
          .difference = cursor_.difference(),
          .end = end_.value_or("a difference"),
          .state = engine_->DebugString()};
}

}  // namespace

StatusOr<ReplayResult> Replay(const FlightFile& file, const ReplayOptions& options) {
  ASSIGN_OR_RETURN(const size_t begin, ChooseCheckpoint(file, options));
  Flight flight(file, options, begin);
  RETURN_IF_ERROR(flight.Begin());
  RETURN_IF_ERROR(flight.Run());
  return flight.Result();
}

std::vector<int64_t> CheckpointSteps(const FlightFile& file) {
  std::vector<int64_t> steps;
  for (const FlightRecord& record : file.records) {
    if (IsCheckpoint(record)) steps.push_back(StepOf(record));
  }
  return steps;
}

}  // namespace tandem
