#include "frontend/processing/input_processor.h"

#include <nlohmann/json.hpp>

#include "tests/support/api_model.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

std::shared_ptr<const Tokenizer> SmallTokenizer() {
  return Tokenizer::Load(TANDEM_GOLDEN_DIR "/api/model").value();
}

std::string Prompt(const InputProcessor& processor, const char* extra) {
  Json body = Json::parse(R"({"model": "m", "messages": [{"role": "user", "content": "x"}]})");
  body.update(Json::parse(extra));
  ChatRequest request = ParseChatRequest(std::move(body)).value();
  return processor.RenderChat(request).value();
}

constexpr char kTools[] = R"({"tools": [{"type": "function", "function": {"name": "f"}}]})";
constexpr char kHiddenTools[] =
    R"({"tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "none"})";

TEST_CASE("chats that show tools are rendered by the template for tools") {
  const auto make = [](bool excludes) {
    InputConfig config;
    config.exclude_tools_when_tool_choice_none = excludes;
    return std::make_unique<InputProcessor>(
        config, SmallTokenizer(), ChatTemplate::Compile("plain").value(),
        ChatTemplate::Compile("{{ tools[0].function.name }}").value());
  };
  const auto shows_all = make(false);
  CHECK(Prompt(*shows_all, "{}") == "plain");
  CHECK(Prompt(*shows_all, kTools) == "f");
  CHECK(Prompt(*shows_all, kHiddenTools) == "f");
  CHECK(Prompt(*make(true), kHiddenTools) == "plain");
  const InputProcessor one({}, SmallTokenizer(), ChatTemplate::Compile("plain").value());
  CHECK(Prompt(one, kTools) == "plain");
}

TEST_CASE("lists of tokens to score are refused before they need more than the limit of bytes") {
  InputConfig config;
  config.max_fanout_bytes = 4 * 6;  // a matrix of 2 by 3
  const ApiModel model(config);
  const auto prepare = [&](const std::string& ids) {
    return model.Prepare(
        "/inference/v1/generate",
        R"({"token_ids": [1, 2, 3], "sampling_params": {"prompt_logprob_token_ids": )" + ids +
            "}}");
  };
  CHECK(prepare("[[1, 2, 3], [4]]").ok());
  const Status refusal = prepare("[[1, 2, 3, 4], []]").status();
  CHECK(refusal.param() == "prompt_logprob_token_ids");
  CHECK(refusal.message() ==
        "prompt_logprob_token_ids with 2 lists of up to 4 ids would need more than 24 bytes");
}

}  // namespace
}  // namespace tandem
