#include "frontend/text/tokenizer.h"

#include "tests/support/files/temp_folder.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

// Merges: h e, l l, he ll, hell o.
constexpr const char* kTokenizer = R"json({
  "added_tokens": [
    {"id": 8, "content": "<|end|>", "special": true, "normalized": false},
    {"id": 9, "content": "<tool>", "special": false, "normalized": false}],
  "normalizer": null,
  "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
  "post_processor": {"type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<|end|>"}}, {"Sequence": {"id": "A"}}],
    "special_tokens": {"<|end|>": {"ids": [8]}}},
  "decoder": {"type": "ByteLevel"},
  "model": {"type": "BPE",
    "vocab": {"h": 0, "e": 1, "l": 2, "o": 3, "he": 4, "ll": 5, "hell": 6, "hello": 7, "Ġ": 10},
    "merges": ["h e", "l l", ["he", "ll"], "hell o"]}})json";
constexpr const char* kConfig = R"json({
  "bos_token": {"content": "<|end|>", "lstrip": false}, "eos_token": "<|end|>",
  "chat_template": [{"name": "tools", "template": "T"}, {"name": "default", "template": "D"}]})json";

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

TEST_CASE("Tokenizer encodes by merges, leaves unknown bytes out and adds special tokens") {
  const auto tokenizer = Tokenizer::Parse(kTokenizer, kConfig).value();
  CHECK(tokenizer->Encode("hello", false).value() == std::vector<TokenId>{7});
  CHECK(tokenizer->Encode("hel lo", true).value() == std::vector<TokenId>{8, 4, 2, 10, 2, 3});
  CHECK(tokenizer->Encode("hqe", false).value() == std::vector<TokenId>{4});
  CHECK(tokenizer->Encode("he<tool><|end|>", false).value() == std::vector<TokenId>{4, 9, 8});
  CHECK(tokenizer->Encode("", false).value().empty());
}

TEST_CASE("Tokenizer refuses text that is not UTF-8") {
  const auto tokenizer = Tokenizer::Parse(kTokenizer, kConfig).value();
  const auto ids = tokenizer->Encode("he\xFFllo", false);
  REQUIRE_FALSE(ids.ok());
  CHECK(ids.status().code() == StatusCode::kInvalidArgument);
}

TEST_CASE("Tokenizer returns its tokens, flags, names and template") {
  const auto tokenizer = Tokenizer::Parse(kTokenizer, kConfig).value();
  CHECK(tokenizer->vocab_size() == 11);
  CHECK(tokenizer->TokenBytes(10) == " ");
  CHECK(tokenizer->IdToToken(10) == "Ġ");
  CHECK(tokenizer->TokenToId("hello") == 7);
  CHECK(tokenizer->TokenBytes(99).empty());
  CHECK_FALSE(tokenizer->IdToToken(-1));
  CHECK(tokenizer->IsSpecial(8));
  CHECK(tokenizer->IsAdded(9));
  CHECK_FALSE(tokenizer->IsSpecial(9));
  CHECK(tokenizer->bos_id() == 8);
  CHECK(tokenizer->eos_id() == 8);
  CHECK(tokenizer->special_tokens().at("eos_token") == "<|end|>");
  CHECK(tokenizer->chat_templates() ==
        std::map<std::string, std::string>{{"default", "D"}, {"tools", "T"}});
  CHECK(tokenizer->Decode(std::vector<TokenId>{7, 8, 10, 99}, true) == "hello ");
}

TEST_CASE("Tokenizer takes the chat templates of files before those of its configuration") {
  using Templates = std::map<std::string, std::string>;
  const TempFolder folder;
  const auto templates = [&] { return Tokenizer::Load(folder.path()).value()->chat_templates(); };
  folder.Write("tokenizer.json", kTokenizer);
  folder.Write("tokenizer_config.json", kConfig);
  CHECK(templates() == Templates{{"default", "D"}, {"tools", "T"}});
  folder.Write("chat_template.jinja", "own");
  CHECK(templates() == Templates{{"default", "own"}});
  folder.Write("additional_chat_templates/tool_use.jinja", "use");
  folder.Write("additional_chat_templates/README.md", "of templates");
  CHECK(templates() == Templates{{"default", "own"}, {"tool_use", "use"}});
  CHECK(Tokenizer::Parse(kTokenizer, R"({"chat_template": "one"})").value()->chat_templates() ==
        Templates{{"default", "one"}});
}

TEST_CASE("Tokenizer names an unknown kind") {
  for (const char* part :
       {"\"type\": \"BPE\"", "{\"type\": \"ByteLevel\", \"add_prefix_space\": false}",
        "\"decoder\": {\"type\": \"ByteLevel\"}", "\"type\": \"TemplateProcessing\""}) {
    std::string kind =
        Replaced(part, part[1] == 't' ? part : "\"type\": \"ByteLevel\"", "\"type\": \"Strange\"");
    const auto tokenizer = Tokenizer::Parse(Replaced(kTokenizer, part, kind), kConfig);
    REQUIRE_FALSE(tokenizer.ok());
    CHECK(tokenizer.status().code() == StatusCode::kUnimplemented);
    CHECK_THAT(tokenizer.status().message(), Catch::Contains("Strange"));
  }
}

TEST_CASE("Tokenizer returns a Status for malformed files") {
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"\"h e\"", "\"h x\""},
           {"\"h e\"", "17"},
           {"\"h\": 0", "\"h\": -1"},
           {"\"h\": 0", "\"h\": 99999999999"},
           {"\"id\": 8", "\"id\": \"8\""},
           {"\"ids\": [8]", "\"ids\": 8"},
           {"\"added_tokens\": [", "\"added_tokens\": {}, \"x\": ["}}) {
    CAPTURE(from, to);
    const auto tokenizer = Tokenizer::Parse(Replaced(kTokenizer, from, to), kConfig);
    REQUIRE_FALSE(tokenizer.ok());
    CHECK_THAT(tokenizer.status().message(), Catch::StartsWith("tokenizer.json: "));
  }
  CHECK(Tokenizer::Parse("", "").status().code() == StatusCode::kInvalidArgument);
  CHECK(Tokenizer::Parse(kTokenizer, "[").status().code() == StatusCode::kInvalidArgument);
  CHECK(Tokenizer::Load("/nonexistent").status().code() == StatusCode::kNotFound);
}

}  // namespace
}  // namespace tandem
