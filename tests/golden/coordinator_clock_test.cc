// The waves that vLLM 0.33.0's coordinator starts and ends
// (golden/dp_coordinator/coordinator_clock.jsonl.gz), message by message: of its recordings those
// of engines with waves, and of these the steps that concern waves.

#include <string>
#include <vector>

#include "proto_msgpack/codec.h"
#include "proto_msgpack/engine_waves.h"
#include "tests/support/gzip/gzip_lines.h"

#include <catch2/catch.hpp>

namespace tandem::wire {
namespace {

using nlohmann::json;

std::string BytesOf(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

// The frames that a step sends to the engines, and the waves that it reports to frontends.
struct Sent {
  std::vector<std::string> to_engines;
  std::vector<std::pair<int64_t, bool>> states;

  friend bool operator==(const Sent&, const Sent&) = default;
};

Sent WavesOf(const json& sends) {
  Sent sent;
  for (const json& each : sends) {
    const json& frames = each["frames_hex"];
    if (each["to"] == "engines") {
      if (frames.size() == 1) continue;  // READY
      sent.to_engines.push_back(BytesOf(frames[1]));
      CHECK(frames[0] == "02");
    } else if (each["decoded"][0].is_null()) {
      sent.states.emplace_back(each["decoded"][1].get<int64_t>(), each["decoded"][2].get<bool>());
    }
  }
  return sent;
}

// What is read after this waits for the next step, where it is listed again.
bool EndsTurn(const json& message) {
  if (message["from"] != "frontend") return false;
  const json& hex = message["frames_hex"][0];
  const bool is_scale = message.contains("decoded") && message["decoded"][0] == "SCALE_ELASTIC_EP";
  return hex == "00" || hex == "01" || is_scale;
}

void Replay(const json& trace) {
  EngineWaves waves;
  int num_engines = trace["engine_count"];
  for (const json& step : trace["steps"]) {
    Sent sent;
    for (const json& message : step["readable"]) {
      if (EndsTurn(message)) {
        if (message.contains("decoded")) num_engines = message["decoded"][1];
        break;
      }
      if (message["from"] != "engine") continue;
      const std::string bytes = BytesOf(message["frames_hex"][0]);
      const std::string_view frames[] = {bytes};
      EngineCoreOutputs report;
      REQUIRE(Decode(frames, &report).ok());
      if (report.scheduler_stats && report.engine_index >= num_engines) continue;
      const std::pair<int64_t, bool> before = {waves.wave(), waves.running()};
      if (const auto start = waves.OnReport(report)) {
        EncodedMessage encoded;
        Encode(*start, &encoded);
        sent.to_engines.push_back(encoded.body);
      }
      const std::pair<int64_t, bool> after = {waves.wave(), waves.running()};
      if (after != before) sent.states.push_back(after);
    }
    CAPTURE(step["at_ms"].get<int64_t>());
    REQUIRE(sent == WavesOf(step["sends"]));
  }
}

TEST_CASE("golden: waves begin and end as vLLM's coordinator has it") {
  const auto traces = ReadGzipLines(TANDEM_GOLDEN_DIR "/dp_coordinator/coordinator_clock.jsonl.gz");
  CHECK(traces.size() == 18);
  for (const json& trace : traces) {
    CAPTURE(trace["name"].get<std::string>());
    Replay(trace);
  }
}

}  // namespace
}  // namespace tandem::wire
