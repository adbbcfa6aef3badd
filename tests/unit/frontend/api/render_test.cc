#include "frontend/api/render.h"

#include <nlohmann/json.hpp>

#include "frontend/api/admission_gate.h"
#include "frontend/api/error.h"
#include "frontend/api/models.h"
#include "frontend/processing/logprobs.h"
#include "tests/support/api_model.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using nlohmann::json;

TEST_CASE("A JSON reader reads back the text that AppendEscaped wrote") {
  std::string text;
  for (int c = 0; c < 128; ++c) text.push_back(static_cast<char>(c));
  text += "é😀\u2028";
  std::string quoted;
  AppendQuoted(text, &quoted);
  CHECK(json::parse(quoted) == json(text));
  // An event must not contain a line end.
  CHECK(quoted.find('\n') == std::string::npos);
  CHECK(quoted.find('\r') == std::string::npos);
}

TEST_CASE("ChunkWriter escapes the model name") {
  const ChunkWriter writer({"id", 5, "a\"b", "fp"}, "text_completion");
  std::string out;
  writer.Begin(3, &out);
  const Usage usage{4, 2, 1, 0};
  writer.End(",\"x\":null", &usage, &out);
  writer.AppendUsage(usage, &out);
  ChunkWriter::AppendDone(&out);
  const auto bodies = EventBodies(out);
  REQUIRE(bodies.size() == 2);
  const json chunk = json::parse(bodies[0]);
  CHECK(chunk["model"] == "a\"b");
  CHECK(chunk["choices"][0]["index"] == 3);
  CHECK(chunk["usage"]["total_tokens"] == 6);
  CHECK(chunk["usage"]["prompt_tokens_details"]["cached_tokens"] == 1);
  const json end = json::parse(bodies[1]);
  CHECK(end["choices"].empty());
  CHECK(end["system_fingerprint"] == "fp");
}

TEST_CASE("Logprobs: each token once, nothing below the lowest, invalid characters replaced") {
  const ApiModel model;
  wire::LogprobsRows rows;
  rows.num_rows = 1;
  rows.num_columns = 3;
  const TokenId broken = model.tokenizer().Encode("é", false)->at(0);
  rows.token_ids = {331, 331, 511};
  rows.logprobs = {-0.5f, -0.5f, -std::numeric_limits<float>::infinity()};
  rows.ranks = {1};
  std::vector<PositionLogprobs> positions;
  AppendPositionLogprobs(model.tokenizer(), {}, rows, &positions);
  REQUIRE(positions.size() == 1);
  REQUIRE(positions[0].top.size() == 2);
  CHECK(positions[0].top[1].logprob == kLowestLogprob);
  rows.token_ids[0] = broken;
  AppendPositionLogprobs(model.tokenizer(), {}, rows, &positions);
  CHECK(json::parse(DumpJson(ChatLogprobsJson(positions, -1)))["content"].size() == 2);
  AppendPositionLogprobs(model.tokenizer(), {true, true}, rows, &positions);
  CHECK(positions[2].token.text == "token_id:" + std::to_string(broken));
  // A row that lies beyond the arrays is dropped.
  rows.num_rows = 2;
  positions.clear();
  AppendPositionLogprobs(model.tokenizer(), {}, rows, &positions);
  CHECK(positions.size() == 1);
}

MessageDelta CallDelta(int index, const std::string& id, const std::string& name,
                       const std::string& arguments) {
  MessageDelta delta;
  delta.tool_calls.push_back({index, id, name, arguments});
  return delta;
}

TEST_CASE("A chat response shows reasoning and tool calls, streamed and whole") {
  const ApiModel model;
  for (const bool stream : {false, true}) {
    CAPTURE(stream);
    const json body = {{"messages", {{{"role", "user"}, {"content", "x"}}}}, {"stream", stream}};
    const auto prepared = model.Prepare("/v1/chat/completions", body.dump());
    REQUIRE(prepared.ok());
    std::string out;
    const auto writer = prepared->MakeWriter(&out);
    std::vector<MessageDelta> deltas(1);
    deltas[0].reasoning = "Let me \"look\".";
    deltas.push_back(CallDelta(0, "call-0", "now", ""));
    deltas.push_back(CallDelta(0, "", "", "{\"a\":"));
    deltas.push_back(CallDelta(0, "", "", "1}"));
    deltas.push_back(CallDelta(1, "call-1", "then", "{}"));
    deltas.back().finish_reason = FinishReason::kToolCalls;
    for (MessageDelta& delta : deltas) writer->WriteDelta(0, delta, {});
    writer->WriteEnd({});

    const json second = {{"id", "call-1"},
                         {"type", "function"},
                         {"function", {{"name", "then"}, {"arguments", "{}"}}}};
    if (!stream) {
      const json choice = json::parse(out)["choices"][0];
      CHECK(choice["finish_reason"] == "tool_calls");
      CHECK(choice["message"]["content"].is_null());
      CHECK(choice["message"]["reasoning"] == "Let me \"look\".");
      const json& calls = choice["message"]["tool_calls"];
      REQUIRE(calls.size() == 2);
      CHECK(calls[0]["function"] == json({{"name", "now"}, {"arguments", "{\"a\":1}"}}));
      CHECK(calls[1] == second);
      continue;
    }
    std::vector<json> shown;
    for (const std::string& event : EventBodies(out)) {
      shown.push_back(json::parse(event)["choices"][0]["delta"]);
    }
    REQUIRE(shown.size() == 6);  // the role first
    CHECK(shown[1] == json({{"reasoning", "Let me \"look\"."}}));
    CHECK(shown[2]["tool_calls"][0] == json({{"index", 0},
                                             {"id", "call-0"},
                                             {"type", "function"},
                                             {"function", {{"name", "now"}, {"arguments", ""}}}}));
    CHECK(shown[3] ==
          json({{"tool_calls", {{{"index", 0}, {"function", {{"arguments", "{\"a\":"}}}}}}}));
    CHECK(shown[5]["tool_calls"][0]["index"] == 1);
    CHECK(out.find("\"finish_reason\":\"tool_calls\"") != std::string::npos);
  }
}

TEST_CASE("Errors have OpenAI's form and HTTP's code and reveal no internals") {
  const auto body = [](const Status& status) {
    return json::parse(ErrorBody(ToApiError(status)))["error"];
  };
  const json bad = body(InvalidArgumentError("top_p is 2").WithParam("top_p"));
  CHECK(bad == json({{"message", "top_p is 2"},
                     {"type", "BadRequestError"},
                     {"param", "top_p"},
                     {"code", 400}}));
  CHECK(body(InvalidArgumentError("x").WithParam("body.x"))["type"] == "Bad Request");
  CHECK(body(NotFoundError("x"))["code"] == 404);
  CHECK(body(ResourceExhaustedError("full"))["type"] == "Service Unavailable");
  CHECK(body(UnavailableError("paused"))["type"] == "ServiceUnavailableError");
  const json internal = body(InternalError("segment at 0x7fff"));
  CHECK(internal["code"] == 500);
  CHECK(internal["message"] == "Internal server error");
  CHECK(internal["param"].is_null());
  CHECK(ErrorResponse(UnavailableError("x")).headers.size() == 1);  // Retry-After
  CHECK(ErrorEvent(InternalError("x")).rfind("data: {\"error\":", 0) == 0);
}

TEST_CASE("AdmissionGate refuses while too much waits and stops counting what has started") {
  AdmissionGate gate({2, 100});
  CHECK(gate.Check() == AdmissionGate::Refusal::kNone);
  {
    AdmissionGate::Ticket ticket(&gate);
    ticket.Resize(2, 50);
    CHECK(gate.Check() == AdmissionGate::Refusal::kRequests);
    ticket.Release(25);
    CHECK(gate.Check() == AdmissionGate::Refusal::kNone);
    CHECK(gate.num_queued_tokens() == 25);
    AdmissionGate::Ticket large(&gate);
    large.Resize(1, 80);
    CHECK(gate.Check() == AdmissionGate::Refusal::kRequests);
    ticket.Release(25);
    CHECK(gate.Check() == AdmissionGate::Refusal::kNone);
    large.Resize(1, 100);
    CHECK(gate.Check() == AdmissionGate::Refusal::kTokens);
  }
  CHECK(gate.num_queued_reqs() == 0);
  CHECK(gate.num_queued_tokens() == 0);
  CHECK(AdmissionGate({0, 0}).Check() == AdmissionGate::Refusal::kNone);
}

TEST_CASE("FindModel accepts served names, adapters and the empty name only") {
  ApiOptions options;
  options.served_model_names = {"a", "b"};
  const ServedAdapters adapters(
      {{{.name = "x", .id = 1, .path = "/x"}, 0}, {{.name = "b", .id = 2, .path = "/b"}, 0}});
  const auto name = [&](const std::optional<std::string>& model) {
    const auto found = FindModel(options, adapters, model);
    return found->name + (found->adapter != nullptr ? " " + found->adapter->lora.path : "");
  };
  CHECK(name(std::nullopt) == "a");
  CHECK(name("") == "a");
  CHECK(name("b") == "b");
  CHECK(name("x") == "x /x");
  const Status unknown = FindModel(options, adapters, "c").status();
  CHECK(unknown.code() == StatusCode::kNotFound);
  CHECK(
      unknown.message().starts_with("the model `c` does not exist; this server has `a`, `b`, `x`"));
  options.skip_model_name_validation = true;
  CHECK(name("c") == "c");
  CHECK(name("x") == "x /x");
}

TEST_CASE("FindModel names some of many adapters") {
  ApiOptions options;
  options.served_model_names = {"a"};
  std::vector<ServedAdapter> many(1000);
  for (size_t i = 0; i < many.size(); ++i) many[i].lora.name = "adapter-" + std::to_string(i);
  const std::string text = FindModel(options, ServedAdapters(many), "c").status().message();
  CHECK(text.size() < 1000);
  CHECK(text.find("`adapter-0`") != std::string::npos);
  CHECK(text.ends_with(" more"));
}

}  // namespace
}  // namespace tandem
