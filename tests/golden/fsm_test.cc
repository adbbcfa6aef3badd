// What grammars accept and refuse, token by token, over the shipped model's vocabulary, as recorded
// in tests/golden/fsm/cases.json. Each text is spelled by the tokenizer and by single bytes; every
// token must be in the mask before it is taken.

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/token_mask.h"
#include "frontend/text/tokenizer.h"
#include "grammar/compiler/token_matcher.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

constexpr int32_t kVocabSize = 3072;
const std::string kModel = std::string(TANDEM_SOURCE_DIR) + "/deploy/models/tandem-tiny";

Json ReadCases() {
  std::ifstream file(TANDEM_GOLDEN_DIR "/fsm/cases.json");
  REQUIRE(file.good());
  return Json::parse(file)["cases"];
}

std::string GrammarOfChoices(const Json& choices) {
  std::string grammar = "root ::= ";
  for (const Json& choice : choices) {
    if (&choice != &choices.front()) grammar += " | ";
    grammar += choice.dump();  // JSON's escapes are the grammar's too
  }
  return grammar;
}

GrammarSpec SpecOf(const Json& recorded) {
  const Json& spec = recorded["spec"];
  GrammarSpec out;
  if (recorded["type"] == "json_schema") {
    out.text = spec.dump();
  } else if (recorded["type"] == "regex") {
    out = {GrammarKind::kRegex, JsonBlanks::kAny, spec.get<std::string>()};
  } else if (recorded["type"] == "choice") {
    out = {GrammarKind::kGrammar, JsonBlanks::kAny, GrammarOfChoices(spec)};
  } else {
    out = {GrammarKind::kGrammar, JsonBlanks::kAny, spec.get<std::string>()};
  }
  return out;
}

class Checker {
 public:
  Checker()
      : tokenizer_(*Tokenizer::Load(kModel)),
        vocabulary_(*GrammarVocabulary::Load(kModel, kVocabSize)) {
    for (TokenId id = 0; id < tokenizer_->vocab_size(); ++id) {
      const std::string_view bytes = tokenizer_->TokenBytes(id);
      if (bytes.size() == 1 && !tokenizer_->IsSpecial(id))
        byte_ids_[static_cast<uint8_t>(bytes[0])] = id;
    }
  }

  xgrammar::CompiledGrammar Compile(const GrammarSpec& spec) {
    StatusOr<xgrammar::CompiledGrammar> grammar = CompileGrammar(spec, &vocabulary_);
    INFO(grammar.status().ToString());
    REQUIRE(grammar.ok());
    return *grammar;
  }

  std::vector<TokenId> Tokens(const std::string& text) const {
    return *tokenizer_->Encode(text, false);
  }
  std::vector<TokenId> Bytes(const std::string& text) const {
    std::vector<TokenId> ids;
    for (const char c : text) ids.push_back(byte_ids_[static_cast<uint8_t>(c)]);
    return ids;
  }

  // Whether the masks allow these tokens, one after another, and then the end.
  bool Accepts(const xgrammar::CompiledGrammar& grammar, std::vector<TokenId> ids) const {
    ids.push_back(*tokenizer_->eos_id());
    TokenMatcher matcher(grammar, &vocabulary_);
    std::vector<int32_t> mask((kVocabSize + 31) / 32);
    for (const TokenId id : ids) {
      matcher.FillMask(/*allows_special_tokens=*/false, mask);
      const bool allowed = IsAllowed(mask, id);
      CHECK(matcher.Accept(id) == allowed);
      if (!allowed) return false;
    }
    return true;
  }

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  GrammarVocabulary vocabulary_;
  TokenId byte_ids_[256] = {};
};

// xgrammar takes no escapes in strings of limited length. With them as a second kind of character a
// mask took 10 to 270 times as long.
bool IsNarrower(const Json& recorded, const std::string& text) {
  return recorded["name"] == "json_str_len" && text.find("\\u") != text.npos;
}

TEST_CASE("grammars accept and refuse what was recorded") {
  Checker checker;
  for (const Json& recorded : ReadCases()) {
    INFO(recorded["name"]);
    const xgrammar::CompiledGrammar grammar = checker.Compile(SpecOf(recorded));
    for (const std::string text : recorded["accept"]) {
      if (IsNarrower(recorded, text)) continue;
      INFO("accepted: " << text);
      CHECK(checker.Accepts(grammar, checker.Tokens(text)));
      CHECK(checker.Accepts(grammar, checker.Bytes(text)));
    }
    for (const std::string text : recorded["reject"]) {
      INFO("refused: " << text);
      CHECK_FALSE(checker.Accepts(grammar, checker.Tokens(text)));
      CHECK_FALSE(checker.Accepts(grammar, checker.Bytes(text)));
    }
  }
}

TEST_CASE("between the tokens of JSON stand the blanks that the spec allows") {
  Checker checker;
  const std::string schema =
      R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "null"}},)"
      R"( "required": ["a", "b"], "additionalProperties": false})";
  const std::string none = R"({"a":1,"b":null})";
  const std::string python = R"({"a": 1, "b": null})";
  const std::string one = "{\n\"a\" : 1 , \"b\":null }";
  const std::string two = R"({"a":  1, "b": null})";
  const auto accepted = [&](JsonBlanks blanks) {
    const auto grammar = checker.Compile({GrammarKind::kJsonSchema, blanks, schema});
    std::vector<bool> each;
    for (const std::string& text : {none, python, one, two}) {
      each.push_back(checker.Accepts(grammar, checker.Tokens(text)));
      CHECK(each.back() == checker.Accepts(grammar, checker.Bytes(text)));
    }
    return each;
  };
  CHECK(accepted(JsonBlanks::kAny) == std::vector<bool>{true, true, true, true});
  CHECK(accepted(JsonBlanks::kOne) == std::vector<bool>{true, true, true, false});
  CHECK(accepted(JsonBlanks::kPython) == std::vector<bool>{false, true, false, false});
  CHECK(accepted(JsonBlanks::kNone) == std::vector<bool>{true, false, false, false});
}

}  // namespace
}  // namespace tandem
