#include "frontend/processing/output_processor.h"

#include "tests/support/api_model.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

const ApiModel& Model() {
  static const ApiModel model;
  return model;
}

std::vector<TokenId> Ids(std::string_view text) { return *Model().tokenizer().Encode(text, false); }

wire::EngineCoreOutput Output(std::vector<TokenId> ids,
                              std::optional<wire::FinishReason> reason = std::nullopt) {
  wire::EngineCoreOutput output;
  output.request_id = "r";
  output.new_token_ids = std::move(ids);
  output.finish_reason = reason;
  return output;
}

TEST_CASE("OutputProcessor shows each token and the finish reason") {
  OutputProcessor processor(Model().tokenizer(), {}, {});
  const auto ids = Ids("The quick");
  std::string text;
  for (size_t i = 0; i < ids.size(); ++i) {
    const bool last = i + 1 == ids.size();
    const auto& delta = processor.Process(
        Output({ids[i]}, last ? std::optional(wire::FinishReason::kLength) : std::nullopt));
    CHECK(delta.ready);
    CHECK(delta.token_ids == std::vector<TokenId>{ids[i]});
    text += delta.content;
  }
  CHECK(text == "The quick");
  CHECK(processor.finished());
  CHECK_FALSE(processor.must_abort());
  CHECK(processor.delta().finish_reason == FinishReason::kLength);
  CHECK(processor.num_output_tokens() == static_cast<int64_t>(ids.size()));
}

TEST_CASE("OutputProcessor drops the stop token's text unless it is requested") {
  for (const bool include : {false, true}) {
    OutputOptions options;
    options.include_stop_str_in_output = include;
    OutputProcessor processor(Model().tokenizer(), options, {});
    auto ids = Ids("The");
    const auto stop = Ids(" fox");
    ids.insert(ids.end(), stop.begin(), stop.begin() + 1);
    const auto& delta = processor.Process(Output(ids, wire::FinishReason::kStop));
    CHECK(delta.content ==
          (include ? "The" + std::string(Model().tokenizer().TokenBytes(stop[0])) : "The"));
    CHECK(delta.token_ids == ids);
  }
}

TEST_CASE("OutputProcessor ends at a stop string and requires an abort") {
  OutputOptions options;
  options.stop = {" brown"};
  OutputProcessor processor(Model().tokenizer(), options, {});
  std::string text;
  for (const TokenId id : Ids("The quick brown fox")) {
    if (processor.finished()) break;
    text += processor.Process(Output({id})).content;
  }
  CHECK(text == "The quick");
  CHECK(processor.must_abort());
  CHECK(processor.delta().finish_reason == FinishReason::kStop);
  CHECK(std::get<std::string>(processor.delta().stop_reason) == " brown");
}

TEST_CASE("OutputProcessor drops the tokens that came with those of a stop string") {
  OutputOptions options;
  options.stop = {" brown"};
  OutputProcessor processor(Model().tokenizer(), options, {});
  OutputProcessor one_by_one(Model().tokenizer(), options, {});
  const auto ids = Ids("The quick brown fox jumps");
  std::vector<TokenId> shown;
  for (const TokenId id : ids) {
    if (one_by_one.finished()) break;
    one_by_one.Process(Output({id}));
    shown.push_back(id);
  }
  const auto& delta = processor.Process(Output(ids));
  CHECK(delta.content == "The quick");
  CHECK(delta.token_ids == shown);
  CHECK(processor.num_output_tokens() == one_by_one.num_output_tokens());
  CHECK(shown.size() < ids.size());
}

TEST_CASE("OutputProcessor requires no abort when the engine has finished") {
  OutputOptions options;
  options.stop = {"fox"};
  OutputProcessor processor(Model().tokenizer(), options, {});
  const auto& delta = processor.Process(Output(Ids("a fox"), wire::FinishReason::kLength));
  CHECK(delta.content == "a ");
  CHECK(delta.finish_reason == FinishReason::kStop);
  CHECK_FALSE(processor.must_abort());
}

TEST_CASE("OutputProcessor ignores stop strings until min_tokens") {
  const auto ids = Ids("fox and fox");
  OutputOptions options;
  options.stop = {"fox"};
  options.min_tokens = static_cast<int64_t>(Ids("fox").size());
  OutputProcessor processor(Model().tokenizer(), options, {});
  std::string text;
  for (const TokenId id : ids) text += processor.Process(Output({id})).content;
  CHECK(text == "fox and ");
}

TEST_CASE("OutputProcessor shows held-back text when the choice ends without a match") {
  OutputOptions options;
  options.stop = {"foxes"};
  OutputProcessor processor(Model().tokenizer(), options, {});
  std::string text;
  const auto ids = Ids("a fox");
  for (const TokenId id : ids) text += processor.Process(Output({id})).content;
  CHECK(text == "a ");
  text += processor.Process(Output({}, wire::FinishReason::kAbort)).content;
  CHECK(text == "a fox");
}

TEST_CASE("OutputProcessor gathers tokens by stream_interval after the first") {
  OutputOptions options;
  options.stream_interval = 3;
  OutputProcessor processor(Model().tokenizer(), options, {});
  std::vector<size_t> sizes;
  std::string text;
  const auto ids = Ids("The quick brown fox");
  for (size_t i = 0; i < ids.size(); ++i) {
    const bool last = i + 1 == ids.size();
    const auto& delta = processor.Process(
        Output({ids[i]}, last ? std::optional(wire::FinishReason::kLength) : std::nullopt));
    if (!delta.ready) continue;
    sizes.push_back(delta.token_ids.size());
    text += delta.content;
  }
  CHECK(sizes == std::vector<size_t>{1, 3, 3, 3});
  CHECK(text == "The quick brown fox");
}

std::shared_ptr<const MessagePlan> ThinkingCaller() {
  auto plan = std::make_shared<MessagePlan>();
  plan->format.reasoning = FindReasoningFormat("qwen3");
  plan->format.tool_parser = FindToolParser("hermes");
  plan->format.tools = &plan->tools;
  return plan;
}

// One token a step; the deltas of a choice, put together.
MessageDelta Collect(OutputProcessor* processor, std::string_view text) {
  MessageDelta sum;
  const auto ids = Ids(text);
  for (size_t i = 0; i < ids.size(); ++i) {
    const bool last = i + 1 == ids.size();
    const auto& delta = processor->Process(
        Output({ids[i]}, last ? std::optional(wire::FinishReason::kLength) : std::nullopt));
    if (!delta.ready) continue;
    CHECK((delta.has_message() || i == 0 || last));
    sum.content += delta.content;
    sum.reasoning += delta.reasoning;
    for (const ToolCallDelta& call : delta.tool_calls) {
      if (call.index == static_cast<int>(sum.tool_calls.size())) {
        sum.tool_calls.push_back(call);
      } else {
        CHECK(call.id.empty());
        CHECK(call.name.empty());
        sum.tool_calls.back().arguments += call.arguments;
      }
    }
    sum.finish_reason = delta.finish_reason;
  }
  return sum;
}

TEST_CASE("OutputProcessor splits reasoning and calls from the content") {
  OutputOptions options;
  options.message = ThinkingCaller();
  OutputProcessor processor(Model().tokenizer(), options, {});
  const MessageDelta sum = Collect(
      &processor,
      "<think>hm</think>Now: <tool_call>{\"name\": \"f\", \"arguments\": {\"x\": 1}}</tool_call>");
  CHECK(sum.reasoning == "hm");
  CHECK(sum.content == "Now:");
  REQUIRE(sum.tool_calls.size() == 1);
  CHECK(sum.tool_calls[0].name == "f");
  CHECK(sum.tool_calls[0].arguments == "{\"x\": 1}");
  CHECK(sum.tool_calls[0].id.rfind("chatcmpl-tool-", 0) == 0);
  CHECK(sum.finish_reason == FinishReason::kLength);
  CHECK(processor.num_reasoning_tokens() > 0);
}

TEST_CASE("OutputProcessor ends a choice that stops after a call with tool_calls") {
  OutputOptions options;
  options.message = ThinkingCaller();
  options.stop = {"</tool_call>"};
  OutputProcessor processor(Model().tokenizer(), options, {});
  const MessageDelta& delta = processor.Process(
      Output(Ids("</think><tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call> and more")));
  CHECK(delta.finish_reason == FinishReason::kToolCalls);
  REQUIRE(delta.tool_calls.size() == 1);
  CHECK(delta.content.empty());
  CHECK(processor.must_abort());
}

TEST_CASE("OutputProcessor ends a choice whose stop string cuts a call off with stop") {
  OutputOptions options;
  options.message = ThinkingCaller();
  options.stop = {": 1"};
  OutputProcessor processor(Model().tokenizer(), options, {});
  const MessageDelta& delta = processor.Process(
      Output(Ids("</think><tool_call>{\"name\": \"f\", \"arguments\": {\"x\": 1}}</tool_call>")));
  REQUIRE(delta.tool_calls.size() == 1);
  CHECK(delta.tool_calls[0].arguments == "{\"x\"");
  CHECK(delta.finish_reason == FinishReason::kStop);
  CHECK(delta.stop_reason == wire::StopReason(": 1"));
}

TEST_CASE("OutputProcessor hides reasoning that the request does not include") {
  auto plan = std::make_shared<MessagePlan>();
  plan->format.reasoning = FindReasoningFormat("qwen3");
  plan->include_reasoning = false;
  OutputOptions options;
  options.message = plan;
  OutputProcessor processor(Model().tokenizer(), options, {});
  const MessageDelta sum = Collect(&processor, "<think>secret</think>shown");
  CHECK(sum.reasoning.empty());
  CHECK(sum.content == "shown");
}

wire::EngineCoreOutput WithLogprobs(std::vector<TokenId> ids) {
  wire::EngineCoreOutput output = Output(std::move(ids));
  wire::LogprobsRows rows;
  rows.num_columns = 1;
  for (const TokenId id : output.new_token_ids) {
    ++rows.num_rows;
    rows.token_ids.push_back(id);
    rows.logprobs.push_back(-1);
    rows.ranks.push_back(1);
  }
  output.new_logprobs = rows;
  return output;
}

// Feeds `text` in steps of `step` tokens with logprobs; the shown tokens of all deltas, as text.
std::string ShownTokens(const MessageFormat& format, std::string_view text, size_t step,
                        int64_t interval, std::vector<std::string> stop = {}) {
  auto plan = std::make_shared<MessagePlan>();
  plan->format = format;
  plan->include_reasoning = false;
  OutputOptions options;
  options.message = plan;
  options.stream_interval = interval;
  options.stop = std::move(stop);
  OutputProcessor processor(Model().tokenizer(), options, {});
  const std::vector<TokenId> ids = Ids(text);
  std::string shown;
  for (size_t i = 0; i < ids.size() && !processor.finished(); i += step) {
    const size_t end = std::min(i + step, ids.size());
    wire::EngineCoreOutput output = WithLogprobs(
        {ids.begin() + static_cast<ptrdiff_t>(i), ids.begin() + static_cast<ptrdiff_t>(end)});
    if (end == ids.size()) output.finish_reason = wire::FinishReason::kLength;
    const MessageDelta& delta = processor.Process(output);
    if (!delta.ready) continue;
    CHECK(delta.reasoning.empty());
    REQUIRE(delta.logprobs.size() == delta.token_ids.size());
    for (size_t t = 0; t < delta.token_ids.size(); ++t) {
      CHECK(delta.logprobs[t].token.token_id == delta.token_ids[t]);
      shown += Model().tokenizer().TokenBytes(delta.token_ids[t]);
    }
  }
  CHECK(processor.finished());
  return shown;
}

TEST_CASE("OutputProcessor shows no token of hidden reasoning") {
  MessageFormat think;
  think.reasoning = FindReasoningFormat("qwen3");
  MessageFormat by_text = think;
  by_text.start = ReasoningStart::kByText;
  MessageFormat whole;
  whole.reasoning = FindReasoningFormat("olmo3");
  for (const size_t step : {1u, 2u, 5u, 100u}) {
    for (const int64_t interval : {1, 3}) {
      for (const MessageFormat& format : {think, by_text, whole}) {
        INFO(format.reasoning->name << " " << step << " " << interval);
        const std::string shown =
            ShownTokens(format, "<think>secret thing</think>shown text", step, interval);
        CHECK(shown.ends_with("shown text"));
        CHECK(shown.find("secret") == std::string::npos);
        CHECK(shown.find("hing") == std::string::npos);
        CHECK(ShownTokens(format, "<think>secret</think>A fox</s>x", step, interval, {"</s>"})
                  .find("secret") == std::string::npos);
      }
      CHECK(ShownTokens(think, "only a secret", step, interval).empty());
      CHECK(ShownTokens(by_text, "a plain answer", step, interval) == "a plain answer");
      CHECK(ShownTokens(whole, "a plain answer", step, interval) == "a plain answer");
    }
  }
  MessageFormat granite;
  granite.reasoning = FindReasoningFormat("granite");
  const std::string shown =
      ShownTokens(granite, "Here is my thought process: secret Here is my response: shown", 1, 1);
  CHECK(shown.find("secret") == std::string::npos);
  CHECK(shown.ends_with(" shown"));
}

// The text of the tokens whose logprobs are shown where content alone has some.
std::string ScoredContent(std::string_view text, size_t step, int64_t interval,
                          bool include_reasoning = true) {
  auto plan = std::make_shared<MessagePlan>();
  plan->format.reasoning = FindReasoningFormat("qwen3");
  plan->format.tool_parser = FindToolParser("hermes");
  plan->format.tools = &plan->tools;
  plan->include_reasoning = include_reasoning;
  plan->logprobs_of_content = true;
  OutputOptions options;
  options.message = plan;
  options.stream_interval = interval;
  OutputProcessor processor(Model().tokenizer(), options, {});
  const std::vector<TokenId> ids = Ids(text);
  std::string scored;
  size_t num_ids = 0;
  for (size_t i = 0; i < ids.size(); i += step) {
    const size_t end = std::min(i + step, ids.size());
    wire::EngineCoreOutput output = WithLogprobs(
        {ids.begin() + static_cast<ptrdiff_t>(i), ids.begin() + static_cast<ptrdiff_t>(end)});
    if (end == ids.size()) output.finish_reason = wire::FinishReason::kLength;
    const MessageDelta& delta = processor.Process(output);
    if (!delta.ready) continue;
    for (const PositionLogprobs& position : delta.logprobs) scored += position.token.bytes;
    num_ids += delta.token_ids.size();
  }
  if (include_reasoning) CHECK(num_ids == ids.size());
  return scored;
}

TEST_CASE("OutputProcessor shows the logprobs of content alone, however it is cut") {
  const std::string_view call =
      "<tool_call>{\"name\": \"f\", \"arguments\": {\"x\": 1}}</tool_call>";
  for (const size_t step : {1u, 2u, 5u, 100u}) {
    for (const int64_t interval : {1, 2, 3, 50}) {
      for (const bool include : {true, false}) {
        INFO(step << " " << interval << " " << include);
        CHECK(ScoredContent("<think>secret thing</think>shown text", step, interval, include) ==
              "shown text");
        CHECK(ScoredContent("<think>secret</think>a < b", step, interval, include) == "a < b");
        CHECK(ScoredContent("only a secret", step, interval, include).empty());
        CHECK(ScoredContent("</think>Now" + std::string(call), step, interval, include) == "Now");
        CHECK(ScoredContent("</think>" + std::string(call), step, interval, include).empty());
      }
    }
  }
}

TEST_CASE("OutputProcessor counts the tokens of reasoning that it hides") {
  const auto count = [](bool include) {
    auto plan = std::make_shared<MessagePlan>();
    plan->format.reasoning = FindReasoningFormat("qwen3");
    plan->include_reasoning = include;
    OutputOptions options;
    options.message = plan;
    OutputProcessor processor(Model().tokenizer(), options, {});
    Collect(&processor, "<think>secret thing</think>shown");
    return std::pair(processor.num_reasoning_tokens(), processor.num_output_tokens());
  };
  CHECK(count(false) == count(true));
  CHECK(count(false).first > 0);
}

}  // namespace
}  // namespace tandem
