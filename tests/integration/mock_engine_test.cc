// The frontend's side of the wire against tests/support/mock_engine.py, an engine in another
// language and process that shares no code with ours.

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <cstdlib>
#include <iostream>
#include <map>

#include "frontend/engine_client/engine_client.h"
#include "proto_msgpack/codec.h"
#include "tests/support/wire_json.h"
#include "tests/support/wire_pair.h"

#include <catch2/catch.hpp>

extern char** environ;

namespace tandem {
namespace {

pid_t Spawn(std::vector<std::string> words) {
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_t pid = -1;
  REQUIRE(posix_spawn(&pid, argv[0], nullptr, nullptr, argv.data(), environ) == 0);
  return pid;
}

bool MockEngineRuns() {
  static const bool runs = [] {
    const std::string command = std::string(TANDEM_TEST_PYTHON) + " -c 'import zmq, msgpack' 2>&1";
    return std::system(command.c_str()) == 0;
  }();
  if (!runs) std::cout << "SKIPPED: " << TANDEM_TEST_PYTHON << " has no pyzmq and msgpack\n";
  return runs;
}

struct Sink final : OutputSink {
  void OnOutput(const wire::EngineCoreOutput& output, double /*timestamp*/) override {
    outputs.push_back(output);
  }
  void OnError(const Status& status) override { error = status; }
  size_t num_tokens() const {
    size_t count = 0;
    for (const auto& output : outputs) count += output.new_token_ids.size();
    return count;
  }
  bool over() const { return !error.ok() || (!outputs.empty() && outputs.back().finished()); }

  std::vector<wire::EngineCoreOutput> outputs;
  Status error;
};

class MockEngine {
 public:
  MockEngine(const TempFolder& folder, std::vector<std::string> options) {
    std::vector<std::string> words = {
        TANDEM_TEST_PYTHON, TANDEM_SOURCE_DIR "/tests/support/mock_engine.py",
        "--handshake",      "ipc://" + folder.path() + "/wire/handshake",
        "--quiet",          "--local"};
    words.insert(words.end(), options.begin(), options.end());
    pid_ = Spawn(std::move(words));
  }
  ~MockEngine() { Kill(); }
  void Kill() {
    if (pid_ < 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  pid_t pid_;
};

struct Setup {
  explicit Setup(int num_engines = 1)
      : endpoint(wire::FrontendIn(folder, num_engines)),
        client({.num_engines = num_engines}, &endpoint,
               {.post = [this](std::function<void()> f) { posted.box.Push(std::move(f)); },
                .at = [](double, const std::function<void()>&) {},
                .clock = &clock}) {
    REQUIRE(endpoint.Start().ok());
  }
  ~Setup() { endpoint.Close(); }
  template <class Condition>
  void RunUntil(Condition condition) {
    while (!condition()) {
      auto task = posted.Next();
      REQUIRE(task.has_value());
      (*task)();
    }
  }
  wire::EngineCoreRequest Request(const std::string& id, int max_tokens) {
    wire::EngineCoreRequest request;
    request.request_id = id;
    request.prompt_token_ids = {5, 6, 7};
    request.sampling_params.max_tokens = max_tokens;
    request.sampling_params.skip_reading_prefix_cache = false;
    return request;
  }

  TempFolder folder;
  SystemClock clock;
  wire::Inbox<std::function<void()>> posted;
  wire::FrontendEndpoint endpoint;
  EngineClient client;
};

TEST_CASE("mock engine: streams, stats, logprobs, errors, aborts and utility calls") {
  if (!MockEngineRuns()) return;
  Setup setup;
  const MockEngine engine(setup.folder, {"--mode", "echo", "--tokens-per-second", "500"});
  setup.RunUntil([&] { return setup.client.healthy(); });
  CHECK(setup.client.engine_info()->max_model_len == 8192);
  int num_stats = 0;
  setup.client.OnStats([&](int, const wire::SchedulerStats& stats, double timestamp) {
    num_stats += stats.num_running_reqs >= 0 && timestamp > 0;
  });

  std::map<std::string, Sink> sinks;
  for (int i = 0; i < 5; ++i) {
    const std::string id = "r" + std::to_string(i);
    REQUIRE(setup.client.Submit(setup.Request(id, 10 + i), &sinks[id]).ok());
  }
  auto with_logprobs = setup.Request("logprobs", 3);
  with_logprobs.sampling_params.logprobs = -1;  // the whole vocabulary: in frames of their own
  with_logprobs.sampling_params.prompt_logprobs = 1;
  REQUIRE(setup.client.Submit(with_logprobs, &sinks["logprobs"]).ok());
  auto refused = setup.Request("refused", 3);
  // {"mock_error": "validation_error|bad grammar|0"}
  refused.sampling_params.extra_args.packed =
      "\x81" + wire::PackedString("mock_error").packed +
      wire::PackedString("validation_error|bad grammar|0").packed;
  REQUIRE(setup.client.Submit(refused, &sinks["refused"]).ok());
  for (auto& [id, sink] : sinks) {
    INFO(id);
    setup.RunUntil([&sink = sink] { return sink.over(); });
  }
  for (int i = 0; i < 5; ++i) {
    const Sink& sink = sinks["r" + std::to_string(i)];
    CHECK(sink.num_tokens() == static_cast<size_t>(10 + i));
    CHECK(sink.outputs[1].new_token_ids == std::vector<TokenId>{6});  // echo of the prompt
    CHECK(sink.outputs.back().finish_reason == wire::FinishReason::kLength);
    CHECK(sink.outputs[0].events.size() == 2);
    CHECK(sink.outputs[0].prefill_stats->num_prompt_tokens == 3);
    CHECK_FALSE(sink.outputs[1].prefill_stats.has_value());
  }
  const Sink& logprobs = sinks["logprobs"];
  CHECK(logprobs.outputs[0].new_logprobs->num_columns == 513);
  CHECK(logprobs.outputs[0].new_prompt_logprobs->num_rows == 2);
  CHECK(sinks["refused"].error == InvalidArgumentError("bad grammar"));
  CHECK(num_stats > 0);

  Sink endless;
  REQUIRE(setup.client.Submit(setup.Request("endless", 1000000), &endless).ok());
  // A post may deliver several messages, so 3 can be skipped.
  setup.RunUntil([&] { return endless.outputs.size() >= 3; });
  const size_t num_outputs = endless.outputs.size();
  setup.client.Abort("endless");
  bool idle = false;
  setup.client.OnStats(
      [&](int, const wire::SchedulerStats& stats, double) { idle = stats.num_running_reqs == 0; });
  setup.RunUntil([&] { return idle; });
  CHECK(endless.outputs.size() == num_outputs);

  StatusOr<wire::RawValue> tasks = InternalError("no reply");
  setup.client.CallUtility(0, "get_supported_tasks", {},
                           [&](StatusOr<wire::RawValue> result) { tasks = std::move(result); });
  StatusOr<wire::RawValue> unknown = wire::RawValue();
  setup.client.CallUtility(0, "make_coffee", {},
                           [&](StatusOr<wire::RawValue> result) { unknown = std::move(result); });
  setup.RunUntil([&] { return tasks.ok() && !unknown.ok(); });
  CHECK(wire::ToJson(tasks->packed) == nlohmann::json::array({"generate"}));
  CHECK(unknown.status().message().find("make_coffee") != std::string::npos);
}

TEST_CASE("mock engine: killed, its streams end at once and the next one serves") {
  if (!MockEngineRuns()) return;
  Setup setup;
  for (int round = 0; round < 2; ++round) {
    CAPTURE(round);
    MockEngine engine(setup.folder, {"--tokens-per-second", "200"});
    setup.RunUntil([&] { return setup.client.healthy(); });
    Sink sink;
    REQUIRE(setup.client.Submit(setup.Request("r", 1000000), &sink).ok());
    setup.RunUntil([&] { return sink.outputs.size() >= 2; });
    engine.Kill();
    setup.RunUntil([&] { return sink.over(); });
    CHECK(sink.error.code() == StatusCode::kUnavailable);
    CHECK_FALSE(setup.client.healthy());
  }
}

TEST_CASE("mock engine: it reports its own death") {
  if (!MockEngineRuns()) return;
  Setup setup;
  const MockEngine engine(setup.folder, {"--tokens-per-second", "200", "--die-after", "20"});
  setup.RunUntil([&] { return setup.client.healthy(); });
  Sink sink;
  REQUIRE(setup.client.Submit(setup.Request("r", 1000000), &sink).ok());
  setup.RunUntil([&] { return sink.over(); });
  CHECK(sink.error.code() == StatusCode::kUnavailable);
  CHECK(sink.num_tokens() == 20);
}

TEST_CASE("mock engine: two of them share the load, one dies, the other goes on") {
  if (!MockEngineRuns()) return;
  Setup setup(2);
  MockEngine first(setup.folder, {"--tokens-per-second", "200"});
  const MockEngine second(setup.folder, {"--tokens-per-second", "200", "--engine-index", "1"});
  setup.RunUntil([&] { return setup.client.healthy(); });
  CHECK(setup.client.engine_info()->num_gpu_blocks == 8192);
  Sink a, b;
  auto to_first = setup.Request("a", 1000000);
  to_first.data_parallel_rank = 0;
  auto to_second = setup.Request("b", 100);
  to_second.data_parallel_rank = 1;
  REQUIRE(setup.client.Submit(to_first, &a).ok());
  REQUIRE(setup.client.Submit(to_second, &b).ok());
  setup.RunUntil([&] { return !a.outputs.empty() && !b.outputs.empty(); });
  first.Kill();
  setup.RunUntil([&] { return a.over() && b.over(); });
  CHECK(a.error.code() == StatusCode::kUnavailable);
  CHECK(b.error.ok());
  CHECK(b.num_tokens() == 100);
}

}  // namespace
}  // namespace tandem
