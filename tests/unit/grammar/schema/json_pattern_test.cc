#include "grammar/schema/json_pattern.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

TEST_CASE("patterns have escapes for what is not printable ASCII") {
  CHECK(InPrintableAscii("^[a-z~ ]+\\d\\\\$") == "^[a-z~ ]+\\d\\\\$");
  CHECK(InPrintableAscii("ä[à-ü]日") == "\\u00E4[\\u00E0-\\u00FC]\\u65E5");
  CHECK(InPrintableAscii("😀?") == "\\u{1F600}?");
  CHECK(InPrintableAscii("\\é\\\\é") == "\\u00E9\\\\\\u00E9");
  CHECK(InPrintableAscii("a\tb\x7f") == "a\\u0009b\\u007F");
}

TEST_CASE("patterns that match only texts that JSON escapes are found") {
  for (const char* pattern : {"\"",        "^a\"b$",      "\\\\d",         "\\n",       "a\\x22",
                              "\\u0022",   "\\u{5c}",     "\\x0a",         "\\cA",      "\\0",
                              "[\\t\\n]",  "[\"\\\\]",    "[\\x00-\\x1f]", "(a\"|\\n)", "(?:\")",
                              "(?<q>\")+", "x{0}\"{1,2}", "(\")(a)",       "[\\b]",     "\t"}) {
    CAPTURE(pattern);
    CHECK(!MatchesUnescapedText(pattern));
  }
  for (const char* pattern : {"",          "^a$",       ".*",       "\\s",
                              "\\w\\d\\S", "a|\"",      "(.|\\n)*", "\"?",
                              "\"*a",      "\"{0,3}",   "\"{0}",    "[^\"]",
                              "[\"a]",     "[!-z]",     "[\\s\\S]", "[\\x00-\\x7f]",
                              "(?:\"|b)",  "(?<q>\")?", "\\/",      "\\.",
                              "[]",        "[",         "(",        ")\"",
                              "\\",        "a{",        "\\u00e4",  "é",
                              "[-\"]",     "[\\d-\"]"}) {
    CAPTURE(pattern);
    CHECK(MatchesUnescapedText(pattern));
  }
}

}  // namespace
}  // namespace tandem
