#include "common/strings.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

TEST_CASE("FindInvalidUtf8 accepts exactly the well-formed forms") {
  CHECK(FindInvalidUtf8("plain") == std::string_view::npos);
  CHECK(FindInvalidUtf8("\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80") == std::string_view::npos);
  CHECK(FindInvalidUtf8("ab\xC3") == 2);            // cut
  CHECK(FindInvalidUtf8("\xC0\xAF") == 0);          // overlong
  CHECK(FindInvalidUtf8("\xE0\x80\x80") == 0);      // overlong
  CHECK(FindInvalidUtf8("a\xED\xA0\x80") == 1);     // surrogate
  CHECK(FindInvalidUtf8("\xF4\x90\x80\x80") == 0);  // past U+10FFFF
  CHECK(FindInvalidUtf8("ok\xFF") == 2);
}

// ASCII is passed over by words.
TEST_CASE("FindInvalidUtf8 finds a bad byte anywhere among ASCII") {
  for (size_t size = 1; size <= 40; ++size) {
    for (size_t bad = 0; bad < size; ++bad) {
      CAPTURE(size, bad);
      std::string text(size, 'a');
      text[bad] = '\xFF';
      CHECK(FindInvalidUtf8(text) == bad);
      text.insert(bad, "\u00E9");
      CHECK(FindInvalidUtf8(text) == bad + 2);
    }
    CHECK(FindInvalidUtf8(std::string(size, 'a')) == std::string_view::npos);
    CHECK(FindInvalidUtf8(std::string(size, 'a') + "\u20AC") == std::string_view::npos);
  }
}

TEST_CASE("WithCommas groups digits by three") {
  CHECK(WithCommas(0) == "0");
  CHECK(WithCommas(999) == "999");
  CHECK(WithCommas(1000) == "1,000");
  CHECK(WithCommas(1234567) == "1,234,567");
  CHECK(WithCommas(-123) == "-123");
  CHECK(WithCommas(-1234) == "-1,234");
}

TEST_CASE("EditDistance counts single-character edits") {
  CHECK(EditDistance("kitten", "sitting") == 3);
  CHECK(EditDistance("", "abc") == 3);
  CHECK(EditDistance("same", "same") == 0);
}

TEST_CASE("Hex encodes, decodes and refuses other digits") {
  const std::string bytes("\x00\xFF\x10", 3);
  CHECK(HexEncode(bytes) == "00ff10");
  CHECK(HexDecode("00ff10") == bytes);
  CHECK_FALSE(HexDecode("0g").has_value());
  CHECK_FALSE(HexDecode("abc").has_value());
  CHECK(RandomHex(7).size() == 7);
  CHECK(RandomHex(32) != RandomHex(32));
}

TEST_CASE("Split and StripAscii") {
  CHECK(Split("a,,b", ',') == std::vector<std::string_view>{"a", "", "b"});
  CHECK(StripAscii(" \t x y\r\n") == "x y");
  CHECK(StripAscii("   ").empty());
}

}  // namespace
}  // namespace tandem
