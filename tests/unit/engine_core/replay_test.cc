// Recorded runs of the engine's own loop under drawn loads, replayed: from each kind of checkpoint,
// with the recorded tokens and with tokens computed again by the simulated model, which checks
// every KV entry it reads. The seed of a failure is printed.

#include "engine_core/replay.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/log.h"
#include "common/unique_fd.h"
#include "engine_core/flight_recorder.h"
#include "engine_core/replayed_executor.h"
#include "proto_msgpack/codec.h"
#include "proto_msgpack/lora_request.h"
#include "proto_msgpack/multimodal.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/sim_executor.h"
#include "tests/simulation/sim_random.h"
#include "tests/support/files/temp_folder.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

// Grammars that are there at once or a little later, and masks that allow everything.
class SimGrammars final : public RequestGrammars {
 public:
  SimGrammars(SimRandom* random, Mailbox<EngineEvent>* events, int32_t vocab_size)
      : random_(random), events_(events), words_(static_cast<size_t>(vocab_size / 32 + 1), -1) {}
  const GrammarDefaults& defaults() const override { return defaults_; }
  bool Await(const Request& request) override {
    if (random_->Chance(0.3)) return true;
    waiting_[++num_compiled_] = {request.id(), request.order, OkStatus()};
    if (random_->Chance(0.1)) waiting_[num_compiled_].status = InvalidArgumentError("no such rule");
    events_->Push(GrammarCompiled{num_compiled_, OkStatus(), nullptr});
    return false;
  }
  std::vector<GrammarResult> Take(const GrammarCompiled& compiled) override {
    return {waiting_.at(compiled.grammar_id)};
  }
  void Foresee(const Scheduler&) override {}
  void BeginMasks(Step* step) override {
    for (size_t i = 0; i < step->requests.size(); ++i) {
      const Request& request = *step->requests[i];
      if (!step->output.requests[i].needs_sample || !request.has_grammar_begun()) continue;
      for (int32_t place = 0; place <= step->output.requests[i].num_draft_tokens; ++place) {
        step->output.token_masks.push_back({static_cast<int32_t>(i), words_});
      }
      if (random_->Chance(0.05)) failures_.push_back({request.id(), request.order, {}, true});
    }
  }
  void FinishMasks() override {}
  std::vector<GrammarFailure> TakeFailures() override { return std::exchange(failures_, {}); }
  void DropEnded(const Scheduler&) override {}

 private:
  SimRandom* random_;
  Mailbox<EngineEvent>* events_;
  std::vector<int32_t> words_;
  GrammarDefaults defaults_;
  std::map<int64_t, GrammarResult> waiting_;
  std::vector<GrammarFailure> failures_;
  int64_t num_compiled_ = 0;
};

// Adapters that are there a little later, or cannot be used.
class SimLoads final : public AdapterLoads {
 public:
  SimLoads(SimRandom* random, Mailbox<EngineEvent>* events) : random_(random), events_(events) {}
  void Start(AdapterLoad load) override {
    const bool fails = random_->Chance(0.1);
    ++num_loads;
    const auto digest = static_cast<uint64_t>(load.name.back()) + (random_->Chance(0.3) ? 1 : 0);
    events_->Push(AdapterLoaded{
        load.id, fails ? InvalidArgumentError("no such folder") : OkStatus(), digest, nullptr});
  }
  int64_t num_loads = 0;

 private:
  SimRandom* random_;
  Mailbox<EngineEvent>* events_;
};

constexpr size_t kLargeRing = size_t{1} << 20;  // nothing is dropped
constexpr size_t kSmallRing = size_t{1} << 17;

class RecordedLoad {
 public:
  RecordedLoad(uint64_t seed, size_t ring_bytes)
      : random_(seed),
        scenario_(DrawScenario(seed, &random_)),
        ring_(*FlightRing::Create(ring_bytes, "")),
        recorder_(&ring_, static_cast<uint64_t>(random_.Between(500, 4000))),
        model_(MakeModel(0)),
        grammars_(&random_, &events_, scenario_.limits.vocab_size) {
    scenario_.options.enable_sleep_mode = true;
    if (scenario_.drafter_seed) model_->DraftWith(*scenario_.drafter_seed);
    for (auto& [id, stream] : scenario_.streams) {
      if (!stream.refused && random_.Chance(0.2)) {
        stream.request.sampling_params.structured_outputs.emplace().regex = "a*";
      }
    }
  }
  // Some requests get adapters, drawn from a generator of its own.
  void AddAdapters(uint64_t seed) {
    SimRandom draw(~seed);
    scenario_.options.scheduler.max_loras = draw.Between(1, 2);
    scenario_.options.max_cpu_loras = draw.Between(2, 3);
    for (auto& [id, stream] : scenario_.streams) {
      if (stream.refused || draw.Chance(0.4)) continue;
      stream.request.lora_request = wire::Packed(DrawLora(&draw));
    }
    has_adapters_ = true;
  }
  // The images that were drawn for streams, in their requests; none if none were drawn.
  void AddImages() {
    for (auto& [id, stream] : scenario_.streams) {
      if (stream.needs.images == nullptr) continue;
      const std::string numbers(size_t{8} * scenario_.limits.max_model_len, '\x01');
      std::vector<wire::MultiModalFeature> features;
      std::vector<std::vector<int64_t>> grids(stream.needs.images->size());
      for (const auto& image : *stream.needs.images) {
        const int64_t num_rows = image->num_rows;
        std::vector<int64_t>& grid = grids[features.size()];
        grid = {1, num_rows, 1};
        wire::MultiModalFeature& feature = features.emplace_back();
        feature.identifier = image->identifier;
        feature.offset = image->begin;
        feature.length = image->num_tokens;
        for (int32_t p = image->begin; p < image->end(); ++p) {
          feature.is_embed.push_back(image->HasRowsIn(p, p + 1));
          if (feature.is_embed.back()) {
            stream.request.prompt_token_ids[static_cast<size_t>(p)] = 1;
          }
        }
        const auto num_bytes = static_cast<size_t>(8 * num_rows);
        feature.data = {{"pixel_values",
                         {"float32", {num_rows, 2}, std::string_view(numbers).substr(0, num_bytes)},
                         "flat",
                         wire::FlatKwargs(num_rows)},
                        {"image_grid_thw",
                         {"int64", {3}, {reinterpret_cast<const char*>(grid.data()), 24}},
                         "batched",
                         wire::BatchedKwargs(true)}};
      }
      wire::EncodeFeatures(features, &stream.request);
      has_images_ = true;
    }
  }
  bool has_images() const { return has_images_; }
  static bool IsReplayable(uint64_t seed) { return seed % 4 != 0; }  // has things outside

  // Another drafter's drafts are not the simulated model's own; and it spoils KV of a request that
  // fails when its result is collected, which is sooner in a replay.
  bool IsComputable() const {
    if (scenario_.drafter_seed || has_images_) return false;
    return !scenario_.options.async_scheduling ||
           std::none_of(scenario_.streams.begin(), scenario_.streams.end(),
                        [](const auto& entry) { return entry.second.fails_after.has_value(); });
  }

  // Until every request has ended, or the executor is lost.
  Status Run() {
    EngineCoreOptions options = scenario_.options;
    options.grammars = &recorded_grammars_;
    if (has_adapters_) options.adapter_loads = &loads_;
    auto engine = EngineCore::Create(options, &executor_, &recorded_clock_);
    REQUIRE(engine.ok());
    engine_ = std::move(*engine);
    Act();
    return RunEngineLoop(
        engine_.get(),
        {.events = &events_,
         .send = [this](int32_t, wire::EngineCoreOutputs message) { Receive(message); },
         .take_spent = [] { return wire::EngineCoreOutputs(); },
         .recorder = &recorder_});
  }

  std::string Bytes() const {
    const TempFolder folder;
    const UniqueFd fd(open(folder.PathOf("f").c_str(), O_CREAT | O_WRONLY, 0600));
    REQUIRE(ring_.WriteTo(fd.get(), "test") == 0);
    return folder.Read("f");
  }
  // For a replay of it, with room for spare blocks.
  std::unique_ptr<SimExecutor> MakeModel(int32_t num_spare_blocks) {
    ExecutorLimits limits = scenario_.limits;
    limits.num_blocks += num_spare_blocks;
    auto model = std::make_unique<SimExecutor>(limits);
    model->FailRequestsWhere([this](const RequestId& id, std::span<const TokenId> token_ids) {
      const Stream& stream = scenario_.streams.at(id);
      return stream.fails_after == token_ids.size() - stream.num_prompt_tokens();
    });
    return model;
  }
  ReplayOptions Options() const {
    ExecutorLimits limits = scenario_.limits;
    if (limits.images) limits.images->lack_pixels = true;
    return {.engine = scenario_.options,
            .limits = limits,
            .grammars = {},
            .adapters = [](const Adapter&) -> StatusOr<std::shared_ptr<const AdapterWeights>> {
              return std::shared_ptr<const AdapterWeights>();
            }};
  }
  void SendLargeRequest() { sends_large_request_ = true; }
  const Scenario& scenario() const { return scenario_; }
  SimExecutor& model() { return *model_; }
  int64_t num_adapter_loads() const { return loads_.num_loads; }
  int64_t num_sleeps() const { return num_sleeps_; }

 private:
  void Receive(const wire::EngineCoreOutputs& message) {
    for (const RequestId& id : message.finished_requests) live_.erase(id);
    if (message.utility_output && is_paused_) Resume();
    Act();
  }

  void Act() {
    clock_.Advance(0.001 * random_.Between(0, 20));
    while (next_ < scenario_.order.size() &&
           (random_.Chance(scenario_.arrival_chance / 2) || live_.empty())) {
      const wire::EngineCoreRequest& request =
          scenario_.streams.at(scenario_.order[next_++]).request;
      live_.insert(request.request_id);
      events_.Push(wire::EngineInput(request));
    }
    if (live_.empty()) return events_.Push(ShutdownRequest{});
    if (sends_large_request_ && next_ > scenario_.order.size() / 2) {
      sends_large_request_ = false;
      wire::EngineCoreRequest request = scenario_.streams.begin()->second.request;
      request.request_id = "large";
      request.prompt_embeds = wire::PackedInt(1);
      request.aux_frames.emplace_back(ring_.bytes(), 'x');
      events_.Push(wire::EngineInput(std::move(request)));
    }
    if (random_.Chance(0.05)) events_.Push(wire::EngineInput(wire::AbortRequest{*live_.begin()}));
    if (random_.Chance(0.02)) {
      Call("reset_prefix_cache", wire::PackedArray({wire::PackedBool(random_.Chance(0.5))}));
    }
    if (random_.Chance(0.02) && !is_paused_) {
      const char* modes[] = {"abort", "wait", "keep"};
      is_paused_ = true;
      const wire::RawValue mode = wire::PackedString(modes[random_.Between(0, 2)]);
      if (random_.Chance(0.5)) {
        Call("pause_scheduler", wire::PackedArray({mode, wire::PackedBool(random_.Chance(0.5))}));
      } else {
        ++num_sleeps_;
        Call("sleep", wire::PackedArray({wire::PackedInt(random_.Between(0, 2)), mode}));
      }
    }
    if (has_adapters_ && random_.Chance(0.1)) {
      wire::LoraRequest lora = DrawLora(&random_);
      lora.load_inplace = random_.Chance(0.5);
      Call("add_lora", wire::PackedArray({wire::Packed(lora)}));
      if (random_.Chance(0.3)) Call("remove_lora", wire::PackedArray({wire::PackedInt(lora.id)}));
    }
    if (random_.Chance(0.02)) events_.Push(LogStateRequest{});
  }
  static wire::LoraRequest DrawLora(SimRandom* random) {
    const int32_t id = random->Between(1, 4);
    const std::string name = "lora" + std::to_string(id);
    return {.name = name, .id = id, .path = "/" + name};
  }
  void Resume() {
    is_paused_ = false;
    if (random_.Chance(0.3)) Call("release_kv_cache_memory", {});
    if (random_.Chance(0.3)) {
      model_->FailNextLoad();
      Call("wake_up", {});
    }
    if (random_.Chance(0.5)) {
      Call("wake_up", wire::PackedArray({wire::PackedStrings({"weights"})}));
    }
    Call("resume_scheduler", {});  // refused while memory is released
    Call("wake_up", {});
    Call("wake_up", {});
  }
  void Call(std::string method, wire::RawValue args) {
    events_.Push(wire::EngineInput(wire::UtilityRequest{0, ++num_calls_, std::move(method), args}));
  }

  SimRandom random_;
  Scenario scenario_;
  ManualClock clock_{100};
  Mailbox<EngineEvent> events_;
  FlightRing ring_;
  FlightRecorder recorder_;
  std::unique_ptr<SimExecutor> model_;
  SimGrammars grammars_;
  SimLoads loads_{&random_, &events_};
  bool has_adapters_ = false, has_images_ = false;
  RecordedClock recorded_clock_{&clock_, &recorder_};
  RecordedExecutor executor_{model_.get(), &recorder_};
  RecordedGrammars recorded_grammars_{&grammars_, &recorder_};
  std::unique_ptr<EngineCore> engine_;
  size_t next_ = 0;
  std::set<RequestId> live_;
  bool is_paused_ = false;
  bool sends_large_request_ = false;
  uint64_t num_calls_ = 0;
  int64_t num_sleeps_ = 0;
};

FlightFile Parse(std::string bytes) {
  auto file = ParseFlightFile(std::move(bytes));
  REQUIRE(file.ok());
  return *std::move(file);
}

ReplayResult MustReplay(const FlightFile& file, const ReplayOptions& options) {
  const StatusOr<ReplayResult> result = Replay(file, options);
  REQUIRE(result.status().ToString() == OkStatus().ToString());
  return *result;
}

TEST_CASE("Replay: drawn loads repeat step by step, from the first and the nearest checkpoint") {
  REQUIRE(InitLog("replay", "ERROR").ok());
  int64_t num_steps = 0, num_tokens = 0, num_later_checkpoints = 0, num_adapter_loads = 0;
  int64_t num_sleeps = 0, num_with_images = 0;
  for (uint64_t seed = 1; seed <= 480; ++seed) {
    if (!RecordedLoad::IsReplayable(seed)) continue;
    CAPTURE(seed);
    RecordedLoad load(seed, seed % 2 == 0 ? kSmallRing : kLargeRing);
    if (seed % 3 == 0) load.AddAdapters(seed);
    if (seed % 6 == 1) load.AddImages();
    REQUIRE(load.Run().ok());
    num_with_images += load.has_images();
    const FlightFile file = Parse(load.Bytes());
    num_adapter_loads += load.num_adapter_loads();
    num_sleeps += load.num_sleeps();
    num_later_checkpoints += static_cast<int64_t>(CheckpointSteps(file).size()) - 1;
    for (const bool from_first : {true, false}) {
      for (const bool computes : {false, true}) {
        if (computes && !load.IsComputable()) continue;
        CAPTURE(from_first, computes, load.scenario().Describe());
        const auto model = load.MakeModel(ReplayedExecutor::NumSpareBlocks(load.scenario().limits));
        ReplayOptions options = load.Options();
        options.from_first = from_first;
        if (computes) options.model = model.get();
        const ReplayResult result = MustReplay(file, options);
        CHECK(result.difference.value_or("") == "");
        CHECK(result.end == "the end of the recording");
        CHECK(result.last_step == load.model().num_steps());
        num_steps += result.last_step - result.first_step + 1;
        num_tokens += result.num_compared_tokens;
      }
    }
  }
  CHECK(num_later_checkpoints > 100);
  CHECK(num_adapter_loads > 300);
  CHECK(num_sleeps > 100);
  CHECK(num_with_images > 20);
  CHECK(num_steps > 20'000);
  CHECK(num_tokens > 10'000);
}

TEST_CASE("Replay: a model that has no pixels ends before the first request with images") {
  REQUIRE(InitLog("replay", "ERROR").ok());
  for (uint64_t seed = 1;; seed += 3) {
    REQUIRE(seed < 100);
    RecordedLoad load(seed, kLargeRing);
    load.AddImages();
    if (!load.has_images() || !RecordedLoad::IsReplayable(seed)) continue;
    CAPTURE(seed);
    REQUIRE(load.Run().ok());
    const auto model = load.MakeModel(ReplayedExecutor::NumSpareBlocks(load.scenario().limits));
    ReplayOptions options = load.Options();
    options.from_first = true;
    options.model = model.get();
    const ReplayResult result = MustReplay(Parse(load.Bytes()), options);
    CHECK(result.difference.value_or("") == "");
    CHECK(result.end.find("has images, whose pixels are not recorded") != std::string::npos);
    return;
  }
}

// A load of some hundred steps without drafts.
constexpr uint64_t kSeed = 1;

// The payload of the last record of a kind, in the bytes themselves.
size_t PlaceOfLast(const FlightFile& file, RecordKind kind, int64_t* step) {
  for (size_t i = file.records.size(); i-- > 0;) {
    if (static_cast<RecordKind>(file.records[i].kind) != kind) continue;
    *step = ByteReader(file.records[i].payload).Signed();
    return static_cast<size_t>(file.records[i].payload.data() - file.bytes.data());
  }
  FAIL("no such record");
  return 0;
}

TEST_CASE("Replay: a digest that differs is found in its step") {
  REQUIRE(InitLog("replay", "ERROR").ok());
  RecordedLoad load(kSeed, kLargeRing);
  REQUIRE(load.Run().ok());
  std::string bytes = load.Bytes();
  int64_t step = 0;
  const size_t place = PlaceOfLast(Parse(bytes), RecordKind::kSubmitted, &step);
  bytes[place + 4] = static_cast<char>(bytes[place + 4] ^ 1);  // of the digest
  const ReplayResult result = MustReplay(Parse(bytes), load.Options());
  REQUIRE(result.difference);
  CHECK(result.difference->find("digest") != std::string::npos);
  CHECK(result.last_step == step);
}

TEST_CASE("Replay: it stops before the step that is asked for") {
  REQUIRE(InitLog("replay", "ERROR").ok());
  RecordedLoad load(kSeed, kLargeRing);
  REQUIRE(load.Run().ok());
  const FlightFile file = Parse(load.Bytes());
  ReplayOptions options = load.Options();
  const ReplayResult all = MustReplay(file, options);
  options.until_step = all.last_step - 1;
  const ReplayResult result = MustReplay(file, options);
  CHECK(result.last_step == all.last_step - 2);
  CHECK(result.end == "stopped before step " + std::to_string(all.last_step - 1));
  CHECK(result.state.find("steps ") == 0);
  options.until_step = 1;
  CHECK(MustReplay(file, options).last_step == 0);
}

// Steps that do not overlap: a loss shows in its own one.
bool HasPlainSteps(uint64_t seed) {
  if (!RecordedLoad::IsReplayable(seed)) return false;
  RecordedLoad load(seed, kLargeRing);
  return !load.scenario().options.async_scheduling && load.Run().ok() &&
         load.model().num_steps() > 20;
}

TEST_CASE("Replay: the loss of an executor is part of the recording") {
  REQUIRE(InitLog("replay", "ERROR").ok());
  uint64_t seed = 1;
  while (!HasPlainSteps(seed)) ++seed;
  CAPTURE(seed);
  for (const int32_t step : {8, 9}) {  // between two steps, and while one runs
    RecordedLoad load(seed, kLargeRing);
    load.model().LoseAfter(step);
    REQUIRE_FALSE(load.Run().ok());
    const ReplayResult result = MustReplay(Parse(load.Bytes()), load.Options());
    CHECK_FALSE(result.difference);
    CHECK(result.end.find("the simulated device is gone") != std::string::npos);
    CHECK(result.last_step == step);
  }
}

TEST_CASE("Replay: a process that ended in the middle of a step is followed into that step") {
  REQUIRE(InitLog("replay", "ERROR").ok());
  RecordedLoad load(kSeed, kLargeRing);
  REQUIRE(load.Run().ok());
  const std::string bytes = load.Bytes();
  const FlightFile whole = Parse(bytes);
  int64_t step = 0;
  const size_t place = PlaceOfLast(whole, RecordKind::kCollected, &step);
  const FlightFile file = Parse(bytes.substr(0, place - kRecordHeadBytes));
  const auto model = load.MakeModel(0);
  ReplayOptions options = load.Options();
  options.model = model.get();
  const ReplayResult computed = MustReplay(file, options);
  CHECK_FALSE(computed.difference);
  CHECK(computed.last_step == step);
  options.model = nullptr;
  const ReplayResult recorded = MustReplay(file, options);
  CHECK(recorded.end == "the recorded process ended in step " + std::to_string(step));
}

TEST_CASE("Replay: what is too large is a gap, after which a checkpoint comes soon") {
  REQUIRE(InitLog("replay", "ERROR").ok());
  RecordedLoad load(kSeed, kLargeRing);
  load.SendLargeRequest();
  REQUIRE(load.Run().ok());
  const FlightFile file = Parse(load.Bytes());
  ReplayOptions options = load.Options();
  const ReplayResult nearest = MustReplay(file, options);
  CHECK_FALSE(nearest.difference);
  CHECK(nearest.end == "the end of the recording");
  options.from_first = true;
  const ReplayResult first = MustReplay(file, options);
  CHECK_FALSE(first.difference);
  CHECK(first.end.find("larger than a segment") != std::string::npos);
  CHECK(first.last_step < nearest.last_step);
}

TEST_CASE("Replay: a recording without a checkpoint, or with a broken one, is refused") {
  REQUIRE(InitLog("replay", "ERROR").ok());
  RecordedLoad load(kSeed, kLargeRing);
  REQUIRE(load.Run().ok());
  const std::string bytes = load.Bytes();
  const FlightFile file = Parse(bytes);
  CHECK(Replay(Parse(bytes.substr(0, kRingHeadBytes)), load.Options()).status().code() ==
        StatusCode::kFailedPrecondition);
  for (const FlightRecord& record : file.records) {
    if (static_cast<RecordKind>(record.kind) != RecordKind::kCheckpoint) continue;
    std::string broken = bytes;
    const auto end =
        static_cast<size_t>(record.payload.data() - file.bytes.data()) + record.payload.size();
    for (size_t i = end - 3; i < end; ++i) broken[i] = '\xff';
    ReplayOptions options = load.Options();
    options.from_first = true;
    CHECK_FALSE(Replay(Parse(broken), options).ok());
    break;
  }
}

TEST_CASE("what a step's masks force is recorded with its result") {
  SchedulerOutput step;
  step.forced_token_ids = {7, 8, 9};
  step.token_masks = {{.request_idx = 1, .words = {}, .forced_begin = 0, .num_forced = 2},
                      {.request_idx = 2, .words = {}},
                      {.request_idx = 4, .words = {}, .forced_begin = 2, .num_forced = 1}};
  ForcedRuns forced, read;
  CopyForced(step, &forced);
  ModelOutput result, same;
  result.sampled_token_ids = {1, 2, 3, 4, 5};
  std::string bytes(256, '\0');
  ByteWriter writer(bytes);
  PackCollected(3, result, forced, &writer);
  int64_t number = 0;
  REQUIRE(UnpackCollected(std::string_view(bytes).substr(0, writer.size()), &number, &same, &read)
              .ok());
  CHECK(read == forced);
  SchedulerOutput again;
  again.token_masks = {{.request_idx = 0, .words = {}},
                       {.request_idx = 1, .words = {}},
                       {.request_idx = 4, .words = {}}};
  SetForced(read, &again);
  CHECK(again.Forced(again.token_masks[0]).empty());
  CHECK(std::ranges::equal(again.Forced(again.token_masks[1]), std::vector<TokenId>{7, 8}));
  CHECK(std::ranges::equal(again.Forced(again.token_masks[2]), std::vector<TokenId>{9}));
  // What nothing has written is left out.
  for (const ForcedRuns& broken : {ForcedRuns{1, 5, 6}, ForcedRuns{1, -1}, ForcedRuns{3, 1, 6}}) {
    SchedulerOutput other;
    other.token_masks = {{.request_idx = 1, .words = {}}};
    SetForced(broken, &other);
    CHECK(other.forced_token_ids.empty());
  }
}

}  // namespace
}  // namespace tandem
