// Expected texts are those of `tokenizers` 0.23.3.

#include "frontend/text/normalizer.h"

#include <nlohmann/json.hpp>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

std::string Normalized(const char* spec, std::string_view text) {
  return Normalizer::Create(nlohmann::json::parse(spec)).value().Apply(text).value();
}

TEST_CASE("Normalizer brings text into a normal form") {
  CHECK(Normalized(R"({"type": "NFC"})", "e\u0301\uFB01") == "\u00E9\uFB01");
  CHECK(Normalized(R"({"type": "NFD"})", "\u00E9") == "e\u0301");
  CHECK(Normalized(R"({"type": "NFKC"})", "\uFB01\u00B2e\u0301") == "fi2\u00E9");
  CHECK(Normalized(R"({"type": "NFKD"})", "\uFB01\u00E9") == "fie\u0301");
}

TEST_CASE("Normalizer rewrites characters one by one") {
  CHECK(Normalized(R"({"type": "Lowercase"})", "ÄB\u0130ß") == "äbi\u0307ß");
  CHECK(Normalized(R"({"type": "StripAccents"})", "e\u0301\u00E9") == "e\u00E9");
  CHECK(Normalized(R"({"type": "Nmt"})",
                   "a\u200Bb\x01"
                   "c\n\uFEFF") == "a bc  ");
  CHECK(Normalized(R"({"type": "ByteLevel"})", "a é") == "aĠÃ©");
  CHECK(Normalized(R"({"type": "Strip", "strip_left": true, "strip_right": false})", " a ") ==
        "a ");
  CHECK(Normalized(R"({"type": "Prepend", "prepend": "_"})", "a") == "_a");
  CHECK(Normalized(R"({"type": "Prepend", "prepend": "_"})", "").empty());
}

TEST_CASE("Normalizer Replace takes a string or a regular expression") {
  CHECK(Normalized(R"({"type": "Replace", "pattern": {"String": "aa"}, "content": "b"})", "aaa") ==
        "ba");
  CHECK(Normalized(R"({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "})",
                   "a   b c") == "a b c");
}

TEST_CASE("Normalizer BertNormalizer cleans, sets Chinese apart, strips accents and lowers") {
  constexpr const char* kAll = R"({"type": "BertNormalizer"})";
  CHECK(Normalized(kAll, "H\u00E9llo\t\u4F60\u0007!\uFFFD") == "hello  \u4F60 !");
  constexpr const char* kCased = R"({"type": "BertNormalizer", "lowercase": false,
                                     "handle_chinese_chars": false})";
  CHECK(Normalized(kCased, "H\u00E9\u4F60") == "H\u00E9\u4F60");
}

TEST_CASE("Normalizer does the steps of a sequence in order") {
  CHECK(Normalized(R"({"type": "Sequence", "normalizers": [{"type": "NFD"},
                       {"type": "StripAccents"}, {"type": "Lowercase"}]})",
                   "\u00C9") == "e");
}

TEST_CASE("Normalizer Precompiled replaces by SentencePiece's table and refuses a damaged one") {
  const auto refused =
      Normalizer::Create({{"type", "Precompiled"}, {"precompiled_charsmap", "////"}});
  CHECK(refused.status().code() == StatusCode::kInvalidArgument);
  const auto not_base64 =
      Normalizer::Create({{"type", "Precompiled"}, {"precompiled_charsmap", "*"}});
  CHECK(not_base64.status().code() == StatusCode::kInvalidArgument);
  CHECK(Normalized(R"({"type": "Precompiled", "precompiled_charsmap": ""})", "a\u00E9") ==
        "a\u00E9");
}

TEST_CASE("Normalizer names a kind that it does not support") {
  const auto normalizer = Normalizer::Create({{"type", "Strange"}});
  CHECK(normalizer.status().code() == StatusCode::kUnimplemented);
  CHECK_THAT(normalizer.status().message(), Catch::Contains("Strange"));
}

}  // namespace
}  // namespace tandem
