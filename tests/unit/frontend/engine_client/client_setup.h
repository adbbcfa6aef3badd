#pragma once

// An EngineClient over real endpoints, for tests whose thread is the shard and the engines' loop.

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "frontend/engine_client/engine_client.h"
#include "proto_msgpack/codec.h"
#include "tests/support/wire_pair.h"

#include <catch2/catch.hpp>

namespace tandem {

using wire::EngineCoreOutputs;
using wire::FinishReason;

// The shard: what is posted to it runs in RunUntil, its time is the test's.
class TestShard {
 public:
  EngineClient::Thread thread() {
    EngineClient::Thread thread;
    thread.post = [this](std::function<void()> f) { inbox_.box.Push(std::move(f)); };
    thread.at = [this](double deadline, std::function<void()> f) {
      timers_.emplace(deadline, std::move(f));
    };
    thread.clock = &clock_;
    return thread;
  }
  void Advance(double seconds) {
    clock_.Advance(seconds);
    while (!timers_.empty() && timers_.begin()->first <= clock_.Monotonic()) {
      timers_.extract(timers_.begin()).mapped()();
    }
  }
  template <class Condition>
  void RunUntil(Condition condition) {
    while (!condition()) {
      std::optional<std::function<void()>> task = inbox_.Next();
      REQUIRE(task.has_value());
      (*task)();
      ++num_posts;
    }
  }
  int num_posts = 0;

 private:
  wire::Inbox<std::function<void()>> inbox_;
  ManualClock clock_;
  std::multimap<double, std::function<void()>> timers_;
};

struct Sink final : OutputSink {
  void OnOutput(const wire::EngineCoreOutput& output, double timestamp) override {
    token_ids.insert(token_ids.end(), output.new_token_ids.begin(), output.new_token_ids.end());
    last_timestamp = timestamp;
    finish_reason = output.finish_reason;
    ++num_calls;
    if (during_call) during_call();
  }
  void OnError(const Status& status) override {
    error = status;
    ++num_calls;
    if (during_call) during_call();
  }
  void OnEngineChange(int engine_index) override { engines.push_back(engine_index); }
  bool over() const { return finish_reason.has_value() || !error.ok(); }

  std::vector<TokenId> token_ids;
  std::optional<FinishReason> finish_reason;
  Status error;
  double last_timestamp = 0;
  int num_calls = 0;
  std::vector<int> engines;
  std::function<void()> during_call;
};

struct Engine {
  explicit Engine(const TempFolder& folder, int engine_index = 0,
                  std::optional<std::string> tandem_version = {})
      : index(engine_index), endpoint(wire::EngineIn(folder, engine_index), inbox.Pusher()) {
    REQUIRE(endpoint.Start().ok());
    wire::EngineCoreReadyResponse ready = wire::TestReadyResponse(engine_index);
    ready.tandem_version = std::move(tandem_version);
    endpoint.AnnounceReady(std::move(ready));
  }
  // One of ours, which takes over from the one of its index.
  Engine(const TempFolder& folder, wire::Inbox<Status>* left)
      : index(0), endpoint(TakingOver(folder, left), inbox.Pusher()) {
    REQUIRE(endpoint.Start().ok());
    wire::EngineCoreReadyResponse ready = wire::TestReadyResponse();
    ready.tandem_version = "1";
    ready.tokenizer_hash = "t";
    endpoint.AnnounceReady(std::move(ready));
  }
  static wire::EngineEndpointOptions TakingOver(const TempFolder& folder,
                                                wire::Inbox<Status>* left) {
    wire::EngineEndpointOptions options = wire::EngineIn(folder);
    options.takes_over = true;
    options.on_leave = left->Pusher();
    return options;
  }
  template <class T>
  T Next() {
    std::optional<wire::EngineInput> input = inbox.Next();
    REQUIRE(input.has_value());
    REQUIRE(std::holds_alternative<T>(*input));
    return std::get<T>(std::move(*input));
  }
  // One message with a token for each id; the ids in `finished` end.
  void Step(const std::vector<std::string>& ids, const std::vector<std::string>& finished = {}) {
    EngineCoreOutputs outputs;
    outputs.engine_index = index;
    outputs.timestamp = ++now;
    for (const std::string& id : ids) {
      wire::EngineCoreOutput& output = outputs.outputs.emplace_back();
      output.request_id = id;
      output.new_token_ids = {static_cast<TokenId>(now)};
      if (std::find(finished.begin(), finished.end(), id) != finished.end()) {
        output.finish_reason = FinishReason::kStop;
      }
    }
    outputs.finished_requests = finished;
    endpoint.Send(0, std::move(outputs));
  }

  int index;
  double now = 0;
  wire::Inbox<wire::EngineInput> inbox;
  wire::EngineEndpoint endpoint;
};

struct Setup {
  explicit Setup(int num_engines = 1, size_t max_inflight = 100,
                 size_t max_unanswered_bytes = 256u << 20)
      : Setup({.num_engines = num_engines,
               .max_inflight = max_inflight,
               .health = {.max_unanswered_bytes = max_unanswered_bytes, .hang_timeout_s = 10}},
              std::nullopt) {}
  // tandem_version: of engines of ours.
  Setup(const EngineClientOptions& options, const std::optional<std::string>& tandem_version)
      : endpoint(wire::FrontendIn(folder, options.num_engines)),
        client(options, &endpoint, shard.thread()) {
    REQUIRE(endpoint.Start().ok());
    for (int i = 0; i < options.num_engines; ++i) {
      engines.push_back(std::make_unique<Engine>(folder, i, tandem_version));
    }
    shard.RunUntil([this] { return client.healthy(); });
  }
  ~Setup() { endpoint.Close(); }
  StatusOr<int> Submit(const std::string& id, OutputSink* sink, std::optional<int> rank = {}) {
    wire::EngineCoreRequest request;
    request.request_id = id;
    request.prompt_token_ids = {1, 2};
    request.data_parallel_rank = rank;
    return client.Submit(std::move(request), sink);
  }
  // The engine has received them when this returns.
  void SubmitTaken(std::initializer_list<std::pair<const char*, Sink*>> requests) {
    for (const auto& [id, sink] : requests) {
      REQUIRE(Submit(id, sink).ok());
      CHECK(engine().Next<wire::EngineCoreRequest>().request_id == id);
    }
  }
  Engine& engine(size_t i = 0) { return *engines[i]; }

  TempFolder folder;
  TestShard shard;
  wire::FrontendEndpoint endpoint;
  EngineClient client;
  std::vector<std::unique_ptr<Engine>> engines;
};

}  // namespace tandem
