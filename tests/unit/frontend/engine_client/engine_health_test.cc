#include "frontend/engine_client/engine_health.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

wire::EngineCoreReadyResponse Ready(int64_t max_model_len, int64_t num_gpu_blocks) {
  wire::EngineCoreReadyResponse response;
  response.max_model_len = max_model_len;
  response.num_gpu_blocks = num_gpu_blocks;
  return response;
}

TEST_CASE("engine_health: starting, ready, lost and back again") {
  EngineHealth health(2, {});
  CHECK(health.CheckServing().message() == "engine 0 is starting");
  health.OnReady(0, Ready(10, 1));
  CHECK(health.CheckReady(0).ok());
  CHECK(health.CheckServing().message() == "engine 1 is starting");
  health.OnReady(1, Ready(10, 1));
  CHECK(health.CheckServing().ok());
  health.OnLost(0, UnavailableError("engine 0 is gone"));
  CHECK_FALSE(health.ready(0));
  CHECK(health.CheckReady(0).message() == "engine 0 is gone");
  CHECK(health.CheckServing().ok());  // the other one serves
  CHECK(health.CheckTakesRequests(0).message() == "engine 0 is gone");
  CHECK(health.CheckTakesRequests(1).ok());
  health.OnLost(1, UnavailableError("engine 1 is gone"));
  CHECK(health.CheckServing().message() == "engine 0 is gone");
  health.OnReady(0, Ready(10, 1));
  CHECK(health.CheckServing().ok());
}

TEST_CASE("engine_health: the engines' facts are known together, and stay") {
  EngineHealth health(2, {});
  health.OnReady(1, Ready(100, 7));
  CHECK(health.engine_info() == nullptr);
  CHECK(health.engine_info(1).num_gpu_blocks == 7);
  health.OnReady(0, Ready(200, 5));
  REQUIRE(health.engine_info() != nullptr);
  CHECK(health.engine_info()->max_model_len == 100);
  CHECK(health.engine_info()->num_gpu_blocks == 12);
  health.OnLost(1, UnavailableError("gone"));
  CHECK(health.engine_info()->num_gpu_blocks == 12);
  health.OnReady(1, Ready(50, 1));
  CHECK(health.engine_info()->max_model_len == 50);
  CHECK(health.engine_info()->num_gpu_blocks == 6);
}

TEST_CASE("engine_health: responses are batch invariant where every engine's are") {
  EngineHealth health(2, {});
  wire::EngineCoreReadyResponse invariant = Ready(10, 1);
  invariant.batch_invariant = true;
  health.OnReady(0, invariant);
  health.OnReady(1, Ready(10, 1));
  CHECK_FALSE(health.engine_info()->batch_invariant.value());
  health.OnReady(1, invariant);
  CHECK(health.engine_info()->batch_invariant.value());
}

TEST_CASE("engine_health: unanswered bytes ask for a probe at half the limit, then refuse") {
  EngineHealth health(1, {.max_unanswered_bytes = 100});
  health.OnReady(0, {});
  CHECK_FALSE(health.OnSent(0, 50));
  CHECK(health.OnSent(0, 1));
  CHECK_FALSE(health.OnSent(0, 49));  // one probe is enough
  CHECK(health.CheckTakesRequests(0).ok());
  CHECK_FALSE(health.OnSent(0, 1));
  const Status refused = health.CheckTakesRequests(0);
  CHECK(refused.code() == StatusCode::kUnavailable);
  CHECK(refused.message() == "engine 0 is silent and has not read 101 bytes of earlier requests");
  CHECK(health.CheckServing().ok());
  SECTION("any message from it resets the count") {
    CHECK_FALSE(health.OnMessage(0));
    CHECK(health.CheckTakesRequests(0).ok());
    CHECK(health.OnSent(0, 51));
  }
  SECTION("a new process starts without unanswered bytes") {
    health.OnLost(0, UnavailableError("gone"));
    health.OnReady(0, {});
    CHECK(health.CheckTakesRequests(0).ok());
  }
}

TEST_CASE("engine_health: one probe is open at a time, and for a limited time") {
  EngineHealth health(2, {.hang_timeout_s = 10});
  std::vector<int> probes;
  const auto check = [&](double now) {
    return health.CheckAlive(now, [&](int engine_index) { probes.push_back(engine_index); });
  };
  CHECK(check(0).message() == "engine 0 is starting");
  CHECK(probes.empty());
  health.OnReady(0, {});
  health.OnReady(1, {});
  CHECK(check(100).ok());
  CHECK(check(109).ok());
  CHECK(probes == std::vector<int>{0, 1});
  health.OnProbeReply(0);
  CHECK(check(110).ok());  // engine 1 is silent, engine 0 lives
  CHECK(probes == std::vector<int>{0, 1, 0});
  CHECK(check(120).message() == "engine 0 has not answered for 10 s");
  health.OnProbeReply(1);
  CHECK(check(121).ok());
  CHECK(probes == std::vector<int>{0, 1, 0, 1});
}

TEST_CASE("engine_health: without a timeout nothing is probed") {
  EngineHealth health(1, {});
  health.OnReady(0, {});
  CHECK(health.CheckAlive(0, [](int) { FAIL("a probe was sent"); }).ok());
}

TEST_CASE("engine_health: hung after four looks at an open probe, until its next message") {
  EngineHealth health(1, {.hang_timeout_s = 10});
  int num_probes = 0;
  const auto look = [&](double now) { return health.Look(0, now, [&](int) { ++num_probes; }); };
  health.OnReady(0, {});
  CHECK(look(0).ok());
  CHECK(num_probes == 1);
  // We were stopped ourselves for an hour: that is one look.
  CHECK(look(3600).ok());
  CHECK(look(3602).ok());
  CHECK(look(3605).ok());
  SECTION("a reply in time ends the count") {
    health.OnProbeReply(0);
    CHECK(look(3607).ok());
    CHECK(num_probes == 2);
    for (int i = 0; i < 3; ++i) CHECK(look(3610).ok());
    CHECK_FALSE(look(3620).ok());
  }
  SECTION("it takes nothing while it hangs, and is connected") {
    const Status hung = look(3607);
    CHECK(hung.message() == "engine 0 has not answered for 3607 s");
    health.OnHung(0, hung);
    CHECK(health.connected(0));
    CHECK_FALSE(health.ready(0));
    CHECK(health.CheckServing().message() == hung.message());
    CHECK(health.CheckTakesRequests(0).message() == hung.message());
    CHECK(health.OnMessage(0));
    CHECK(health.ready(0));
    CHECK_FALSE(health.OnMessage(0));
  }
}

}  // namespace
}  // namespace tandem
