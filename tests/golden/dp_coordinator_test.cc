// What vLLM 0.33.0's coordinator waits for and sends (golden/dp_coordinator): its own traces, and
// its part in those of whole systems, byte for byte.

#include "frontend/coordinator/dp_coordinator.h"
#include "common/strings.h"
#include "proto_msgpack/codec.h"
#include "tests/support/gzip/gzip_lines.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using nlohmann::json;

std::string Bytes(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

wire::EngineCoreOutputs EngineMessage(const json& message) {
  wire::EngineCoreOutputs outputs;
  if (message.contains("frames_hex")) {
    const std::string body = Bytes(message["frames_hex"][0]);
    const std::string_view frames[] = {body};
    REQUIRE(wire::Decode(frames, &outputs).ok());
    return outputs;
  }
  const json& decoded = message["decoded"];
  outputs.engine_index = decoded["engine"];
  wire::SchedulerStats& stats = outputs.scheduler_stats.emplace();
  stats.num_waiting_reqs = decoded["waiting"];
  stats.num_running_reqs = decoded["running"];
  stats.kv_cache_usage = decoded["kv_cache_usage"];
  stats.step_counter = decoded["step_counter"];
  stats.current_wave = decoded["current_wave"];
  return outputs;
}

json ToJson(const DpCoordinator::Messages& sends) {
  json list = json::array();
  for (const DpCoordinator::Message& each : sends) {
    json frames = json::array();
    for (const std::string& frame : each.frames) {
      std::string hex;
      for (const char byte : frame) {
        constexpr char kDigits[] = "0123456789abcdef";
        hex += kDigits[static_cast<uint8_t>(byte) >> 4];
        hex += kDigits[static_cast<uint8_t>(byte) & 15];
      }
      frames.push_back(hex);
    }
    const bool is_to_engines = each.to == DpCoordinator::Receiver::kEngines;
    list.push_back({{"to", is_to_engines ? "engines" : "frontends"}, {"frames_hex", frames}});
  }
  return list;
}

void ReplayTurn(const json& turn, DpCoordinator* coordinator) {
  CAPTURE(turn.dump());
  REQUIRE(coordinator->WaitMs(turn["at_ms"]) == turn["poll_ms"].get<int64_t>());
  DpCoordinator::Messages sends;
  if (turn["timeout"]) coordinator->OnTimeout(turn["woke_ms"], &sends);
  for (const json& message : turn["readable"]) {
    if (message["from"] == "engine") {
      coordinator->OnEngine(EngineMessage(message), &sends);
    } else if (message["from"] == "frontend") {
      if (coordinator->OnFrontend(Bytes(message["frames_hex"][0]))) break;
    } else {
      DpCoordinator::OnSubscription(Bytes(message["frames_hex"][0]), &sends);
    }
  }
  json expected = turn["sends"];
  for (json& each : expected) each.erase("decoded");
  REQUIRE(ToJson(sends) == expected);
}

TEST_CASE("golden: the coordinator alone") {
  const auto traces = ReadGzipLines(TANDEM_GOLDEN_DIR "/dp_coordinator/coordinator_clock.jsonl.gz");
  CHECK(traces.size() == 27);
  for (const json& trace : traces) {
    CAPTURE(trace["name"].get<std::string>());
    DpCoordinator coordinator(trace["engine_count"], trace["wave_coordination"],
                              trace["min_stats_update_interval_ms"]);
    for (const json& turn : trace["steps"]) ReplayTurn(turn, &coordinator);
  }
}

TEST_CASE("golden: the coordinator among engines and frontends") {
  const auto traces = ReadGzipLines(TANDEM_GOLDEN_DIR "/dp_coordinator/system.jsonl.gz");
  CHECK(traces.size() == 30);
  for (const json& trace : traces) {
    CAPTURE(trace["name"].get<std::string>());
    DpCoordinator coordinator(trace["engines"], /*waves=*/true);
    for (const json& record : trace["records"]) {
      if (record["actor"] == "coordinator") ReplayTurn(record, &coordinator);
    }
  }
}

TEST_CASE("golden: what nobody sends is dropped") {
  DpCoordinator coordinator(2, true);
  DpCoordinator::Messages sends;
  for (const char* garbage : {"", "\xff", "\x92\xa3", "\x92\xb0SCALE_ELASTIC_EP\xc0", "x"}) {
    CHECK_FALSE(coordinator.OnFrontend(garbage));
    DpCoordinator::OnSubscription(garbage, &sends);
  }
  wire::EngineCoreOutputs outputs;
  outputs.engine_index = 7;
  outputs.scheduler_stats.emplace().num_running_reqs = 1;
  coordinator.OnEngine(outputs, &sends);
  outputs.engine_index = -1;
  coordinator.OnEngine(outputs, &sends);
  CHECK(sends.empty());
}

}  // namespace
}  // namespace tandem
