#include "grammar/compiler/token_matcher.h"

#include <string>
#include <vector>

#include "common/token_mask.h"
#include "grammar/compiler/utf8_so_far.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

constexpr int32_t kVocabSize = 3072;

GrammarVocabulary LoadVocabulary() {
  StatusOr<GrammarVocabulary> vocabulary = GrammarVocabulary::Load(
      std::string(TANDEM_SOURCE_DIR) + "/deploy/models/tandem-tiny", kVocabSize);
  REQUIRE(vocabulary.ok());
  return *std::move(vocabulary);
}

TEST_CASE("an invalid spec is refused with what is wrong in it") {
  GrammarVocabulary vocabulary = LoadVocabulary();
  const auto message = [&](GrammarKind kind, const char* text) {
    return CompileGrammar({kind, JsonBlanks::kAny, text}, &vocabulary).status().message();
  };
  CHECK_THAT(message(GrammarKind::kRegex, "[0-9"),
             Contains("the regular expression is not valid: ") && !Contains(".cc"));
  CHECK_THAT(message(GrammarKind::kRegex, "a(?=b)c"), Contains("the regular expression"));
  CHECK_THAT(message(GrammarKind::kGrammar, "root ::= b"), Contains("Rule \"b\" is not defined"));
  CHECK_THAT(message(GrammarKind::kGrammar, "begin: \"a\""), Contains("the grammar is not valid"));
  CHECK_THAT(message(GrammarKind::kJsonSchema, "{"), Contains("not JSON"));
  CHECK_THAT(message(GrammarKind::kJsonSchema, R"({"type": "strange"})"), Contains("strange"));
  CHECK_THAT(message(GrammarKind::kJsonSchema, R"({"$ref": "#/nowhere"})"),
             Contains("JSON schema"));
  CHECK_THAT(message(GrammarKind::kJsonSchema, R"({"type": "number", "multipleOf": 0.5})"),
             Contains("cannot be enforced") && Contains("multipleOf"));
  CHECK_THAT(message(GrammarKind::kStructuralTag, R"({"type": "structural_tag"})"),
             Contains("the structural tag"));
}

TEST_CASE("of several schemas the refusal names the one that is wrong") {
  GrammarVocabulary vocabulary = LoadVocabulary();
  const auto message = [&vocabulary](const std::string& second) {
    const std::string tag =
        R"({"structures": [{"begin": "<a>", "schema": {"type": "object"}, "end": "</a>"},
                           {"begin": "<b>", "schema": )" +
        second + R"(, "end": "</b>"}], "triggers": ["<"]})";
    const auto grammar =
        CompileGrammar({GrammarKind::kStructuralTag, JsonBlanks::kAny, tag}, &vocabulary);
    return grammar.status().message();
  };
  CHECK(message(R"({"type": "string"})") == "");
  const std::string begin = "schema 2 of the structural tag: ";
  CHECK(message(R"({"type": "strin"})") ==
        begin + "the JSON schema is not valid: Unsupported type \"strin\"");
  CHECK_THAT(message(R"({"type": "string", "pattern": "("})"),
             StartsWith(begin + "the JSON schema is not valid: "));
  CHECK_THAT(message(R"({"type": "string", "pattern": "(?=a)b"})"),
             StartsWith(begin + "the JSON schema cannot be enforced: "));
  CHECK_THAT(message(R"({"not": {}})"), StartsWith(begin));
  CHECK_THAT(message(R"("{\"$ref\": \"#/nope\"}")"), StartsWith(begin));
}

TEST_CASE("what popular libraries write into schemas is taken") {
  GrammarVocabulary vocabulary = LoadVocabulary();
  for (const char* schema : {
           R"j({"anyOf": [{"type": "number"},
                {"type": "string", "pattern": "^(?!^[-+.]*$)[+-]?0*\\d*\\.?\\d*$"}]})j",
           R"({"type": "string", "format": "uri", "minLength": 1, "maxLength": 2083})",
           R"({"type": "array", "items": [{"type": "number"}, {"type": "string"}],
               "minItems": 2, "maxItems": 2})",
           R"({"allOf": [{"$ref": "#/definitions/a~1b"}], "description": "d",
               "definitions": {"a/b": {"type": "null"}}})"}) {
    CAPTURE(schema);
    CHECK(CompileGrammar({GrammarKind::kJsonSchema, JsonBlanks::kNone, schema}, &vocabulary)
              .status()
              .message() == "");
  }
}

TEST_CASE("a pattern with letters of any alphabet leaves no quote unescaped") {
  GrammarVocabulary vocabulary = LoadVocabulary();
  std::vector<int32_t> mask((kVocabSize + 31) / 32);
  const auto token_of = [&](const std::string& text) {
    TokenId id = 0;
    while (vocabulary.text(id) != text) ++id;
    return id;
  };
  for (const char* schema : {R"({"type": "string", "pattern": "^.é?$"})",
                             R"({"type": "object", "patternProperties": {"^.😀?$": {}}})"}) {
    CAPTURE(schema);
    const auto grammar =
        CompileGrammar({GrammarKind::kJsonSchema, JsonBlanks::kNone, schema}, &vocabulary);
    REQUIRE(grammar.ok());
    TokenMatcher matcher(*grammar, &vocabulary);
    const bool is_object = std::string(schema).find("object") != std::string::npos;
    for (const char* text : {"{", "\""}) {
      if (*text == '{' && !is_object) continue;
      REQUIRE(matcher.Accept(token_of(text)));
    }
    matcher.FillMask(false, mask);
    CHECK_FALSE(IsAllowed(mask, token_of("\"")));
    CHECK(IsAllowed(mask, token_of("a")));
  }
}

TEST_CASE("Lark's form is read too, also in a tag") {
  GrammarVocabulary vocabulary = LoadVocabulary();
  const GrammarSpec whole = {GrammarKind::kGrammar, JsonBlanks::kAny, R"(start: "yes" /[0-9]+/)"};
  const GrammarSpec in_tag = {GrammarKind::kStructuralTag, JsonBlanks::kAny,
                              R"({"type": "structural_tag", "format": {"type": "or", "elements": [
          {"type": "grammar", "grammar": "start: \"yes\" /[0-9]+/"},
          {"type": "grammar", "grammar": "root ::= \"no\""}]}})"};
  for (const GrammarSpec& spec : {whole, in_tag}) {
    const auto grammar = CompileGrammar(spec, &vocabulary);
    INFO(grammar.status().message());
    REQUIRE(grammar.ok());
    TokenMatcher matcher(*grammar, &vocabulary);
    for (const char c : std::string("yes4")) {
      TokenId id = 0;
      while (vocabulary.text(id) != std::string(1, c)) ++id;
      CHECK(matcher.Accept(id));
    }
  }
}

// The text of a special token of the vocabulary, which its bytes spell too.
TEST_CASE("special tokens stand for their text only where asked for") {
  GrammarVocabulary vocabulary = LoadVocabulary();
  REQUIRE_FALSE(vocabulary.special_tokens().empty());
  const TokenId special = vocabulary.special_tokens().front();
  const auto grammar =
      CompileGrammar({GrammarKind::kRegex, JsonBlanks::kAny, "[^\\n]*"}, &vocabulary);
  REQUIRE(grammar.ok());
  TokenMatcher matcher(*grammar, &vocabulary);
  std::vector<int32_t> mask((kVocabSize + 31) / 32);
  const auto allows = [&](bool special_tokens) {
    matcher.FillMask(special_tokens, mask);
    return IsAllowed(mask, special);
  };
  CHECK_FALSE(allows(false));
  CHECK(allows(true));
}

// Control characters are tokens of one byte.
TEST_CASE("a run is what must follow token by token, and finding it changes nothing") {
  GrammarVocabulary vocabulary = LoadVocabulary();
  const auto grammar = CompileGrammar(
      {GrammarKind::kGrammar, JsonBlanks::kAny, R"(root ::= "\x01\x02\x03" [a-c] "\x04" [x-y])"},
      &vocabulary);
  REQUIRE(grammar.ok());
  TokenMatcher matcher(*grammar, &vocabulary);
  std::vector<int32_t> mask((kVocabSize + 31) / 32);
  const auto find = [&](size_t room) {
    std::vector<TokenId> run(room);
    matcher.FillMask(false, mask);
    run.resize(matcher.FindRun(false, mask, run));
    return run;
  };
  const std::vector<TokenId> run = find(16);
  REQUIRE(run.size() == 3);
  for (size_t i = 0; i < run.size(); ++i) {
    CHECK(vocabulary.text(run[i]) == std::string(1, static_cast<char>(1 + i)));
  }
  CHECK(find(2) == std::vector<TokenId>{run[0], run[1]});
  CHECK(find(1) == std::vector<TokenId>{run[0]});
  CHECK(find(16) == run);
  for (size_t i = 0; i < run.size(); ++i) {
    CHECK(find(16).size() == run.size() - i);
    REQUIRE(matcher.Accept(run[i]));
  }
  CHECK(find(16).empty());  // one of three
}

TEST_CASE("masks after drafts, up to the first that is refused, and the matcher stays") {
  GrammarVocabulary vocabulary = LoadVocabulary();
  const auto grammar = CompileGrammar(
      {GrammarKind::kGrammar, JsonBlanks::kAny, R"(root ::= "\x01" [\x02\x03] "\x04" "\x05")"},
      &vocabulary);
  REQUIRE(grammar.ok());
  TokenMatcher matcher(*grammar, &vocabulary);
  const auto token = [&](char byte) {
    for (TokenId id = 0; id < kVocabSize; ++id) {
      if (vocabulary.text(id) == std::string(1, byte)) return id;
    }
    FAIL("no token for byte " << int{byte});
    return TokenId{-1};
  };
  constexpr size_t kNumRows = 6;
  std::vector<int32_t> words(kNumRows * MaskRows::NumRowWords(kVocabSize));
  const MaskRows masks(words, kVocabSize);
  const auto fill = [&](std::vector<TokenId> drafts) {
    matcher.FillMask(false, masks.mask(1));
    return matcher.FillMasksAfter(false, drafts, masks, 1);
  };
  const auto allowed = [&](size_t row) {
    std::string bytes;
    for (TokenId id = 0; id < kVocabSize; ++id) {
      const bool is_allowed = IsAllowed(masks.mask(row), id);
      if (is_allowed && vocabulary.text(id).size() == 1) bytes += vocabulary.text(id);
    }
    return bytes;
  };
  for (int again = 0; again < 2; ++again) {
    CHECK(fill({token(1), token(3), token(4), token(5)}) == 4);
    CHECK(allowed(1) == "\x01");
    CHECK(allowed(2) == "\x02\x03");
    CHECK(allowed(3) == "\x04");
    CHECK(allowed(4) == "\x05");
    CHECK(fill({token(1), token(4), token(4)}) == 1);
    CHECK(allowed(2) == "\x02\x03");
    CHECK(fill({token(2)}) == 0);
    CHECK(fill({-1}) == 0);
    CHECK(fill({kVocabSize + 40}) == 0);
    CHECK(fill({}) == 0);
    CHECK(allowed(1) == "\x01");
  }
  REQUIRE(matcher.Accept(token(1)));
  CHECK(fill({token(2), token(4), token(5)}) == 3);
  CHECK(allowed(2) == "\x04");
}

// After the bytes of `before`, each a token: where the mask and what is accepted differ.
std::vector<std::string> Contradictions(const xgrammar::CompiledGrammar& grammar,
                                        const GrammarVocabulary& vocabulary,
                                        const std::string& before) {
  const auto after_them = [&] {
    TokenMatcher matcher(grammar, &vocabulary);
    for (const char byte : before) {
      TokenId id = 0;
      while (vocabulary.text(id) != std::string(1, byte)) ++id;
      REQUIRE(matcher.Accept(id));
    }
    return matcher;
  };
  std::vector<int32_t> mask((kVocabSize + 31) / 32);
  after_them().FillMask(true, mask);
  std::vector<std::string> found;
  for (TokenId id = 0; id < kVocabSize; ++id) {
    const std::string& text = vocabulary.text(id);
    if (text.empty() || !IsUtf8SoFar(text)) continue;
    if (IsAllowed(mask, id) != after_them().Accept(id)) found.push_back(text);
  }
  return found;
}

// What may follow a rule is looked at when masks are made. There xgrammar 0.2.8 cuts characters of
// a class down to their lowest byte, so that 中, U+4E2D, is a hyphen.
TEST_CASE("a mask allows what is accepted where a class of non-ASCII characters follows a rule") {
  GrammarVocabulary vocabulary = LoadVocabulary();
  for (const char* next : {"[中語]", "[^中]", "[中]*", "[^中]*", "[a-Ā]", "[^a-Ā]", "[Ā-ſ]"}) {
    const std::string text =
        std::string("root ::= \"b\" rule ") + next + " \"c\"\nrule ::= [ a] | [b]";
    const auto grammar =
        CompileGrammar({GrammarKind::kGrammar, JsonBlanks::kAny, text}, &vocabulary);
    INFO(text);
    REQUIRE(grammar.ok());
    CHECK(Contradictions(*grammar, vocabulary, "b") == std::vector<std::string>());
  }
}

// xgrammar 0.2.8 takes nothing to follow the root rule, where another rule or itself goes on.
TEST_CASE("a mask allows tokens that close several levels of a rule at once") {
  GrammarVocabulary vocabulary = LoadVocabulary();
  for (const char* text :
       {"root ::= \"a\" root \"b\" | \"ab\"", "start: \"a\" start \"b\" | \"ab\"",
        "root ::= rule\nrule ::= \"a\" rule \"b\" | \"ab\"",
        "root ::= \"a\" rule | \"b\"\nrule ::= root{1,2} \"b\""}) {
    const auto grammar =
        CompileGrammar({GrammarKind::kGrammar, JsonBlanks::kAny, text}, &vocabulary);
    INFO(text);
    REQUIRE(grammar.ok());
    for (const char* before : {"aaa", "aaaab"}) {
      INFO(before);
      CHECK(Contradictions(*grammar, vocabulary, before) == std::vector<std::string>());
    }
  }
}

}  // namespace
}  // namespace tandem
