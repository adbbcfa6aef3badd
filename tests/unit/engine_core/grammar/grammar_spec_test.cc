#include "engine_core/grammar/grammar_spec.h"

#include <catch2/catch.hpp>

#include "proto_msgpack/codec.h"

namespace tandem {
namespace {

using Catch::Matchers::Contains;
using wire::StructuredOutputs;

TEST_CASE("each constraint becomes a spec") {
  StructuredOutputs json;
  json.json = wire::PackedString(R"({"b": 1, "a": 2})");
  CHECK(MakeGrammarSpec(json)->text == R"({"b": 1, "a": 2})");
  json.json.packed =
      "\x82\xa1"
      "b\x01\xa1"
      "a\x02";  // a map, as vLLM sends it
  CHECK(MakeGrammarSpec(json)->text == R"({"b":1,"a":2})");
  StructuredOutputs object;
  object.json_object = true;
  CHECK(MakeGrammarSpec(object)->text == R"({"type": "object"})");
  StructuredOutputs regex;
  regex.regex = "a+";
  CHECK(MakeGrammarSpec(regex)->kind == GrammarKind::kRegex);
  StructuredOutputs choice;
  choice.choice = {"a\"b", "c\\d\n"};
  CHECK(MakeGrammarSpec(choice)->text == R"(root ::= "a\"b" | "c\\d\n")");
  StructuredOutputs grammar;
  grammar.grammar = "root ::= x";
  CHECK(MakeGrammarSpec(grammar)->kind == GrammarKind::kGrammar);
  StructuredOutputs tag;
  tag.structural_tag = "{}";
  CHECK(MakeGrammarSpec(tag)->kind == GrammarKind::kStructuralTag);
}

TEST_CASE("blanks: the request's wish, else the engine's, else any") {
  StructuredOutputs outputs;
  outputs.json_object = true;
  CHECK(MakeGrammarSpec(outputs)->blanks == JsonBlanks::kAny);
  CHECK(MakeGrammarSpec(outputs, {.disable_any_whitespace = true})->blanks == JsonBlanks::kPython);
  outputs.disable_any_whitespace = true;
  CHECK(MakeGrammarSpec(outputs)->blanks == JsonBlanks::kPython);
  outputs.whitespace_pattern = "";
  CHECK(MakeGrammarSpec(outputs)->blanks == JsonBlanks::kNone);
  outputs.whitespace_pattern = "\\s*";
  CHECK(MakeGrammarSpec(outputs)->blanks == JsonBlanks::kAny);
  for (const char* any : {"[ ]*", "[ \\n]*", "[\\n\\t ]*", " *", "\\n*", "[ \n\t]*", "[\\s]*"}) {
    CAPTURE(any);
    outputs.whitespace_pattern = any;
    CHECK(MakeGrammarSpec(outputs)->blanks == JsonBlanks::kAny);
  }
  for (const char* one : {"[ ]?", "\\s?", " ?", "[ \\r\\n]{0,1}"}) {
    CAPTURE(one);
    outputs.whitespace_pattern = one;
    CHECK(MakeGrammarSpec(outputs)->blanks == JsonBlanks::kOne);
  }
  for (const char* other :
       {"[ ]+", "\\s", "[ x]?", "[]?", "[ ?", "?", "\\S*", "[^ ]*", "\\", " *?"}) {
    CAPTURE(other);
    outputs.whitespace_pattern = other;
    CHECK_THAT(MakeGrammarSpec(outputs).status().message(),
               Contains("whitespace_pattern is \"" + std::string(other) + "\""));
  }
}

TEST_CASE("no constraint, two, or another library are refused") {
  StructuredOutputs outputs;
  CHECK_THAT(MakeGrammarSpec(outputs).status().message(), Contains("has 0 constraints"));
  outputs.regex = "a";
  outputs.choice = {"b"};
  CHECK_THAT(MakeGrammarSpec(outputs).status().message(), Contains("has 2 constraints"));
  outputs.choice.reset();
  outputs.backend = "outlines";
  CHECK_THAT(MakeGrammarSpec(outputs).status().message(), Contains("\"outlines\" is not built"));
  outputs.backend = "xgrammar";
  CHECK(MakeGrammarSpec(outputs).ok());
  outputs.regex.reset();
  outputs.json.packed = "\x05";
  CHECK_THAT(MakeGrammarSpec(outputs).status().message(), Contains("an object or a text"));
  outputs.json = {};
  outputs.choice.emplace();
  CHECK_THAT(MakeGrammarSpec(outputs).status().message(), Contains("empty list"));
}

}  // namespace
}  // namespace tandem
