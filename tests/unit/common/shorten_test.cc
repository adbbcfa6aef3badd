#include "common/shorten.h"

#include <catch2/catch.hpp>

#include "common/strings.h"

namespace tandem {
namespace {

TEST_CASE("Shorten: a text that fits stays, a longer one ends with dots") {
  CHECK(Shorten("", 4).empty());
  CHECK(Shorten("abcd", 4) == "abcd");
  CHECK(Shorten("abcde", 4) == "abcd...");
  CHECK(Shorten("abcde", 0) == "...");
  CHECK(Shorten(std::string(256, 'x')) == std::string(256, 'x'));
  CHECK(Shorten(std::string(257, 'x')) == std::string(256, 'x') + "...");
}

TEST_CASE("Shorten: no character is cut, whatever its length and place") {
  for (const std::string_view character : {"é", "你", "😀"}) {
    std::string text;
    for (int i = 0; i < 8; ++i) text += character;
    for (size_t most = 0; most <= text.size(); ++most) {
      const std::string shown = Shorten(text, most);
      CHECK(FindInvalidUtf8(shown) == std::string::npos);
      CHECK(shown.size() <= most + 3);
      CHECK(shown.size() + character.size() > most);
    }
  }
}

TEST_CASE("Shorten: bytes that are no text lose at most three more") {
  CHECK(Shorten(std::string(10, '\x80'), 8) == std::string(5, '\x80') + "...");
  CHECK(Shorten(std::string(10, '\x80'), 2) == "...");
}

}  // namespace
}  // namespace tandem
