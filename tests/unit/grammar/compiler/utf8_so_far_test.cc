#include "grammar/compiler/utf8_so_far.h"

#include <string>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

TEST_CASE("bytes are UTF-8 so far while their last character may still be completed") {
  for (const std::string bytes :
       {"", "a\xc3\xa9", "\xc3", "x\xe2\x82", "\xf0\x9f\x98", "\xed\x9f"}) {
    CHECK(IsUtf8SoFar(bytes));
  }
  // No lead, overlong, a surrogate, beyond U+10FFFF, and a character that is cut off early.
  for (const std::string bytes : {"\x80", "\xc0\x80", "\xe0\x80", "\xed\xa0", "\xf4\x90", "\xf5",
                                  "\xc3"
                                  "a"}) {
    CHECK_FALSE(IsUtf8SoFar(bytes));
  }
  CHECK(OpenCharacter("ab\xe2\x82") == "\xe2\x82");
  CHECK(OpenCharacter("ab\xc3\xa9") == "");
}

TEST_CASE("a piece may begin within a character") {
  for (const std::string bytes : {"", "a", "\x80\x80\x80",
                                  "\xbf"
                                  "a\xc3",
                                  "\xc3\xa9"}) {
    CHECK(CanFollowOpenCharacter(bytes));
  }
  for (const std::string bytes : {"\x80\x80\x80\x80", "a\x80", "\xed\xa0\x80", "\x80\xff"}) {
    CHECK_FALSE(CanFollowOpenCharacter(bytes));
  }
}

}  // namespace
}  // namespace tandem
