// The recorded exchanges of the vllm-rs 0.33 frontend as an oracle: a client's body gives the same
// engine request, the engine's outputs give the same response.

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/support/api_model.h"
#include "tests/support/gzip/gzip_lines.h"
#include "tests/support/wire_json.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using nlohmann::json;

struct Exchange {
  json http;
  std::vector<wire::GoldenMessage> requests;
  std::vector<wire::GoldenMessage> outputs;
};

std::vector<Exchange> ReadExchanges() {
  std::map<std::string, std::vector<wire::GoldenMessage>> requests;
  std::map<std::string, std::vector<wire::GoldenMessage>> outputs;
  for (auto& message : wire::ReadGolden("requests.jsonl.gz")) {
    requests[message.name].push_back(std::move(message));
  }
  for (auto& message : wire::ReadGolden("outputs.jsonl.gz")) {
    outputs[message.name].push_back(std::move(message));
  }
  std::vector<Exchange> exchanges;
  for (json& http : ReadGzipLines(TANDEM_GOLDEN_DIR "/api/http.jsonl.gz")) {
    const std::string name = http["name"];
    exchanges.push_back({std::move(http), requests[name], outputs[name]});
  }
  REQUIRE(exchanges.size() == 53);
  return exchanges;
}

// The recording server allowed logprobs of the whole vocabulary and showed cached tokens.
ApiModel MakeModel() {
  InputConfig config;
  config.max_logprobs = -1;
  ApiOptions options;
  options.enable_prompt_tokens_details = true;
  return ApiModel(std::move(config), std::move(options));
}

StatusOr<ApiModel::Prepared> Prepare(const ApiModel& model, const json& http) {
  RequestHeaders headers = model.Headers();
  for (const auto& [name, value] : http["headers"].items()) {
    if (name == "X-Request-Id") {
      headers.context.external_id = value;
      headers.id_from_client = true;
    } else if (name == "X-data-parallel-rank") {
      headers.context.data_parallel_rank = std::stoi(value.get<std::string>());
    }
  }
  return model.Prepare(http["path"].get<std::string>(), http["body"].dump(), headers);
}

// Where two values differ ("choices.0.text: …"), numbers within float32; empty when nowhere.
std::string Difference(const json& a, const json& b) {
  if (a.is_number() && b.is_number()) {
    const double x = a.get<double>();
    const double y = b.get<double>();
    return std::abs(x - y) <= 1e-6 * std::max(1.0, std::abs(x)) ? "" : a.dump() + " / " + b.dump();
  }
  if (a.type() != b.type() || a.size() != b.size() || !a.is_structured()) {
    return a == b ? "" : a.dump() + " / " + b.dump();
  }
  for (const auto& [key, value] : a.items()) {
    if (a.is_object() && !b.contains(key)) return key + ": only ours";
    const std::string inner = Difference(value, a.is_object() ? b[key] : b[std::stoul(key)]);
    if (!inner.empty()) return key + "." + inner;
  }
  return "";
}

// Keys that are null say nothing; their presence differs between the two servers.
json WithoutNulls(const json& value) {
  if (!value.is_object() && !value.is_array()) return value;
  json result = value.is_object() ? json::object() : json::array();
  for (const auto& [key, item] : value.items()) {
    if (value.is_array()) {
      result.push_back(item.is_object() ? WithoutNulls(item) : item);
    } else if (!item.is_null()) {
      result[key] = WithoutNulls(item);
    }
  }
  return result;
}

json Comparable(json body) {
  body.erase("id");
  body.erase("created");
  body.erase("system_fingerprint");
  if (body.contains("usage")) {
    json& usage = body["usage"];
    usage.erase("completion_tokens_details");
    if (usage["prompt_tokens_details"].is_object()) {
      usage["prompt_tokens_details"] = {
          {"cached_tokens", usage["prompt_tokens_details"]["cached_tokens"]}};
    }
  }
  return WithoutNulls(body);
}

TEST_CASE("Lowering gives the engine request that vllm-rs sends") {
  const ApiModel model = MakeModel();
  for (const Exchange& exchange : ReadExchanges()) {
    const std::string name = exchange.http["name"];
    CAPTURE(name);
    const auto prepared = Prepare(model, exchange.http);
    INFO(prepared.status().ToString());
    REQUIRE(prepared.ok());
    REQUIRE(prepared->processed.requests.size() == 1);
    const json ours = json::parse(DescribeRequest(prepared->processed.requests[0]));
    const json& theirs = exchange.requests.at(0).decoded;

    const json our_sampling = ours["sampling"];
    json their_sampling = theirs[3];
    // vllm-rs sends its default as well.
    if (!our_sampling.contains("watermarking")) their_sampling.erase("watermarking");
    CHECK(Difference(our_sampling, their_sampling) == "");
    CHECK(ours["prompt_token_ids"] == theirs[1]);
    CHECK(ours["cache_salt"] == theirs[7]);
    CHECK(ours["data_parallel_rank"] == theirs[8]);
    CHECK(ours["priority"] == theirs[13]);
    CHECK(ours["reasoning_parser_kwargs"] == theirs[18]);
    CHECK(ours["session_id"] == theirs[20]);
    // "<external id>-<8 hex>"; completions number their prompts before it.
    const std::string external = ours["external_req_id"];
    const std::string internal = ours["request_id"];
    CHECK(internal.size() == external.size() + 9);
    CHECK(internal.rfind(external + "-", 0) == 0);
    if (!exchange.http["headers"].empty() || exchange.http["body"].contains("request_id")) {
      const bool named = external == theirs[16].get<std::string>() + "-0";
      CHECK((named || external == "cmpl-test-0"));
    }
  }
}

std::string RunExchange(const ApiModel& model, const Exchange& exchange) {
  const auto prepared = Prepare(model, exchange.http);
  REQUIRE(prepared.ok());
  std::vector<ApiModel::Output> outputs;
  for (const wire::GoldenMessage& message : exchange.outputs) {
    wire::EngineCoreOutputs record;
    REQUIRE(wire::Decode(wire::Views(message.frames), &record).ok());
    for (wire::EngineCoreOutput& output : record.outputs) outputs.push_back({0, std::move(output)});
  }
  return model.Respond(*prepared, outputs);
}

bool HasErrorResponse(const Exchange& exchange) {
  const std::string name = exchange.http["name"];
  return name.rfind("error_", 0) == 0 || name == "finish_error";
}

TEST_CASE("Responses in one body equal those of vllm-rs") {
  const ApiModel model = MakeModel();
  int num_compared = 0;
  for (const Exchange& exchange : ReadExchanges()) {
    const std::string name = exchange.http["name"];
    if (HasErrorResponse(exchange) || exchange.http["body"].value("stream", false)) continue;
    if (!exchange.http["complete"]) continue;  // the recording keeps the first 6000 characters
    // Its prompt is forty times a piece of a character; vllm-rs shows them all as U+FFFD, we none.
    if (name == "cached_tokens") continue;
    // Its engine scored the drawn token twice, differently; an engine gives one value.
    if (name == "logprobs_full_vocab") continue;
    CAPTURE(name);
    const json ours = Comparable(json::parse(RunExchange(model, exchange)));
    const json theirs = Comparable(json::parse(exchange.http["response"].get<std::string>()));
    CHECK(Difference(ours, theirs) == "");
    ++num_compared;
  }
  CHECK(num_compared >= 40);
}

struct Stream {
  std::vector<std::string> texts;  // of each event that has some
  json finish_reason;
  json stop_reason;
  json usage;
};

std::string Join(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all += text;
  return all;
}

Stream ReadStream(const std::string& text) {
  Stream stream;
  for (const std::string& body : EventBodies(text)) {
    const json event = json::parse(body);
    if (event.contains("usage") && event["choices"].empty()) {
      stream.usage = Comparable(event)["usage"];
    }
    for (const json& choice : event["choices"]) {
      const json& holder = choice.contains("delta") ? choice["delta"] : choice;
      const std::string delta = holder.value(choice.contains("delta") ? "content" : "text", "");
      if (!delta.empty()) stream.texts.push_back(delta);
      if (choice.contains("finish_reason") && !choice["finish_reason"].is_null()) {
        CHECK(stream.finish_reason.is_null());
        stream.finish_reason = choice["finish_reason"];
        if (choice.contains("stop_reason")) stream.stop_reason = choice["stop_reason"];
      }
    }
  }
  return stream;
}

TEST_CASE("Streams carry the texts, the end and the usage that vllm-rs sends") {
  const ApiModel model = MakeModel();
  int num_compared = 0;
  for (const Exchange& exchange : ReadExchanges()) {
    const std::string name = exchange.http["name"];
    if (HasErrorResponse(exchange) || !exchange.http["body"].value("stream", false)) continue;
    CAPTURE(name);
    const Stream ours = ReadStream(RunExchange(model, exchange));
    const Stream theirs = ReadStream(exchange.http["response"].get<std::string>());
    if (exchange.http["body"].contains("stop")) {
      // vllm-rs holds back more than what may become a stop string.
      CHECK(Join(ours.texts) == Join(theirs.texts));
    } else {
      CHECK(ours.texts == theirs.texts);
    }
    CHECK(ours.finish_reason == theirs.finish_reason);
    CHECK(ours.stop_reason == theirs.stop_reason);
    CHECK(ours.usage == theirs.usage);
    ++num_compared;
  }
  CHECK(num_compared == 4);
}

}  // namespace
}  // namespace tandem
