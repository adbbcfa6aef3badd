// Drawn request bodies and token streams against what must always hold.

#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "frontend/openai/chat_request.h"
#include "frontend/openai/completion_request.h"
#include "frontend/openai/responses_request.h"
#include "tests/support/api_model.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using nlohmann::json;
using Random = std::mt19937;

int Draw(Random& random, int below) {
  return std::uniform_int_distribution<int>(0, below - 1)(random);
}

// Values of any kind, with the edges of every range among them.
json DrawValue(Random& random, int depth = 0) {
  static const json kEdges = json::array({nullptr,
                                          true,
                                          false,
                                          0,
                                          1,
                                          -1,
                                          2,
                                          3,
                                          16,
                                          511,
                                          512,
                                          513,
                                          8191,
                                          8192,
                                          8193,
                                          2147483647,
                                          2147483648,
                                          -2147483649,
                                          INT64_MAX,
                                          INT64_MIN,
                                          UINT64_MAX,
                                          1e300,
                                          -1e300,
                                          0.0,
                                          -0.0,
                                          0.5,
                                          1.0,
                                          1.0001,
                                          2.0,
                                          1e-9,
                                          5.0,
                                          "",
                                          "x",
                                          "text",
                                          "none",
                                          "auto",
                                          "left",
                                          "The quick brown fox",
                                          "\xC3\xA9\xF0\x9F\x98\x80",
                                          std::string(300, 'a'),
                                          std::string("a\0b", 3),
                                          "json_object",
                                          "message",
                                          "reasoning",
                                          "function_call",
                                          "function_call_output",
                                          "custom",
                                          "namespace",
                                          "assistant",
                                          "user",
                                          "incomplete"});
  const int kind = Draw(random, depth < 3 ? 10 : 8);
  if (kind < 8) return kEdges[static_cast<size_t>(Draw(random, static_cast<int>(kEdges.size())))];
  json value = kind == 8 ? json::array() : json::object();
  const int size = Draw(random, 4);
  static const char* const kKeys[] = {
      "type",      "text",    "role",  "content",       "name",    "function",  "5",
      "511",       "900",     "x",     "include_usage", "call_id", "arguments", "output",
      "namespace", "summary", "input", "tools",         "format",  "effort"};
  for (int i = 0; i < size; ++i) {
    if (kind == 8) {
      value.push_back(DrawValue(random, depth + 1));
    } else {
      value[kKeys[Draw(random, static_cast<int>(std::size(kKeys)))]] = DrawValue(random, depth + 1);
    }
  }
  return value;
}

template <class Fields>
std::vector<std::string> Names(const Fields& fields) {
  std::vector<std::string> names;
  for (const auto& field : fields) names.emplace_back(field.name);
  return names;
}

void CheckIds(const std::vector<TokenId>& ids) {
  for (const TokenId id : ids) CHECK((id >= 0 && id < 512));
}

void CheckComplete(const wire::EngineCoreRequest& request) {
  const wire::SamplingParams& params = request.sampling_params;
  CHECK_FALSE(request.prompt_token_ids.empty());
  CheckIds(request.prompt_token_ids);
  CheckIds(params.stop_token_ids);
  CheckIds(params.all_stop_token_ids);
  CheckIds(params.allowed_token_ids);
  for (const auto& word : params.bad_words_token_ids) CheckIds(word);
  for (const auto& [id, bias] : params.logit_bias) {
    CheckIds({id});
    CHECK((bias >= -100 && bias <= 100));
  }
  CHECK((params.temperature == 0 || (params.temperature >= 0.01 && params.temperature <= 2)));
  CHECK((params.top_p > 0 && params.top_p <= 1));
  CHECK(params.top_k >= 0);
  CHECK((params.min_p >= 0 && params.min_p <= 1));
  CHECK(params.repetition_penalty > 0);
  CHECK(std::abs(params.presence_penalty) <= 2);
  CHECK(std::abs(params.frequency_penalty) <= 2);
  CHECK(params.max_tokens >= 1);
  CHECK(static_cast<int64_t>(request.prompt_token_ids.size()) + params.max_tokens <=
        ApiModel::kMaxModelLen);
  CHECK((params.min_tokens >= 0 && params.min_tokens <= params.max_tokens));
  CHECK(params.n == 1);
  for (const auto& logprobs : {params.logprobs, params.prompt_logprobs}) {
    CHECK((!logprobs || (*logprobs >= -1 && *logprobs <= 20)));
  }
}

TEST_CASE("Fuzz: any value in any field is refused with a 400 or gives a complete request") {
  const ApiModel model;
  std::vector<std::string> common = Names(kGenerationFields);
  std::vector<std::string> completion = Names(kCompletionFields);
  std::vector<std::string> chat = Names(kChatFields);
  std::vector<std::string> responses = Names(kResponsesFields);
  const uint32_t seed = 20261120;
  CAPTURE(seed);
  Random random(seed);
  int num_taken = 0;
  int num_refused = 0;
  for (int round = 0; round < 6000; ++round) {
    const int endpoint = round % 3;
    json body = endpoint == 0   ? json({{"messages", {{{"role", "user"}, {"content", "hi"}}}}})
                : endpoint == 1 ? json({{"prompt", "hi"}})
                                : json({{"input", {DrawValue(random), DrawValue(random)}}});
    if (endpoint == 2 && Draw(random, 2) == 0) body["input"] = "hi";
    const auto& own = endpoint == 0 ? chat : endpoint == 1 ? completion : responses;
    for (int i = Draw(random, 4); i >= 0; --i) {
      const auto& names = Draw(random, 3) == 0 ? own : common;
      body[names[static_cast<size_t>(Draw(random, static_cast<int>(names.size())))]] =
          DrawValue(random);
    }
    // A large but allowed n is true work; it has a test of its own.
    if (body.contains("n") && body["n"].is_number() && body["n"] > 16) body["n"] = 2;
    const std::string text = body.dump(-1, ' ', false, json::error_handler_t::replace);
    CAPTURE(round, text);
    const char* const kPaths[] = {"/v1/chat/completions", "/v1/completions", "/v1/responses"};
    const auto prepared = model.Prepare(kPaths[endpoint], text);
    if (prepared.ok()) {
      ++num_taken;
      std::set<std::string> ids;
      for (const auto& request : prepared->processed.requests) {
        CheckComplete(request);
        CHECK(ids.insert(request.request_id).second);
      }
    } else {
      ++num_refused;
      const StatusCode code = prepared.status().code();
      CHECK((code == StatusCode::kInvalidArgument || code == StatusCode::kNotFound ||
             code == StatusCode::kFailedPrecondition));
      CHECK_FALSE(prepared.status().message().empty());
    }
  }
  CHECK(num_taken > 200);
  CHECK(num_refused > 1000);
}

TEST_CASE("Fuzz: bytes that are nearly a body do no harm") {
  const ApiModel model;
  const std::string good =
      R"({"model": "m", "prompt": ["a", "b"], "stop": ["x"], "logit_bias": {"5": 1}, "n": 2, "temperature": 0.5})";
  const uint32_t seed = 7;
  CAPTURE(seed);
  Random random(seed);
  for (int round = 0; round < 5000; ++round) {
    std::string text = good;
    for (int i = Draw(random, 4); i >= 0; --i) {
      const auto at = static_cast<size_t>(Draw(random, static_cast<int>(text.size())));
      switch (Draw(random, 3)) {
        case 0:
          text[at] = static_cast<char>(Draw(random, 256));
          break;
        case 1:
          text.erase(at, 1 + static_cast<size_t>(Draw(random, 4)));
          break;
        default:
          text.insert(at, text.substr(at, static_cast<size_t>(Draw(random, 8))));
      }
      if (text.empty()) text = "{";
    }
    CAPTURE(round);
    const auto prepared = model.Prepare("/v1/completions", text);
    if (prepared.ok()) {
      for (const auto& request : prepared->processed.requests) CheckComplete(request);
    }
  }
}

struct Shown {
  std::string text;
  json finish_reason;
  json stop_reason;
};

Shown ShownBy(const std::string& response, bool stream, bool chat) {
  Shown shown;
  const auto bodies = stream ? EventBodies(response) : std::vector<std::string>{response};
  for (const std::string& body : bodies) {
    const json event = json::parse(body);
    for (const json& choice : event["choices"]) {
      const json& holder = !chat ? choice : stream ? choice["delta"] : choice["message"];
      shown.text += holder.value(chat ? "content" : "text", "");
      if (choice.contains("finish_reason") && !choice["finish_reason"].is_null()) {
        CHECK(shown.finish_reason.is_null());
        shown.finish_reason = choice["finish_reason"];
        shown.stop_reason = choice["stop_reason"];
      }
    }
  }
  return shown;
}

// Tokens in random portions: stream and body show the same, whatever the portions.
TEST_CASE("Streams concatenate to the text of the single body") {
  const ApiModel model;
  const uint32_t seed = 99;
  CAPTURE(seed);
  Random random(seed);
  for (int round = 0; round < 300; ++round) {
    CAPTURE(round);
    const bool chat = round % 2 == 0;
    std::vector<TokenId> ids;
    for (int i = Draw(random, 40); i >= 0; --i) ids.push_back(Draw(random, 512));
    json body = chat ? json({{"messages", {{{"role", "user"}, {"content", "hi"}}}}})
                     : json({{"prompt", "hi"}});
    body["max_tokens"] = 100;
    if (Draw(random, 2) == 0) body["stop"] = {"e", " t"};
    if (Draw(random, 2) == 0) body["skip_special_tokens"] = false;
    if (Draw(random, 2) == 0) body["include_stop_str_in_output"] = true;
    if (Draw(random, 3) == 0) body["min_tokens"] = Draw(random, 20);
    Shown first;
    for (int variant = 0; variant < 3; ++variant) {
      const bool stream = variant > 0;
      body["stream"] = stream;
      body.erase("stream_interval");
      if (stream && Draw(random, 2) == 0) body["stream_interval"] = 1 + Draw(random, 5);
      const auto prepared =
          model.Prepare(chat ? "/v1/chat/completions" : "/v1/completions", body.dump());
      INFO(prepared.status().ToString());
      REQUIRE(prepared.ok());
      std::vector<ApiModel::Output> outputs;
      for (size_t at = 0; at < ids.size();) {
        const size_t size = std::min(ids.size() - at, 1 + static_cast<size_t>(Draw(random, 3)));
        wire::EngineCoreOutput output;
        output.new_token_ids.assign(ids.begin() + static_cast<long>(at),
                                    ids.begin() + static_cast<long>(at + size));
        at += size;
        if (at == ids.size()) output.finish_reason = wire::FinishReason::kLength;
        outputs.push_back({0, std::move(output)});
      }
      const Shown shown = ShownBy(model.Respond(*prepared, outputs), stream, chat);
      CHECK_FALSE(shown.finish_reason.is_null());
      if (variant == 0) {
        first = shown;
        continue;
      }
      CHECK(shown.text == first.text);
      CHECK(shown.finish_reason == first.finish_reason);
      CHECK(shown.stop_reason == first.stop_reason);
    }
  }
}

}  // namespace
}  // namespace tandem
