#include "frontend/text/regex.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

std::vector<std::string> FindAll(std::string_view pattern, std::string_view text) {
  const Regex regex = Regex::Compile(pattern).value();
  std::vector<TextRange> matches;
  REQUIRE(RegexMatcher(regex).FindAll(text, &matches).ok());
  std::vector<std::string> found;
  for (const TextRange& match : matches) {
    found.emplace_back(text.substr(match.begin, match.end - match.begin));
  }
  return found;
}

using Texts = std::vector<std::string>;

TEST_CASE("Regex: U+0085 and U+3000 are spaces, U+180E is not, as Oniguruma has it") {
  CHECK(FindAll(R"(\s)", "a\u0085b\u3000c\u180Ed") == Texts{"\u0085", "\u3000"});
  CHECK(FindAll(R"([^\sx]+)", "a\u0085b\u180Ex") == Texts{"a", "b\u180E"});
  CHECK(FindAll(R"(\S+)", "a\u3000b\u180E") == Texts{"a", "b\u180E"});
}

TEST_CASE("Regex takes a script name as the characters' own script") {
  CHECK(FindAll(R"(\p{Han}+)", "中文、ー") == Texts{"中文"});
}

TEST_CASE("Regex counts an empty match once and goes on by whole characters") {
  CHECK(FindAll("x*", "éx") == Texts{"", "x"});
  CHECK(FindAll("(?=é)", "aé") == Texts{""});
}

TEST_CASE("Regex refuses constructs that the two dialects read differently, and syntax errors") {
  CHECK(Regex::Compile("[a&&[^b]]").status().code() == StatusCode::kUnimplemented);
  CHECK(Regex::Compile("[a[bc]]").status().code() == StatusCode::kUnimplemented);
  CHECK(Regex::Compile("(").status().code() == StatusCode::kInvalidArgument);
  CHECK(Regex::Compile("\\p{Nosuch}").status().code() == StatusCode::kInvalidArgument);
  CHECK_FALSE(Regex::Compile("a\\").ok());
  CHECK_FALSE(Regex::Compile(std::string(70'000, 'a')).ok());
}

TEST_CASE("Regex escapes every character that has a meaning") {
  const std::string all = "a.b*c[d](e){f}|g^h$i\\j?k+l#m-n&o";
  CHECK(FindAll(Regex::Escape(all), "x" + all) == Texts{all});
}

TEST_CASE("Regex gives up on a text that makes a pattern run away") {
  const Regex regex = Regex::Compile("(a|a)*(?=b)").value();
  std::vector<TextRange> matches;
  const Status status = RegexMatcher(regex).FindAll(std::string(60, 'a') + "cb", &matches);
  CHECK(status.code() == StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace tandem
