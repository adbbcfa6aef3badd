// Adapters through the engine, with loads that the test ends: requests wait, run or fail, calls get
// their replies, the cache keeps what fits, and a checkpoint has all of it.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine_core/engine_core.h"
#include "proto_msgpack/codec.h"
#include "proto_msgpack/lora_request.h"
#include "proto_msgpack/wire_endpoint.h"
#include "tests/simulation/sim_executor.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Ids = std::vector<RequestId>;

class HeldLoads final : public AdapterLoads {
 public:
  void Start(AdapterLoad load) override { started.push_back(std::move(load)); }
  std::vector<AdapterLoad> started;
};

ExecutorLimits SmallLimits() {
  ExecutorLimits limits;
  limits.num_blocks = 65;
  limits.block_size = 4;
  limits.max_num_seqs = 4;
  limits.max_num_batched_tokens = 32;
  limits.max_model_len = 64;
  limits.vocab_size = 1 << 20;
  return limits;
}

wire::LoraRequest Lora(const std::string& name, int64_t id, bool load_inplace = false) {
  return {.name = name, .id = id, .path = "/adapters/" + name, .load_inplace = load_inplace};
}

class Engine {
 public:
  explicit Engine(int32_t max_loras = 2, int32_t max_cpu_loras = 2, bool is_on = true)
      : executor(SmallLimits()) {
    EngineCoreOptions options;
    options.scheduler.max_loras = is_on ? max_loras : 0;
    options.max_cpu_loras = max_cpu_loras;
    if (is_on) options.adapter_loads = &loads;
    auto created = EngineCore::Create(options, &executor, &clock);
    REQUIRE(created.ok());
    core = std::move(*created);
    // Adapters of other weights are other models: their KV is their own.
    executor.BeginPrefixesWith([this](const RequestId& id) {
      const Request* request = core->scheduler().Find(id);
      const Adapter* adapter = request == nullptr ? nullptr : request->adapter();
      return adapter == nullptr ? 0 : std::hash<std::string>()(adapter->name) + adapter->digest;
    });
  }

  void Add(const RequestId& id, const std::string& adapter, int64_t lora_id = 1,
           int32_t max_tokens = 4) {
    wire::EngineCoreRequest request;
    request.request_id = id;
    request.prompt_token_ids = {10, 11, 12, 13, 14, 15, 16, 17, 18};
    request.sampling_params.max_tokens = max_tokens;
    if (!adapter.empty()) request.lora_request = wire::Packed(Lora(adapter, lora_id));
    core->Handle(std::move(request));
  }
  void Call(uint64_t call_id, std::string method, wire::RawValue argument) {
    core->Handle(wire::UtilityRequest{1, call_id, std::move(method),
                                      wire::PackedArray({std::move(argument)})});
  }
  void AddLora(uint64_t call_id, const wire::LoraRequest& lora) {
    Call(call_id, "add_lora", wire::Packed(lora));
  }
  void Stage(uint64_t call_id, const wire::LoraRequest& lora) {
    Call(call_id, std::string(wire::kStageLoraMethod), wire::Packed(lora));
  }
  void Settle(uint64_t call_id, const wire::LoraRequest& lora, bool takes_place) {
    core->Handle(wire::UtilityRequest{
        1, call_id, std::string(wire::kSettleLoraMethod),
        wire::PackedArray({wire::Packed(lora), wire::PackedBool(takes_place)})});
  }
  // Ends the load that was started first.
  void EndLoad(uint64_t digest, Status status = OkStatus()) {
    REQUIRE(!loads.started.empty());
    core->Handle(AdapterLoaded{loads.started.front().id, std::move(status), digest, nullptr});
    loads.started.erase(loads.started.begin());
  }
  std::vector<std::string> Started() const {
    std::vector<std::string> names;
    for (const AdapterLoad& load : loads.started) names.push_back(load.name);
    return names;
  }
  void Step() {
    clock.Advance(0.1);
    REQUIRE(core->Step().ok());
    std::vector<ClientMessage> messages;
    core->TakeMessages(&messages);
    for (ClientMessage& message : messages) {
      for (auto& record : message.outputs.outputs) {
        if (record.error) errors.push_back(record.request_id + ": " + record.error->message);
        if (record.error) codes.push_back(record.error->code);
        if (record.prefill_stats)
          cached[record.request_id] = record.prefill_stats->num_cached_tokens;
      }
      for (auto& id : message.outputs.finished_requests) finished.push_back(id);
      if (message.outputs.utility_output) replies.push_back(*message.outputs.utility_output);
      if (message.outputs.scheduler_stats) stats = *message.outputs.scheduler_stats;
    }
  }
  void Finish() {
    for (int i = 0; core->HasWork(); ++i) {
      REQUIRE(i < 1000);
      Step();
    }
  }

  HeldLoads loads;
  ManualClock clock{10};
  SimExecutor executor;
  std::unique_ptr<EngineCore> core;
  Ids finished;
  std::vector<std::string> errors, codes;
  std::map<RequestId, int64_t> cached;
  std::vector<wire::UtilityOutput> replies;
  wire::SchedulerStats stats;
};

TEST_CASE("adapters: a request waits for the load of its adapter, others run") {
  Engine engine;
  engine.Add("a", "x");
  engine.Add("base", "");
  engine.Add("b", "x");
  engine.Finish();
  CHECK(engine.Started() == std::vector<std::string>{"x"});
  CHECK(engine.loads.started[0].folder == "/adapters/x");
  CHECK(engine.finished == Ids{"base"});
  CHECK(engine.stats.waiting_lora_adapters == wire::CountsByName{{"x", 2}});
  CHECK(engine.stats.running_lora_adapters.empty());
  CHECK(engine.stats.num_skipped_waiting_reqs == 2);
  engine.EndLoad(1);
  engine.Step();
  CHECK(engine.stats.running_lora_adapters == wire::CountsByName{{"x", 2}});
  engine.Finish();
  CHECK(engine.finished == Ids{"base", "a", "b"});
  CHECK(engine.errors.empty());
  engine.Add("c", "x");  // it is there
  engine.Finish();
  CHECK(engine.finished.back() == "c");
  CHECK(engine.Started().empty());
}

TEST_CASE("adapters: a bad one ends its requests with the reason, and the next one tries again") {
  Engine engine;
  engine.Add("a", "bad");
  engine.Add("b", "good", 2);
  engine.Add("c", "bad");
  engine.Finish();
  engine.EndLoad(0, NotFoundError("Loading lora bad failed: No adapter found for /adapters/bad"));
  engine.EndLoad(7);
  engine.Finish();
  CHECK(engine.errors ==
        std::vector<std::string>{"a: Loading lora bad failed: No adapter found for /adapters/bad",
                                 "c: Loading lora bad failed: No adapter found for /adapters/bad"});
  CHECK(engine.codes[0] == wire::kErrorValidation);
  CHECK(engine.finished == Ids{"a", "c", "b"});
  engine.Add("d", "bad");
  engine.Finish();
  engine.EndLoad(3);
  engine.Finish();
  CHECK(engine.finished.back() == "d");
  CHECK(engine.errors.size() == 2);
}

TEST_CASE("adapters: an aborted request leaves its load to the others, or to none") {
  Engine engine(1, 1);
  engine.Add("a", "x");
  engine.Add("b", "y", 2);  // waits for room
  engine.Step();
  CHECK(engine.Started() == std::vector<std::string>{"x"});
  engine.core->Handle(wire::AbortRequest{"a", "b"});
  engine.Finish();
  engine.EndLoad(1);
  engine.Finish();
  CHECK(engine.Started().empty());
  CHECK(engine.core->adapters().Ids() == std::vector<int64_t>{1});
  // The id is another request's by now.
  engine.Add("c", "z", 3);
  engine.Step();
  engine.core->Handle(wire::AbortRequest{"c"});
  engine.Add("c", "");
  engine.EndLoad(2);
  engine.Finish();
  CHECK(engine.finished.back() == "c");
  CHECK(engine.errors.empty());
}

TEST_CASE("adapters: the one that was used longest ago leaves for one that is asked for") {
  Engine engine(2, 2);
  for (const auto& [id, name] : {std::pair{1, "x"}, std::pair{2, "y"}}) {
    engine.Add(name, name, id);
    engine.Step();
    engine.EndLoad(static_cast<uint64_t>(id));
    engine.Finish();
  }
  engine.Add("x again", "x", 1);
  engine.Finish();
  CHECK(engine.core->adapters().Ids() == std::vector<int64_t>{1, 2});
  engine.Add("z", "z", 3);
  engine.Step();
  engine.EndLoad(3);
  engine.Finish();
  CHECK(engine.core->adapters().Ids() == std::vector<int64_t>{1, 3});
}

TEST_CASE("adapters: a load waits while requests have all that are kept") {
  Engine engine(1, 1);
  engine.Add("a", "x", 1, /*max_tokens=*/20);
  engine.Step();
  engine.EndLoad(1);
  engine.Step();
  engine.Add("b", "y", 2);
  engine.Step();
  CHECK(engine.Started().empty());
  CHECK(engine.stats.waiting_lora_adapters == wire::CountsByName{{"y", 1}});
  while (engine.finished.empty()) engine.Step();
  engine.Step();
  CHECK(engine.Started() == std::vector<std::string>{"y"});
  engine.EndLoad(2);
  engine.Finish();
  CHECK(engine.finished == Ids{"a", "b"});
  CHECK(engine.core->adapters().Ids() == std::vector<int64_t>{2});
}

TEST_CASE("adapters: add_lora replies when the adapter is there, or with the reason") {
  Engine engine(1, 1);
  engine.AddLora(1, Lora("x", 1));
  engine.AddLora(2, Lora("x", 1));  // joins
  CHECK(engine.loads.started.size() == 1);
  engine.Finish();
  CHECK(engine.replies.empty());
  engine.EndLoad(1);
  engine.AddLora(3, Lora("x", 1));
  engine.AddLora(4, Lora("bad", 2));
  engine.EndLoad(0, InvalidArgumentError("use_dora is true: DoRA is not supported"));
  engine.AddLora(5, Lora("", 3));
  engine.Finish();
  REQUIRE(engine.replies.size() == 5);
  for (size_t i = 0; i < 3; ++i) {
    CHECK(engine.replies[i].call_id == i + 1);
    CHECK(engine.replies[i].result == wire::PackedBool(true));
  }
  CHECK(engine.replies[3].failure_message == "use_dora is true: DoRA is not supported");
  CHECK(engine.replies[4].failure_message == "a LoRA adapter needs a name and a path");
  CHECK(engine.core->adapters().Ids() == std::vector<int64_t>{1});  // a failure changes nothing
  engine.replies.clear();
  engine.Call(6, "remove_lora", wire::PackedInt(1));
  engine.Call(7, "remove_lora", wire::PackedInt(1));
  engine.Call(8, "pin_lora", wire::PackedInt(1));
  engine.Finish();
  REQUIRE(engine.replies.size() == 3);
  CHECK(engine.replies[0].result == wire::PackedBool(true));
  CHECK(engine.replies[1].result == wire::PackedBool(false));
  CHECK(engine.replies[2].failure_message == "Pinning failed. LoRA 1 is not registered.");
}

TEST_CASE("adapters: a pinned one does not leave, and one place is left for others") {
  Engine engine(2, 2);
  for (int64_t id = 1; id <= 2; ++id) {
    engine.AddLora(static_cast<uint64_t>(id), Lora(id == 1 ? "x" : "y", id));
    engine.EndLoad(static_cast<uint64_t>(id));
  }
  engine.Call(3, "pin_lora", wire::PackedInt(1));
  engine.Call(4, "pin_lora", wire::PackedInt(2));
  engine.AddLora(5, Lora("z", 3));
  engine.EndLoad(3);
  engine.Call(6, "list_loras", {});
  engine.Finish();
  REQUIRE(engine.replies.size() == 6);
  CHECK(engine.replies[2].result == wire::PackedBool(true));
  CHECK(engine.replies[3].failure_message->find("one place must be left") != std::string::npos);
  CHECK(engine.replies[5].result == wire::PackedArray({wire::PackedInt(1), wire::PackedInt(3)}));
}

TEST_CASE("adapters: an unloaded one serves its requests to their end and is read again after") {
  Engine engine;
  engine.Add("a", "x", 1, /*max_tokens=*/10);
  engine.Step();
  engine.EndLoad(1);
  engine.Step();
  engine.Add("b", "y", 2);
  engine.Step();
  engine.Call(1, "remove_lora", wire::PackedInt(1));
  engine.Call(2, "remove_lora", wire::PackedInt(2));  // while it is being loaded
  engine.EndLoad(2);
  engine.Finish();
  CHECK(engine.finished == Ids{"b", "a"});
  CHECK(engine.core->adapters().Ids().empty());
  engine.Add("c", "x");
  engine.Step();
  CHECK(engine.Started() == std::vector<std::string>{"x"});
  engine.EndLoad(1);
  engine.Finish();
  CHECK(engine.finished.back() == "c");
}

TEST_CASE("adapters: reloading in place leaves running requests alone and shares no blocks") {
  Engine engine;
  engine.Add("a", "x", 1, /*max_tokens=*/30);
  engine.Step();
  engine.EndLoad(1);
  engine.Step();
  engine.AddLora(1, Lora("x", 1, /*load_inplace=*/true));
  engine.Add("b", "x");  // before the new weights are there
  engine.Step();
  engine.EndLoad(2);
  engine.Add("c", "x");
  engine.Finish();
  CHECK(engine.finished.size() == 3);
  CHECK(engine.cached.at("b") == 8);  // a's blocks
  CHECK(engine.cached.at("c") == 0);
  // The first weights again: their blocks are found again.
  engine.AddLora(2, Lora("x", 1, /*load_inplace=*/true));
  engine.EndLoad(1);
  engine.Finish();
  CHECK(engine.core->adapters().Ids() == std::vector<int64_t>{1});
}

TEST_CASE("adapters: a reload that fails leaves what was there") {
  Engine engine;
  engine.AddLora(1, Lora("x", 1));
  engine.EndLoad(1);
  engine.AddLora(2, Lora("x", 1, /*load_inplace=*/true));
  engine.EndLoad(0, InvalidArgumentError("no"));
  engine.Add("a", "x");
  engine.Finish();
  CHECK(engine.finished == Ids{"a"});
  CHECK(engine.replies[1].failure_message == "no");
}

TEST_CASE("adapters: what is staged serves nobody until it takes the place of what is there") {
  Engine engine;
  engine.AddLora(1, Lora("x", 1));
  engine.EndLoad(1);
  engine.Stage(2, Lora("x", 1));
  engine.Step();
  CHECK(engine.Started() == std::vector<std::string>{"x"});
  engine.Add("during", "x", 1, /*max_tokens=*/30);
  engine.EndLoad(2);
  engine.Step();
  REQUIRE(engine.replies.size() == 2);
  CHECK_FALSE(engine.replies[1].failure_message.has_value());
  engine.Add("staged", "x");
  engine.Finish();
  CHECK(engine.cached.at("staged") == 8);  // blocks of the weights that were there before
  engine.Settle(3, Lora("x", 1), /*takes_place=*/true);
  engine.Add("after", "x");
  engine.Finish();
  CHECK(engine.cached.at("after") == 0);
  CHECK(engine.loads.started.empty());
  REQUIRE(engine.replies.size() == 3);
  CHECK(engine.replies[2].result == wire::PackedBool(true));
  engine.Settle(4, Lora("x", 1), true);  // nothing is staged any more
  engine.Finish();
  CHECK(engine.replies[3].result == wire::PackedBool(false));
}

TEST_CASE("adapters: what is staged and dropped leaves what was there") {
  Engine engine;
  engine.AddLora(1, Lora("x", 1));
  engine.EndLoad(1);
  engine.Stage(2, Lora("x", 1));
  engine.EndLoad(2);
  engine.Settle(3, Lora("x", 1), /*takes_place=*/false);
  engine.Add("a", "x");
  engine.Add("b", "x");
  engine.Finish();
  CHECK(engine.finished == Ids{"a", "b"});
  CHECK(engine.cached.at("b") > 0);
  // Of another folder, and one that cannot be read.
  wire::LoraRequest other = Lora("x", 1);
  other.path = "/adapters/other";
  engine.Stage(4, other);
  engine.EndLoad(3);
  engine.Settle(5, other, false);
  engine.Stage(6, other);
  engine.EndLoad(0, InvalidArgumentError("no"));
  engine.Settle(7, other, false);
  engine.Finish();
  REQUIRE(engine.replies.size() == 7);
  CHECK(engine.replies[5].failure_message == "no");
  CHECK(engine.replies[6].result == wire::PackedBool(false));
  CHECK(engine.core->adapters().Ids() == std::vector<int64_t>{1});
}

TEST_CASE("adapters: an id is listed once after a reload from another folder") {
  Engine engine;
  engine.AddLora(1, Lora("x", 1));
  engine.EndLoad(1);
  wire::LoraRequest other = Lora("x", 1, /*load_inplace=*/true);
  other.path = "/adapters/other";
  engine.AddLora(2, other);
  engine.EndLoad(2);
  engine.Finish();
  CHECK(engine.core->adapters().Ids() == std::vector<int64_t>{1});
  engine.Call(3, "remove_lora", wire::PackedInt(1));
  engine.Finish();
  CHECK(engine.core->adapters().Ids().empty());
}

TEST_CASE("adapters: refused where they are off, and in forms that are not supported") {
  Engine off(1, 1, /*is_on=*/false);
  off.Add("a", "x");
  off.AddLora(1, Lora("x", 1));
  off.Finish();
  REQUIRE(off.errors.size() == 1);
  CHECK(off.errors[0] == "a: LoRA adapters are off in this engine: --enable-lora turns them on");
  CHECK(off.codes[0] == wire::kErrorValidation);
  REQUIRE(off.replies.size() == 1);
  CHECK(off.replies[0].failure_message.has_value());

  Engine engine;
  engine.AddLora(1, Lora("", 1));
  engine.AddLora(2, Lora("x", 0));
  engine.Call(3, "add_lora", wire::PackedInt(3));
  engine.core->Handle(wire::UtilityRequest{1, 4, "add_lora", {}});
  engine.Finish();
  REQUIRE(engine.replies.size() == 4);
  for (const auto& reply : engine.replies) CHECK(reply.failure_message.has_value());
  CHECK(engine.loads.started.empty());
}

TEST_CASE("adapters: a checkpoint has the cache, what is being loaded and who waits for it") {
  Engine engine(1, 2);
  engine.Add("a", "x", 1);
  engine.Step();
  engine.EndLoad(5);
  engine.Finish();
  engine.Add("b", "y", 2);
  engine.AddLora(9, Lora("z", 3));
  engine.Stage(10, Lora("x", 1));
  engine.Add("c", "x", 1, /*max_tokens=*/20);
  engine.Step();
  engine.Step();
  REQUIRE(engine.core->CanSave());
  std::string memory(1 << 16, '\0');
  ByteWriter writer(memory);
  engine.core->Save(&writer);
  REQUIRE(writer.fits());

  Engine restored(1, 2);
  ByteReader reader(std::string_view(memory).substr(0, writer.size()));
  REQUIRE(restored.core->Load(&reader).ok());
  CHECK(reader.empty());
  std::string again(1 << 16, '\0');
  ByteWriter second(again);
  restored.core->Save(&second);
  CHECK(std::string_view(again).substr(0, second.size()) ==
        std::string_view(memory).substr(0, writer.size()));
  // What was under way ends as it would have there.
  CHECK(restored.core->scheduler().adapters().Waiting() == wire::CountsByName{{"y", 1}});
  CHECK(restored.core->scheduler().adapters().Running() == wire::CountsByName{{"x", 1}});
  for (const AdapterLoad& load : engine.loads.started) {
    restored.core->Handle(AdapterLoaded{load.id, OkStatus(), 1, nullptr});
  }
  std::vector<ClientMessage> messages;
  restored.core->EndStep();
  restored.core->TakeMessages(&messages);
  REQUIRE(messages.size() == 2);
  CHECK(messages[0].outputs.utility_output->call_id == 9);
  CHECK(messages[1].outputs.utility_output->call_id == 10);
  CHECK_FALSE(restored.core->scheduler().Find("b")->awaits_adapter);
  for (size_t size = 0; size < writer.size(); size += 7) {
    Engine broken(1, 2);
    ByteReader cut(std::string_view(memory).substr(0, size));
    const Status status = broken.core->Load(&cut);
    CHECK((!status.ok() || !cut.ok()));
  }
}

}  // namespace
}  // namespace tandem
