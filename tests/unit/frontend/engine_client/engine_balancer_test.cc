#include "frontend/engine_client/engine_balancer.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

struct Setup {
  explicit Setup(int num_engines, int num_clients = 1, int client_index = 0)
      : health(num_engines, {.max_unanswered_bytes = 100}),
        balancer(num_engines, num_clients, client_index),
        num_inflight(static_cast<size_t>(num_engines)) {
    for (int i = 0; i < num_engines; ++i) health.OnReady(i, {});
  }
  // Where the next request goes; it stays there.
  int Submit(std::optional<int> rank = {}) {
    const StatusOr<int> engine = balancer.Choose({.rank = rank}, health, num_inflight);
    REQUIRE(engine.ok());
    balancer.OnSubmit(*engine, rank);
    ++num_inflight[static_cast<size_t>(*engine)];
    return *engine;
  }
  Status Refusal(std::optional<int> rank = {}) {
    return balancer.Choose({.rank = rank}, health, num_inflight).status();
  }
  void Stats(int engine, int64_t waiting, int64_t running, double kv_cache_usage) {
    wire::SchedulerStats stats;
    stats.num_waiting_reqs = waiting;
    stats.num_running_reqs = running;
    stats.kv_cache_usage = kv_cache_usage;
    balancer.OnStats(engine, stats);
  }

  EngineHealth health;
  EngineBalancer balancer;
  std::vector<int64_t> num_inflight;
};

TEST_CASE("engine_balancer: equal loads take turns") {
  Setup setup(3);
  CHECK(setup.Submit() == 0);
  CHECK(setup.Submit() == 1);
  CHECK(setup.Submit() == 2);
  CHECK(setup.Submit() == 0);
}

TEST_CASE("engine_balancer: the larger of own and reported load counts") {
  Setup setup(2);
  setup.Stats(0, 0, 3, 0);
  for (int i = 0; i < 3; ++i) CHECK(setup.Submit() == 1);
  // The engine's stats do not know of them yet.
  setup.Stats(1, 0, 0, 0);
  CHECK(setup.num_inflight[1] == 3);
  setup.Stats(0, 0, 2, 0);
  CHECK(setup.Submit() == 0);
}

TEST_CASE("engine_balancer: own requests count once for each client") {
  Setup setup(2, /*num_clients=*/4);
  CHECK(setup.Submit() == 0);  // the others are expected to have sent it one each as well
  setup.Stats(0, 0, 0, 0);
  setup.Stats(1, 0, 3, 0);
  CHECK(setup.Submit() == 1);
}

TEST_CASE("engine_balancer: waiting for a full cache weighs more") {
  Setup setup(2);
  setup.Stats(0, 2, 0, 1.0);  // 2 + 2 × 6 × 0.5
  setup.Stats(1, 0, 7, 1.0);
  CHECK(setup.Submit() == 1);
  setup.Stats(0, 2, 0, 0.5);
  CHECK(setup.Submit() == 0);
}

TEST_CASE("engine_balancer: a new process starts without load") {
  Setup setup(2);
  setup.Stats(0, 100, 100, 1);
  CHECK(setup.Submit() == 1);
  setup.balancer.OnReady(0);
  CHECK(setup.Submit() == 0);
}

TEST_CASE("engine_balancer: engines that take nothing are passed over") {
  Setup setup(3);
  setup.health.OnLost(0, UnavailableError("engine 0 is gone"));
  (void)setup.health.OnSent(1, 101);
  for (int i = 0; i < 3; ++i) CHECK(setup.Submit() == 2);
  setup.health.OnLost(2, UnavailableError("engine 2 is gone"));
  CHECK(setup.Refusal().message() == "engine 0 is gone");
}

TEST_CASE("engine_balancer: a rank does not change where others go, but for what runs") {
  Setup setup(3);
  CHECK(setup.Submit(2) == 2);
  CHECK(setup.Submit() == 0);  // as the first
  setup.num_inflight = {};
  CHECK(setup.Submit() == 1);
  setup.num_inflight = {};
  CHECK(setup.Submit() == 2);  // it never counted as waiting there
}

TEST_CASE("engine_balancer: clients begin with engines of their own") {
  CHECK(Setup(4, 2, 0).Submit() == 0);
  CHECK(Setup(4, 2, 1).Submit() == 2);
  CHECK(Setup(2, 4, 1).Submit() == 0);
  CHECK(Setup(2, 4, 3).Submit() == 1);
}

TEST_CASE("engine_balancer: a cached prefix wins over load, within a bound") {
  Setup setup(3);
  const auto choose = [&](const std::vector<int64_t>& num_cached) {
    const StatusOr<int> engine =
        setup.balancer.Choose({.num_cached = num_cached}, setup.health, {0, 0, 0});
    REQUIRE(engine.ok());
    return *engine;
  };
  setup.Stats(0, 0, 4, 0);
  setup.Stats(1, 0, 2, 0);
  CHECK(choose({}) == 2);
  CHECK(choose({0, 0, 0}) == 2);
  CHECK(choose({5, 2, 0}) == 0);
  CHECK(choose({5, 5, 0}) == 1);  // of equals the less loaded
  setup.Stats(0, 0, 5, 0);        // above 0 + 4
  CHECK(choose({5, 2, 0}) == 1);
  setup.Stats(1, 0, 40, 0);
  setup.Stats(2, 0, 20, 0);
  setup.Stats(0, 0, 30, 0);  // half as many again
  CHECK(choose({5, 2, 0}) == 0);
  setup.Stats(0, 0, 31, 0);
  CHECK(choose({5, 0, 0}) == 2);
  setup.Stats(0, 0, 0, 0);
  setup.health.OnLost(0, UnavailableError("engine 0 is gone"));
  CHECK(choose({5, 0, 0}) == 2);
}

TEST_CASE("engine_balancer: a rank is obeyed or refused") {
  Setup setup(2);
  setup.Stats(1, 100, 100, 1);
  CHECK(setup.Submit(1) == 1);
  CHECK(setup.Refusal(2).code() == StatusCode::kInvalidArgument);
  CHECK(setup.Refusal(-1).code() == StatusCode::kInvalidArgument);
  setup.health.OnLost(1, UnavailableError("engine 1 is gone"));
  CHECK(setup.Refusal(1).message() == "engine 1 is gone");
}

TEST_CASE("engine_balancer: engines of a role take turns among themselves") {
  EngineHealth health(4, {.max_unanswered_bytes = 100});
  for (int i = 0; i < 4; ++i) health.OnReady(i, {});
  EngineBalancer balancer(4, /*num_clients=*/1, /*client_index=*/0, /*num_prefill_engines=*/2);
  const std::vector<int64_t> idle(4);
  const auto choose = [&](EngineBalancer::Wish wish) {
    const StatusOr<int> engine = balancer.Choose(wish, health, idle);
    return engine.ok() ? *engine : -1;
  };
  const EngineBalancer::Wish prefill = {.role = EngineRole::kPrefill};
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 2; ++i) {
      CHECK(choose(prefill) == i);
      CHECK(choose({}) == 2 + i);
    }
  }
  CHECK(choose({.rank = 1}) == 1);
  CHECK(choose({.role = EngineRole::kPrefill, .admits = [](int i) { return i != 0; }}) == 1);
  health.OnLost(1, UnavailableError("gone"));
  CHECK(choose({.role = EngineRole::kPrefill, .admits = [](int i) { return i != 0; }}) == -1);
  CHECK(choose(prefill) == 0);
  CHECK((balancer.is_prefill_engine(1) && !balancer.is_prefill_engine(2)));
}

}  // namespace
}  // namespace tandem
