#include "common/utf8.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

TEST_CASE("ReadUtf8 distinguishes whole, broken and truncated characters") {
  CHECK(ReadUtf8("a", 0).code_point == U'a');
  CHECK(ReadUtf8("\xE4\xBD\xA0", 0).code_point == U'你');
  CHECK(ReadUtf8("\xF0\x9F\x98\x80", 0).code_point == U'😀');
  const Utf8Sequence unfinished = ReadUtf8("\xF0\x9F\x98", 0);
  CHECK_FALSE(unfinished.well_formed);
  CHECK(unfinished.truncated);
  CHECK(unfinished.size == 3);
  const Utf8Sequence broken = ReadUtf8("\xF0\x9Fx", 0);
  CHECK_FALSE(broken.truncated);
  CHECK(broken.size == 2);
  for (const char* bad : {"\xC0\x80", "\xED\xA0\x80", "\xE0\x80\x80", "\xF5\x80\x80\x80", "\x80"}) {
    CHECK_FALSE(ReadUtf8(bad, 0).well_formed);
    CHECK(ReadUtf8(bad, 0).size == 1);
  }
}

TEST_CASE("AppendLossyUtf8 writes one replacement for each broken part") {
  std::string out;
  AppendLossyUtf8("a\xF0\x9F\x98z\x80\x80\xE4\xBD", &out);
  CHECK(out == "a\uFFFDz\uFFFD\uFFFD\uFFFD");
}

TEST_CASE("AppendUtf8 and NextUtf8 are inverse at every length") {
  for (const char32_t c :
       {U'\0', U'\x7F', U'\x80', U'\u07FF', U'\u0800', U'\uFFFF', U'\U00010000', U'\U0010FFFF'}) {
    std::string text;
    AppendUtf8(c, &text);
    size_t pos = 0;
    CHECK(NextUtf8(text, &pos) == c);
    CHECK(pos == text.size());
    CHECK(CountUtf8(text) == 1);
  }
}

}  // namespace
}  // namespace tandem
