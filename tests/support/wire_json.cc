#include "tests/support/wire_json.h"

#include <cstdio>
#include <cstdlib>

#include "common/strings.h"
#include "tests/support/gzip/gzip_lines.h"

namespace tandem::wire {
namespace {

using nlohmann::json;

GoldenMessage ToMessage(const std::string& name, const json& row) {
  GoldenMessage message{name, row.value("type", ""), {}, row["decoded"]};
  for (const json& hex : row["frames_hex"]) {
    message.frames.push_back(*HexDecode(hex.get<std::string>()));
  }
  return message;
}

std::string FaultOfLogprobs(const json& value, size_t max_size) {
  if (value.is_null()) return "";
  if (!value.is_array()) return "logprobs are no array";
  if (value.size() > max_size) return "logprobs have surplus elements";
  if (value.size() > 3 && !value[3].is_null()) return "cu_counts is not nil";
  return "";
}

std::string FaultOfOutput(const json& output) {
  if (!output.is_array()) return "an output is no array";
  if (output.size() < 2) return "an output lacks id or tokens";
  if (!output[0].is_string()) return "request_id is no string";
  if (!output[1].is_array()) return "new_token_ids is no array";
  for (const json& token_id : output[1]) {
    if (!token_id.is_number_unsigned() || token_id.get<uint64_t>() > UINT32_MAX) {
      return "a token id is no unsigned 32 bit number";
    }
  }
  if (output.size() > 2) {
    if (std::string fault = FaultOfLogprobs(output[2], 5); !fault.empty()) return fault;
  }
  if (output.size() > 3) {
    if (std::string fault = FaultOfLogprobs(output[3], 5); !fault.empty()) return fault;
  }
  if (output.size() > 5 && !output[5].is_null() &&
      !(output[5].is_number_unsigned() && output[5].get<int>() <= 4)) {
    return "finish_reason is not in 0 to 4";
  }
  return "";
}

std::string FaultOfStats(const json& stats) {
  if (stats.is_null()) return "";
  if (!stats.is_object()) return "scheduler_stats is no map";
  for (const char* key : {"num_running_reqs", "num_waiting_reqs", "step_counter", "current_wave",
                          "kv_cache_usage", "prefix_cache_stats", "kv_cache_eviction_events"}) {
    if (!stats.contains(key)) return std::string("scheduler_stats lacks ") + key;
  }
  for (const char* key : {"reset", "requests", "queries", "hits", "preempted_requests",
                          "preempted_queries", "preempted_hits"}) {
    if (!stats["prefix_cache_stats"].contains(key)) {
      return std::string("prefix_cache_stats lacks ") + key;
    }
  }
  return "";
}

}  // namespace

std::vector<GoldenMessage> ReadGolden(const std::string& file) {
  const std::string path = std::string(TANDEM_GOLDEN_DIR "/wire/") + file;
  std::vector<GoldenMessage> messages;
  for (const json& row : ReadGzipLines(path)) {
    const auto name = row["name"].get<std::string>();
    if (!row.contains("messages")) {
      messages.push_back(ToMessage(name, row));
      continue;
    }
    for (const json& message : row["messages"]) messages.push_back(ToMessage(name, message));
  }
  if (messages.empty()) {
    std::fprintf(stderr, "no golden vectors in %s\n", path.c_str());
    std::abort();
  }
  return messages;
}

std::vector<std::string_view> Views(const std::vector<std::string>& frames, size_t first) {
  return {frames.begin() + static_cast<std::ptrdiff_t>(first), frames.end()};
}

std::vector<std::string_view> Views(const EncodedMessage& message) {
  std::vector<std::string_view> views = {message.body};
  views.insert(views.end(), message.aux.begin(), message.aux.end());
  return views;
}

json ToJson(std::string_view packed) {
  if (packed.empty()) return nullptr;
  return json::from_msgpack(packed.begin(), packed.end());
}

std::string FindFatalFault(const std::vector<std::string_view>& frames) {
  if (frames.empty() || frames[0].empty()) return "an empty frame";
  const json message = json::from_msgpack(frames[0].begin(), frames[0].end(), true, false);
  if (!message.is_array()) return "the message is no array";
  if (message.size() < 2) return "the message is too short";
  if (message.size() > 9) return "the message has a 10th element";
  const auto at = [&](size_t i) { return i < message.size() ? message[i] : json(); };
  if (!message[1].is_array()) return "outputs is no array";
  for (const json& output : message[1]) {
    if (std::string fault = FaultOfOutput(output); !fault.empty()) return fault;
  }
  if (std::string fault = FaultOfStats(at(2)); !fault.empty()) return fault;
  if (!at(6).is_null() || !at(7).is_null()) return "a wave word on an output socket";
  if (!at(4).is_null() && !message[1].empty()) return "outputs together with a utility reply";
  if (message[1].empty() && at(2).is_null() && at(4).is_null() && at(5).is_null()) {
    return "nothing in it";
  }
  return "";
}

}  // namespace tandem::wire
