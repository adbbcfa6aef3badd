#include "frontend/text/decoder.h"

#include <nlohmann/json.hpp>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

constexpr const char* kLlama = R"({"type": "Sequence", "decoders": [
  {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
  {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})";

TokenDecoder Create(const char* spec) {
  return TokenDecoder::Create(nlohmann::json::parse(spec)).value();
}

TEST_CASE("TokenDecoder joins byte tokens to characters, or makes each of a broken run U+FFFD") {
  const TokenDecoder decoder = Create(kLlama);
  CHECK(decoder.Decode({"▁a", "<0xC3>", "<0xA9>", "▁b"}) == "aé b");
  CHECK(decoder.Decode({"a", "<0xC3>", "<0x41>"}) == "a\uFFFD\uFFFD");
  CHECK(decoder.Decode({"<0xZZ>"}) == "<0xZZ>");
  CHECK(decoder.Decode({}).empty());
}

TEST_CASE("TokenDecoder strips at most `start` blanks") {
  CHECK(Create(kLlama).Decode({"▁▁", "▁a▁"}) == "  a ");
}

TEST_CASE("TokenDecoder Metaspace drops the mark of the first token only") {
  const TokenDecoder decoder = Create(R"({"type": "Metaspace", "prepend_scheme": "always"})");
  CHECK(decoder.Decode({"▁a", "▁b"}) == "a b");
  const TokenDecoder never = Create(R"({"type": "Metaspace", "prepend_scheme": "never"})");
  CHECK(never.Decode({"▁a", "▁b"}) == " a b");
}

TEST_CASE("TokenDecoder returns the bytes that one token adds") {
  CHECK(Create(kLlama).TokenBytes("<0xC3>") == "\xC3");
  CHECK(Create(kLlama).TokenBytes("▁a") == " a");
  CHECK(Create(R"({"type": "ByteLevel"})").TokenBytes("ĠÃ") == " \xC3");
  CHECK(Create(R"({"type": "ByteLevel"})").byte_level());
}

// What a stream appends for each token, and at the end.
std::string Parts(const TokenDecoder& decoder, const std::vector<std::string>& tokens) {
  TokenStream stream = decoder.Start(ByteRuns::kByCharacter);
  std::string text;
  for (const std::string& token : tokens) {
    stream.Append(decoder.Prepare(token), &text);
    text += stream.inside_character() ? '~' : '|';
  }
  stream.End(&text);
  return text;
}

TEST_CASE("TokenDecoder Replace works in each token, after Fuse also across tokens") {
  const TokenDecoder single =
      Create(R"({"type": "Replace", "pattern": {"String": "ab"}, "content": "x"})");
  CHECK(Parts(single, {"aab", "a", "b"}) == "ax|a|b|");
  const TokenDecoder fused = Create(R"({"type": "Sequence", "decoders": [{"type": "Fuse"},
      {"type": "Replace", "pattern": {"String": "aba"}, "content": "x"}]})");
  CHECK(Parts(fused, {"ab", "a", "b", "a", "b", "aab"}) == "|x|b|||x|ab");
  CHECK(fused.Decode({"ab", "a", "b", "a", "b", "aab"}) == "xbxab");
}

TEST_CASE("TokenDecoder Strip after Fuse works at the ends of the text") {
  const TokenDecoder decoder = Create(R"({"type": "Sequence", "decoders": [{"type": "Fuse"},
      {"type": "Strip", "content": "_", "start": 2, "stop": 1}]})");
  CHECK(Parts(decoder, {"_", "__a_", "_", "b_"}) == "|_a|_|_b|");
  CHECK(Parts(decoder, {"___", "_"}) == "|_|");
  CHECK(decoder.Decode({"_", "__a_", "_", "b_"}) == "_a__b");
}

TEST_CASE("TokenDecoder Strip before Fuse works at the ends of each token") {
  const TokenDecoder decoder =
      Create(R"({"type": "Strip", "content": "_", "start": 1, "stop": 1})");
  CHECK(Parts(decoder, {"__a_", "_", "__b"}) == "_a||_b|");
}

TEST_CASE("TokenDecoder makes characters of bytes as soon as they are whole") {
  CHECK(Parts(Create(kLlama), {"<0xE4>", "<0xBD>", "<0xA0>", "<0x80>", "a"}) == "~~你|\uFFFD|a|");
  CHECK(Create(kLlama).Decode({"<0xE4>", "<0xBD>", "<0xA0>", "<0x80>"}) ==
        "\uFFFD\uFFFD\uFFFD\uFFFD");
  CHECK(Parts(Create(R"({"type": "ByteLevel"})"), {"aä½", "ł", "ä", "a"}) == "a~你|~\uFFFDa|");
}

TEST_CASE("TokenDecoder WordPiece joins words by blanks and their tokens without") {
  const TokenDecoder decoder = Create(R"({"type": "WordPiece", "cleanup": true})");
  CHECK(Parts(decoder, {"##uelo", "Ara", "##új", "do", "n't", "."}) == "##uelo| Ara|új| do|n't|.|");
  CHECK(decoder.TokenBytes("##a") == "a");
  CHECK(decoder.TokenBytes("a") == " a");
}

TEST_CASE("TokenDecoder BPEDecoder ends words by blanks, but not the text") {
  const TokenDecoder decoder = Create(R"({"type": "BPEDecoder", "suffix": "</w>"})");
  CHECK(Parts(decoder, {"lo", "w</w>", "a</w>b</w>", "</w>"}) == "lo|w| a| b |");
  CHECK(decoder.Decode({"lo", "w</w>"}) == "low");
}

TEST_CASE("TokenDecoder CTC drops repeated tokens and the padding between them") {
  const TokenDecoder decoder = Create(R"({"type": "CTC"})");
  CHECK(Parts(decoder, {"h", "h", "e", "l", "<pad>", "l", "|", "."}) == "h||e|l||l| |.|");
}

TEST_CASE("TokenDecoder joins tokens by blanks where the file names no decoder") {
  CHECK(Parts(Create("null"), {"a", "b", "c"}) == "a| b| c|");
}

TEST_CASE("TokenDecoder Replace takes a regular expression for whole tokens") {
  const char* const kRegex = R"({"type": "Replace", "pattern": {"Regex": "a+"}, "content": "x"})";
  CHECK(Parts(Create(kRegex), {"aab", "a", "a"}) == "xb|x|x|");
  const auto after_fuse = TokenDecoder::Create(
      {{"type", "Sequence"}, {"decoders", {{{"type", "Fuse"}}, nlohmann::json::parse(kRegex)}}});
  CHECK(after_fuse.status().code() == StatusCode::kUnimplemented);
}

TEST_CASE("TokenDecoder refuses an order of kinds that has no meaning") {
  for (const char* second : {"ByteFallback", "ByteLevel"}) {
    CAPTURE(second);
    const auto decoder = TokenDecoder::Create(
        {{"type", "Sequence"}, {"decoders", {{{"type", "Fuse"}}, {{"type", second}}}}});
    CHECK(decoder.status().code() == StatusCode::kUnimplemented);
    CHECK_THAT(decoder.status().message(), Catch::Contains(second));
  }
}

TEST_CASE("TokenDecoder refuses an unknown kind and malformed fields") {
  const auto code = [](const char* spec) {
    return TokenDecoder::Create(nlohmann::json::parse(spec)).status().code();
  };
  CHECK(code(R"({"type": "Nosuch"})") == StatusCode::kUnimplemented);
  CHECK(code("1") == StatusCode::kInvalidArgument);
  CHECK(code(R"({"type": "Strip", "start": -1})") == StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tandem
