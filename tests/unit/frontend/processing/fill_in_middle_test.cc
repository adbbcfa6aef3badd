// Prompts around a gap, form by form. Of tekken.json they are mistral-common's (encode_fim), but
// for a stray byte that it leaves where the vocabulary lacks its helper character.

#include "frontend/processing/fill_in_middle.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "frontend/processing/input_processor.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using nlohmann::json;
using Ids = std::vector<TokenId>;

json LlamaFile() {
  std::ifstream in(TANDEM_GOLDEN_DIR "/tokenizers/llama2/tokenizer.json");
  return json::parse(in);
}

// A SentencePiece-like tokenizer (a blank before every text, <s> before prompts) whose added tokens
// have the given names too.
std::shared_ptr<const Tokenizer> Llama(const std::vector<std::string>& names) {
  json file = LlamaFile();
  TokenId id = 5000;
  for (const std::string& name : names) {
    file["added_tokens"].push_back(
        {{"id", id++}, {"content", name}, {"special", true}, {"normalized", false}});
  }
  return Tokenizer::Parse(file.dump(), R"({"bos_token": "<s>"})").value();
}

Ids Concat(const std::vector<Ids>& parts) {
  Ids all;
  for (const Ids& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

TEST_CASE("each form of a prompt around a gap has its own order") {
  struct Case {
    std::vector<std::string> names;  // ids 5000, 5001 …
    bool after_first;
  };
  const auto [names, after_first] =
      GENERATE(Case{{"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"}, false},
               Case{{"<fim_prefix>", "<fim_suffix>", "<fim_middle>"}, false},
               Case{{"<fim-prefix>", "<fim-suffix>", "<fim-middle>"}, false},
               Case{{"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"}, false},
               Case{{"▁<PRE>", "▁<SUF>", "▁<MID>"}, false},
               Case{{"<[fim-prefix]>", "<[fim-suffix]>", "<[fim-middle]>"}, true},
               Case{{"[PREFIX]", "[SUFFIX]"}, true});
  CAPTURE(names);
  const auto tokenizer = Llama(names);
  const auto form = FindFillInMiddle(*tokenizer);
  REQUIRE(form);
  const Ids last = names.size() > 2 ? Ids{5002} : Ids{};
  const Ids before = {7, 8};
  const Ids after = {9};
  const Ids expected = after_first ? Concat({{1, 5001}, after, {5000}, before, last})
                                   : Concat({{1, 5000}, before, {5001}, after, last});
  CHECK(FillInMiddlePrompt(*form, *tokenizer, before, after, true) == expected);
  CHECK(FillInMiddlePrompt(*form, *tokenizer, before, after, false) ==
        Ids(expected.begin() + 1, expected.end()));
  CHECK_FALSE(form->stop);
  // Without one of its tokens it is none.
  CHECK_FALSE(FindFillInMiddle(*Llama({names[1]})));
}

TEST_CASE("a text after a gap gets no blank before it") {
  const auto tokenizer = Llama({});
  const auto bytes = Tokenizer::Load(TANDEM_GOLDEN_DIR "/tokenizers/gpt2").value();
  for (const char* text : {"x", " x", "", ")\n  return", "the", "  the"}) {
    CAPTURE(text);
    CHECK(tokenizer->Decode(Concat({tokenizer->Encode("a", false).value(),
                                    EncodeContinuation(*tokenizer, text).value()}),
                            false) == "a" + std::string(text));
    CHECK(EncodeContinuation(*bytes, text).value() == bytes->Encode(text, false).value());
  }
  CHECK(EncodeContinuation(*tokenizer, "the").value() != tokenizer->Encode("the", false).value());
  CHECK_FALSE(EncodeContinuation(*tokenizer, "\xff").ok());
}

StatusOr<ProcessedRequest> Complete(std::shared_ptr<const Tokenizer> tokenizer, json body) {
  InputConfig config;
  const InputProcessor processor(config, std::move(tokenizer), std::nullopt);
  body["model"] = "m";
  RequestContext context;
  context.max_model_len = 100;
  ASSIGN_OR_RETURN(CompletionRequest request, ParseCompletionRequest(std::move(body)));
  return processor.Process(std::move(request), context);
}

TEST_CASE("suffix of a completion is rendered where the tokenizer has a form for it") {
  const auto tekken = Tokenizer::Load(TANDEM_GOLDEN_DIR "/tokenizer_files/tekken").value();
  const auto prompt = [&](const json& body) {
    return Complete(tekken, body).value().requests[0].prompt_token_ids;
  };
  CHECK(prompt({{"prompt", "def f(x):\n    "}, {"suffix", "\n    return y"}}) ==
        Ids{1, 16, 34, 456, 56, 613, 616, 56, 145, 14, 440, 126, 330, 64, 144, 65, 82, 34, 299});
  CHECK(prompt({{"prompt", "Hello"}, {"suffix", ")"}, {"add_special_tokens", false}}) ==
        Ids{16, 65, 14, 435});
  CHECK(prompt({{"prompt", "a"}, {"suffix", ""}}) == Ids{1, 121});
  CHECK(prompt({{"prompt", "a"}, {"suffix", nullptr}}) == Ids{1, 121});
  const auto two = Complete(tekken, {{"prompt", {"a", "x"}}, {"suffix", " b"}}).value();
  REQUIRE(two.requests.size() == 2);
  CHECK(two.requests[1].prompt_token_ids == Ids{1, 16, 294, 14, 144});
}

TEST_CASE("Code Llama's end of a middle ends the output") {
  const auto tokenizer = Llama({"▁<PRE>", "▁<SUF>", "▁<MID>", "▁<EOT>"});
  const auto result = Complete(tokenizer, {{"prompt", "a"}, {"suffix", "b"}}).value();
  CHECK(result.requests[0].sampling_params.stop_token_ids == std::vector<TokenId>{5003});
  const auto plain = Complete(tokenizer, {{"prompt", "a"}}).value();
  CHECK(plain.requests[0].sampling_params.stop_token_ids.empty());
}

TEST_CASE("suffix is refused where it has no place") {
  const auto refusal = [](const std::shared_ptr<const Tokenizer>& tokenizer, json body) {
    body["suffix"] = "b";
    const auto result = Complete(tokenizer, std::move(body));
    REQUIRE_FALSE(result.ok());
    CHECK(result.status().code() == StatusCode::kInvalidArgument);
    CHECK(result.status().param() == "suffix");
    return result.status().message();
  };
  const auto tekken = Tokenizer::Load(TANDEM_GOLDEN_DIR "/tokenizer_files/tekken").value();
  CHECK_THAT(refusal(Llama({}), {{"prompt", "a"}}), Catch::Contains("this one's has none"));
  CHECK_THAT(refusal(tekken, {{"prompt", json::parse("[1, 2]")}}), Catch::Contains("token ids"));
  CHECK_THAT(refusal(tekken, {{"prompt", "a"}, {"echo", true}}), Catch::Contains("echo"));
  CHECK_THAT(refusal(tekken, {{"prompt", "a"}, {"truncate_prompt_tokens", 3}}),
             Catch::Contains("truncate_prompt_tokens"));
  CHECK_THAT(refusal(tekken, {{"prompt", "a"}, {"return_token_offsets", true}}),
             Catch::Contains("return_token_offsets"));
  CHECK_THAT(refusal(tekken, {{"prompt_embeds", "AAAA"}}), Catch::Contains("prompt_embeds"));
  const auto long_suffix =
      Complete(tekken, {{"prompt", "a"}, {"suffix", std::string(100'000, 'x')}});
  CHECK_THAT(long_suffix.status().message(), Catch::Contains("maximum context length"));
}

}  // namespace
}  // namespace tandem
