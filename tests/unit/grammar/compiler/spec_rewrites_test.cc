#include "grammar/compiler/spec_rewrites.h"

#include <nlohmann/json.hpp>

#include <catch2/catch.hpp>

#include "common/strings.h"

namespace tandem {
namespace {

using Catch::Matchers::Contains;
using Json = nlohmann::ordered_json;

StatusOr<std::string> Updated(const std::string& tag, JsonBlanks blanks = JsonBlanks::kAny) {
  Json parsed = Json::parse(tag);
  ASSIGN_OR_RETURN(const bool is_changed, UpdateStructuralTag(blanks, &parsed));
  return is_changed ? parsed.dump() : tag;
}

// The same text where nothing changes.
std::string Rewritten(const std::string& schema) {
  Json parsed = Json::parse(schema);
  return RewriteSchema(&parsed) ? parsed.dump() : schema;
}

TEST_CASE("EBNF differs from Lark by its ::=") {
  CHECK_FALSE(LooksLikeLark("# a comment\nroot ::= \"a\""));
  CHECK(LooksLikeLark("start: \"a\" // ::=\n# root ::= x"));
}

TEST_CASE("the older form of structural tags becomes today's") {
  const char* older = R"({"triggers": ["<f"], "structures":
      [{"begin": "<f=a>", "schema": {"type": "object"}, "end": "</f>"},
       {"begin": "<f=b>", "schema": "{\"type\": \"array\"}", "end": "</f>"}]})";
  CHECK(
      *Updated(older) ==
      R"({"type":"structural_tag","format":{"type":"triggered_tags","triggers":["<f"],"tags":[)"
      R"({"type":"tag","begin":"<f=a>","content":{"type":"json_schema","json_schema":{"type":"object"}},"end":"</f>"},)"
      R"({"type":"tag","begin":"<f=b>","content":{"type":"json_schema","json_schema":{"type":"array"}},"end":"</f>"}]}})");
  const char* today = R"({"type": "structural_tag", "format": {"type": "any_text"}})";
  CHECK(*Updated(today) == today);
  const auto message = [](const char* tag) { return Updated(tag).status().message(); };
  CHECK_THAT(message("[]"), Contains("must be a JSON object"));
  CHECK_THAT(message(R"({"structures": []})"), Contains("triggers"));
  CHECK_THAT(message(R"({"structures": [{"begin": ""}], "triggers": []})"),
             Contains("begin, schema and end"));
  CHECK_THAT(
      message(R"({"structures": [{"begin": "", "end": "", "schema": "{"}], "triggers": []})"),
      Contains("not JSON"));
}

TEST_CASE("classes of a regex that begin with a caret keep their characters") {
  const auto rewritten = [](const char* regex) { return WithoutLeadingCarets(regex); };
  CHECK(rewritten("[^a]+[a^]\\[\\^]") == "[^a]+[a^]\\[\\^]");
  CHECK(rewritten("x[\\^]*") == "x\\^*");
  CHECK(rewritten("[\\^a-]{2}[b]") == "(\\^|[a-]){2}[b]");
  CHECK(rewritten("[\\^-z]") == "(\\^|[_-z])");
  CHECK(rewritten("[\\^-]") == "(\\^|[-])");
  CHECK(rewritten("[\\^^\\^\\]é]") == "(\\^|[\\]é])");
  CHECK(rewritten("[\\^") == "[\\^");
  CHECK(rewritten("[\\") == "[\\");
}

TEST_CASE("patterns of schemas are rewritten, instances are not") {
  const std::string schema =
      R"j({"properties":{"pattern":{"pattern":"[\\^a]"}},"enum":[{"pattern":"[\\^a]"}]})j";
  CHECK(Rewritten(schema) ==
        R"j({"properties":{"pattern":{"pattern":"(\\^|[a])"}},"enum":[{"pattern":"[\\^a]"}]})j");
  CHECK(Rewritten(R"({"patternProperties":{"^ä":{},"[\\^a]":{"pattern":"é"}}})") ==
        R"j({"patternProperties":{"^\\u00E4":{},"(\\^|[a])":{"pattern":"\\u00E9"}}})j");
  for (const char* same : {R"({ "pattern": "[^a]" })", R"("pattern [\\^")"}) {
    CHECK(Rewritten(same) == same);
  }
}

TEST_CASE("tuples of older drafts and lengths beside formats are rewritten") {
  CHECK(Rewritten(
            R"({"a":{"items":[{"type":"null"}],"additionalItems":false},"const":{"items":[]}})") ==
        R"({"a":{"prefixItems":[{"type":"null"}],"items":false},"const":{"items":[]}})");
  CHECK(Rewritten(R"([{"items":[true]}])") == R"([{"prefixItems":[true]}])");
  CHECK(Rewritten(R"({"format":"uri","minLength":1,"maxLength":2083})") == R"({"format":"uri"})");
  CHECK(Rewritten(R"({"format":"date","pattern":"^2"})") == R"({"pattern":"^2"})");
  for (const char* same :
       {R"({"items":{"type":"null"}})", R"({"format":"uri","minLength":2,"maxLength":1999})",
        R"({"format":"unknown","minLength":1})", R"j({"format":"email","pattern":"^(?!x)y"})j",
        R"({"properties":{"format":{"minLength":1}}})"}) {
    CHECK(Rewritten(same) == same);
  }
}

TEST_CASE("references are spelled as the library reads them, each within its schema") {
  const std::string schema = R"({"$defs":{"a/b":{"type":"null"}},"items":{"$ref":"#/$defs/a~1b"}})";
  CHECK(Rewritten(schema) == R"({"$defs":{"a/b":{"type":"null"},"target_0":{"type":"null"}},)"
                             R"("items":{"$ref":"#/$defs/target_0"}})");
  const std::string tag =
      R"({"type":"structural_tag","format":{"type":"json_schema","json_schema":)";
  Json whole_tag = Json::parse(tag + schema + "}}");
  CHECK(RewriteSchemasOfTag(&whole_tag));
  CHECK(whole_tag.dump() == tag + Rewritten(schema) + "}}");
  const std::string plain = R"({"$defs": {"a": {}}, "items": {"$ref": "#/$defs/a"}})";
  CHECK(Rewritten(plain) == plain);
}

TEST_CASE("the JSON of structural tags has one blank at a time where any are not wanted") {
  const char* tag = R"({"type": "structural_tag", "format": {"type": "sequence", "elements": [
      {"type": "json_schema", "json_schema": {"properties": {"json_schema": {}}}},
      {"type": "json_schema", "json_schema": true, "max_whitespace_cnt": 3}]}})";
  CHECK(
      *Updated(tag, JsonBlanks::kPython) ==
      R"({"type":"structural_tag","format":{"type":"sequence","elements":[)"
      R"({"type":"json_schema","json_schema":{"properties":{"json_schema":{}}},"max_whitespace_cnt":1},)"
      R"({"type":"json_schema","json_schema":true,"max_whitespace_cnt":3}]}})");
}

TEST_CASE("a library's message loses its time, place and condition") {
  CHECK(PlainMessage("[12:01:02] /a/b.cc:17: Regex parsing error\n") == "Regex parsing error");
  CHECK(PlainMessage("[12:01:02] /a/b.cc:17: WARNING: it is left out") ==
        "WARNING: it is left out");
  CHECK(PlainMessage("[1] /b.cc:1: Check failed: (x > 1) is false: x is 0") == "x is 0");
  CHECK(PlainMessage("plain") == "plain");
  CHECK(PlainMessage("[12:01:02] /a/b.cc:17") == "");
  CHECK(PlainMessage("[0-9] and [12:01:02] stay") == "[0-9] and [12:01:02] stay");
}

TEST_CASE("each line of a library's message loses its place and is there once") {
  const char* warning = "[07:22:32] _deps/x-0.2.8/cpp/fsm_builder.cc:1311: Warning: no lookahead\n";
  const std::string twice = std::string(warning) + "[07:22:33" + (warning + 9);
  CHECK(PlainMessage(twice) == "Warning: no lookahead");
  CHECK(PlainMessage("Of /p: " + twice + "[1] /b.h:1: Check failed: (x > 1) is false: x is 0") ==
        "Of /p:\nWarning: no lookahead\nx is 0");
}

TEST_CASE("a library's long message ends with a whole character") {
  std::string text = "a";
  while (text.size() < 2000) text += "\u00e9";
  const std::string message = PlainMessage(text);
  CHECK(message.size() < 1010);
  CHECK(FindInvalidUtf8(message) == std::string::npos);
}

}  // namespace
}  // namespace tandem
