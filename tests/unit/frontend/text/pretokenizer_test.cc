#include "frontend/text/pretokenizer.h"

#include <nlohmann/json.hpp>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Texts = std::vector<std::string>;

Texts Split(const char* spec, std::string_view text, bool at_start = true) {
  const Pretokenizer pretokenizer =
      Pretokenizer::Create(nlohmann::json::parse(spec), ByteLevelPieces::kBytes).value();
  Pieces pieces;
  REQUIRE(pretokenizer.Split(text, at_start, &pieces).ok());
  return Texts(pieces.pieces.begin(), pieces.pieces.end());
}

Texts SplitCommas(const std::string& behavior, bool invert = false) {
  const std::string spec = R"({"type": "Split", "pattern": {"String": ","}, "behavior": ")" +
                           behavior + R"(", "invert": )" + (invert ? "true" : "false") + "}";
  return Split(spec.c_str(), "a,b,,c");
}

TEST_CASE("Pretokenizer Split keeps, drops or joins the matches according to its behavior") {
  CHECK(SplitCommas("Isolated") == Texts{"a", ",", "b", ",", ",", "c"});
  CHECK(SplitCommas("Removed") == Texts{"a", "b", "c"});
  CHECK(SplitCommas("Removed", true) == Texts{",", ",", ","});
  CHECK(SplitCommas("MergedWithPrevious") == Texts{"a,", "b,", ",", "c"});
  CHECK(SplitCommas("MergedWithNext") == Texts{"a", ",b", ",", ",c"});
  CHECK(SplitCommas("Contiguous") == Texts{"a", ",", "b", ",,", "c"});
}

TEST_CASE("Pretokenizer Digits cuts off runs of digits or each digit") {
  CHECK(Split(R"({"type": "Digits", "individual_digits": false})", "a12½b3") ==
        Texts{"a", "12½", "b", "3"});
  CHECK(Split(R"({"type": "Digits", "individual_digits": true})", "a12b") ==
        Texts{"a", "1", "2", "b"});
}

TEST_CASE("Pretokenizer ByteLevel puts a blank before a piece that has none") {
  const char* spec = R"({"type": "ByteLevel", "add_prefix_space": true, "use_regex": true})";
  CHECK(Split(spec, "Hi there's") == Texts{" Hi", " there", "'s"});
  CHECK(Split(spec, " Hi") == Texts{" Hi"});
  CHECK(Split(spec, "").empty());
}

TEST_CASE("Pretokenizer Metaspace marks the start always, at the text's start, or never") {
  const char* always = R"({"type": "Metaspace", "prepend_scheme": "always", "split": true})";
  const char* first = R"({"type": "Metaspace", "prepend_scheme": "first", "split": false})";
  const char* never = R"({"type": "Metaspace", "prepend_scheme": "never", "split": false})";
  CHECK(Split(always, "a b", false) == Texts{"▁a", "▁b"});
  CHECK(Split(first, "a b", true) == Texts{"▁a▁b"});
  CHECK(Split(first, "a b", false) == Texts{"a▁b"});
  CHECK(Split(never, "a b") == Texts{"a▁b"});
  CHECK(Split(always, " a") == Texts{"▁a"});
}

// Expected pieces are those of `tokenizers` 0.23.3.
TEST_CASE("Pretokenizer UnicodeScripts cuts between scripts, at no blank and no newer character") {
  const char* spec = R"({"type": "UnicodeScripts"})";
  CHECK(Split(spec, "apples are りんご 林檎") == Texts{"apples are ", "りんご 林檎"});
  CHECK(Split(spec, "カ漢ひーr") == Texts{"カ漢ひー", "r"});
  CHECK(Split(spec, "a. b") == Texts{"a", ". ", "b"});
  CHECK(Split(spec, "a\u0301б") == Texts{"a", "\u0301", "б"});
  CHECK(Split(spec, "hi🥰🙂") == Texts{"hi🥰", "🙂"});  // of Unicode 11 and 6.1
  CHECK(Split(spec, " apple") == Texts{"apple"});
  CHECK(Split(spec, "  ").empty());
}

TEST_CASE("Pretokenizer kinds that change text work in any order with ByteLevel") {
  const auto in_order = [](const std::string& steps, const char* text) {
    return Split((R"({"type": "Sequence", "pretokenizers": [)" + steps + "]}").c_str(), text);
  };
  const std::string bytes = R"({"type": "ByteLevel", "add_prefix_space": false})";
  const std::string prefixed = R"({"type": "ByteLevel", "add_prefix_space": true})";
  const std::string mark = R"({"type": "Metaspace", "prepend_scheme": "always"})";
  CHECK(in_order(bytes + "," + mark, " a b") == Texts{"▁Ġa", "▁Ġb"});
  CHECK(in_order(bytes + "," + mark, "é b") == Texts{"▁Ã©", "▁Ġb"});
  CHECK(in_order(mark + "," + bytes, "é b") == Texts{"▁", "é", "▁", "b"});
  // The bytes of the alphabet's characters, with a blank before each piece.
  CHECK(in_order(bytes + "," + prefixed, " a b") == Texts{" Ġa", " Ġb"});
  CHECK(in_order(bytes + "," + mark + "," + bytes, "a") == Texts{"▁", "a"});
}

TEST_CASE("Pretokenizer refuses an unknown kind and malformed fields") {
  const auto code = [](const char* spec) {
    return Pretokenizer::Create(nlohmann::json::parse(spec), ByteLevelPieces::kBytes)
        .status()
        .code();
  };
  CHECK(code(R"({"type": "Nosuch"})") == StatusCode::kUnimplemented);
  CHECK(code(R"({"type": "Split", "pattern": {"String": "a"}, "behavior": "Odd"})") ==
        StatusCode::kUnimplemented);
  CHECK(code(R"({"type": "Split", "pattern": 1, "behavior": "Isolated"})") ==
        StatusCode::kInvalidArgument);
  CHECK(code("[]") == StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tandem
