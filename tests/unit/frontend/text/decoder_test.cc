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

TEST_CASE("TokenDecoder joins byte tokens to characters, or marks each of a run that is none") {
  const TokenDecoder decoder = Create(kLlama);
  CHECK(decoder.Decode({"▁a", "<0xC3>", "<0xA9>", "▁b"}) == "aé b");
  CHECK(decoder.Decode({"a", "<0xC3>", "<0x41>"}) == "a\uFFFD\uFFFD");
  CHECK(decoder.Decode({"<0xZZ>"}) == "<0xZZ>");
  CHECK(decoder.Decode({}).empty());
}

TEST_CASE("TokenDecoder strips at most as many blanks as it is told") {
  CHECK(Create(kLlama).Decode({"▁▁", "▁a▁"}) == "  a ");
}

TEST_CASE("TokenDecoder Metaspace drops the mark of the first token only") {
  const TokenDecoder decoder = Create(R"({"type": "Metaspace", "prepend_scheme": "always"})");
  CHECK(decoder.Decode({"▁a", "▁b"}) == "a b");
  const TokenDecoder never = Create(R"({"type": "Metaspace", "prepend_scheme": "never"})");
  CHECK(never.Decode({"▁a", "▁b"}) == " a b");
}

TEST_CASE("TokenDecoder tells what one token adds by itself") {
  CHECK(Create(kLlama).TokenBytes("<0xC3>") == "\xC3");
  CHECK(Create(kLlama).TokenBytes("▁a") == " a");
  CHECK(Create(R"({"type": "ByteLevel"})").TokenBytes("ĠÃ") == " \xC3");
  CHECK(Create(R"({"type": "ByteLevel"})").byte_level());
}

TEST_CASE("TokenDecoder refuses what it does not know") {
  const auto code = [](const char* spec) {
    return TokenDecoder::Create(nlohmann::json::parse(spec)).status().code();
  };
  CHECK(code(R"({"type": "Nosuch"})") == StatusCode::kUnimplemented);
  CHECK(code("null") == StatusCode::kUnimplemented);
  CHECK(code("1") == StatusCode::kInvalidArgument);
  CHECK(code(R"({"type": "Strip", "start": -1})") == StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tandem
