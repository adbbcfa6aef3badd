// The tokenizer against ids and texts recorded from the `tokenizers` library (0.23.3), from
// sentencepiece 0.2.3 and from tiktoken: tests/golden/tokenizers/<name>/ has the tokenizer's file
// and goldens.json over the texts of texts.json. The same below the folder that TANDEM_GOLDENS
// names.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "frontend/text/detokenizer.h"
#include "frontend/text/tokenizer.h"
#include "tests/support/files/golden_folders.h"
#include "tests/support/gzip/gzip_lines.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using nlohmann::json;

uint64_t Fnv1a64(std::string_view bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
  return hash;
}

std::string Hex(uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof text, "%016lx", static_cast<unsigned long>(value));
  return text;
}

struct Fixture {
  explicit Fixture(const std::string& folder)
      : texts(ReadGzipJson(folder + "/../texts.json")),
        goldens(ReadGzipJson(folder + "/goldens.json")) {
    auto loaded = Tokenizer::Load(folder);
    INFO(loaded.status().ToString());
    REQUIRE(loaded.ok());
    tokenizer = *loaded;
  }
  json texts;
  json goldens;
  std::shared_ptr<const Tokenizer> tokenizer;
};

std::string AnyTokenizer() {
  static const std::vector<std::string> folders =
      GoldenFolders(TANDEM_GOLDEN_DIR, "tokenizers", "tokenizer.json");
  return GENERATE(from_range(folders));
}

TEST_CASE("Encode gives the recorded ids with and without special tokens") {
  const std::string name = AnyTokenizer();
  CAPTURE(name);
  const Fixture fixture(name);
  CHECK(fixture.tokenizer->vocab_size() == fixture.goldens["vocab_size"].get<int>());
  for (const json& item : fixture.goldens["encode"]) {
    const std::string text = fixture.texts["texts"][item[0].get<size_t>()];
    CAPTURE(text);
    const auto bare = item[1].get<std::vector<TokenId>>();
    const auto special = item.size() > 2 ? item[2].get<std::vector<TokenId>>() : bare;
    CHECK(fixture.tokenizer->Encode(text, false).value() == bare);
    CHECK(fixture.tokenizer->Encode(text, true).value() == special);
  }
}

TEST_CASE("Encode gives the recorded ids for long texts") {
  const std::string name = AnyTokenizer();
  CAPTURE(name);
  const Fixture fixture(name);
  for (const json& item : fixture.goldens["encode_long"]) {
    const size_t index = item[0];
    CAPTURE(index);
    std::string text;
    for (const json& part : fixture.texts["long"][index]) {
      for (int i = 0; i < part[1].get<int>(); ++i) text += part[0].get<std::string>();
    }
    const auto ids = fixture.tokenizer->Encode(text, false).value();
    CHECK(ids.size() == item[1]["n"].get<size_t>());
    // Ids are hashed as little-endian 32 bits: the memory of a vector on the machines we run on.
    CHECK(Hex(Fnv1a64({reinterpret_cast<const char*>(ids.data()), ids.size() * 4})) ==
          item[1]["fnv1a64"].get<std::string>());
    CHECK(Hex(Fnv1a64(fixture.tokenizer->Decode(ids, false))) == item[2].get<std::string>());
  }
}

TEST_CASE("Decode gives the recorded texts with and without special tokens") {
  const std::string name = AnyTokenizer();
  CAPTURE(name);
  const Fixture fixture(name);
  for (const json& item : fixture.goldens["decode"]) {
    const auto ids = item[0].get<std::vector<TokenId>>();
    CAPTURE(ids);
    CHECK(fixture.tokenizer->Decode(ids, false) == item[1].get<std::string>());
    CHECK(fixture.tokenizer->Decode(ids, true) == item.back().get<std::string>());
  }
}

// Control symbols are no text for the sentencepiece library.
TEST_CASE("A tokenizer.model gives the ids and texts of the sentencepiece library") {
  static const std::vector<std::string> folders =
      GoldenFolders(TANDEM_GOLDEN_DIR, "tokenizers", "tokenizer.model");
  const std::string name = GENERATE(from_range(folders));
  CAPTURE(name);
  const Fixture fixture(name);
  for (const json& item : fixture.goldens["encode"]) {
    const std::string text = fixture.texts["texts"][item[0].get<size_t>()];
    CAPTURE(text);
    CHECK(fixture.tokenizer->Encode(text, false).value() == item[1].get<std::vector<TokenId>>());
  }
  for (const json& item : fixture.goldens["decode"]) {
    const auto ids = item[0].get<std::vector<TokenId>>();
    CAPTURE(ids);
    CHECK(fixture.tokenizer->Decode(ids, true) == item[1].get<std::string>());
    Detokenizer detokenizer(*fixture.tokenizer, {}, {});
    std::string all;
    for (const TokenId id : ids) detokenizer.Append(id, &all);
    detokenizer.Flush(&all);
    CHECK(all == item[1].get<std::string>());
  }
}

// Special tokens count in the text; `own` has some of the family's, and letters of all cases.
TEST_CASE("A tiktoken file gives the ids of the tiktoken library") {
  static const std::vector<std::string> folders =
      GoldenFolders(TANDEM_GOLDEN_DIR, "tokenizers", "tiktoken.model");
  const std::string name = GENERATE(from_range(folders));
  CAPTURE(name);
  const Fixture fixture(name);
  const auto check = [&](const std::string& text, const json& ids) {
    CAPTURE(text);
    const auto encoded = fixture.tokenizer->Encode(text, false).value();
    CHECK(encoded == ids.get<std::vector<TokenId>>());
    CHECK(fixture.tokenizer->Encode(fixture.tokenizer->Decode(encoded, false), false).value() ==
          encoded);
  };
  CHECK(fixture.tokenizer->vocab_size() == fixture.goldens["vocab_size"].get<int>());
  for (const json& item : fixture.goldens["encode"]) {
    check(fixture.texts["texts"][item[0].get<size_t>()], item[1]);
  }
  check(fixture.goldens["own"][0], fixture.goldens["own"][1]);
}

TEST_CASE("Detokenizer gives the recorded deltas of DecodeStream") {
  const std::string name = AnyTokenizer();
  CAPTURE(name);
  const Fixture fixture(name);
  size_t num_strict = 0;
  for (const json& item : fixture.goldens["stream"]) {
    const auto prime = item["prime"].get<std::vector<TokenId>>();
    const auto ids = item["ids"].get<std::vector<TokenId>>();
    CAPTURE(prime, ids);
    DetokenizerOptions options;
    options.skip_special_tokens = item["skip"];
    Detokenizer detokenizer(*fixture.tokenizer, options, prime);
    std::vector<std::string> deltas;
    std::vector<std::string> expected;
    std::string all;
    for (size_t i = 0; i < ids.size(); ++i) {
      std::string delta;
      detokenizer.Append(ids[i], &delta);
      deltas.push_back(delta);
      expected.push_back(item["deltas"][i].is_null() ? "" : item["deltas"][i]);
      all += delta;
    }
    if (item["consistent"]) {
      CHECK(deltas == expected);
      ++num_strict;
    }
    detokenizer.Flush(&all);
    if (prime.empty() && item["consistent"]) CHECK(all == item["text"].get<std::string>());
  }
  CHECK(num_strict > 70);
}

}  // namespace
}  // namespace tandem
