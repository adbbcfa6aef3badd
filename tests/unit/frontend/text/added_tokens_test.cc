#include "frontend/text/added_tokens.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

AddedToken Token(TokenId id, std::string content, bool lstrip = false, bool rstrip = false,
                 bool single_word = false) {
  AddedToken token;
  token.id = id;
  token.content = std::move(content);
  token.lstrip = lstrip;
  token.rstrip = rstrip;
  token.single_word = single_word;
  return token;
}

// "a|<3>|b": text parts and ids.
std::string Split(const AddedTokenFinder& finder, std::string_view text) {
  std::vector<AddedTokenFinder::Part> parts;
  finder.Split(text, &parts);
  std::string out;
  for (const auto& part : parts) {
    if (!out.empty()) out += '|';
    out += part.id < 0 ? std::string(part.text) : "<" + std::to_string(part.id) + ">";
  }
  return out;
}

TEST_CASE("AddedTokenFinder takes the longest token at the leftmost place") {
  const AddedTokenFinder finder({Token(1, "<|im"), Token(2, "<|im_end|>"), Token(3, "im_")});
  CHECK(Split(finder, "a<|im_end|>b") == "a|<2>|b");
  CHECK(Split(finder, "<|im_x") == "<1>|_x");
  CHECK(Split(finder, "<<|im") == "<|<1>");
  CHECK(Split(finder, "") == "");
}

TEST_CASE("AddedTokenFinder takes white space on the sides that a token's flags name") {
  const AddedTokenFinder finder({Token(1, "<l>", true), Token(2, "<r>", false, true)});
  CHECK(Split(finder, "a \n\u3000<l> b") == "a|<1>| b");
  CHECK(Split(finder, "a <r> \t b") == "a |<2>|b");
  CHECK(Split(finder, " <r> <l> ") == " |<2>|<1>| ");
}

TEST_CASE(
    "AddedTokenFinder finds a single_word token only where no word character stands beside it") {
  const AddedTokenFinder finder({Token(1, "word", false, false, true)});
  CHECK(Split(finder, "word") == "<1>");
  CHECK(Split(finder, "a word.") == "a |<1>|.");
  CHECK(Split(finder, "sword") == "sword");
  CHECK(Split(finder, "wordé") == "wordé");
  CHECK(Split(finder, "中word") == "中word");
}

TEST_CASE("AddedTokenFinder never finds a token without content") {
  CHECK(Split(AddedTokenFinder({Token(1, "")}), "ab") == "ab");
}

}  // namespace
}  // namespace tandem
