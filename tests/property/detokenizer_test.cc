// The deltas of any token stream, put together, are the decoded text; each is whole characters.

#include <fstream>
#include <random>

#include "common/strings.h"
#include "frontend/text/detokenizer.h"
#include "frontend/text/tokenizer.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

TEST_CASE("Detokenizer deltas and flush put together equal the whole decode") {
  static const auto tokenizer = Tokenizer::Load(TANDEM_GOLDEN_DIR "/tokenizers/llama3").value();
  const uint32_t seed = GENERATE(range(1u, 1001u));
  CAPTURE(seed);
  std::mt19937 random(seed);
  // Low ids are single bytes: half of the streams hardly hold anything else.
  const TokenId end = seed % 2 == 0 ? 256 : tokenizer->vocab_size() + 3;
  std::uniform_int_distribution<TokenId> draw(0, end - 1);
  DetokenizerOptions options;
  options.skip_special_tokens = seed % 3 == 0;
  Detokenizer detokenizer(*tokenizer, options, {});
  std::vector<TokenId> ids;
  std::string all;
  for (int n = std::uniform_int_distribution<int>(0, 600)(random); n > 0; --n) {
    ids.push_back(draw(random));
    std::string delta;
    detokenizer.Append(ids.back(), &delta);
    REQUIRE(FindInvalidUtf8(delta) == std::string::npos);
    all += delta;
  }
  detokenizer.Flush(&all);
  CHECK(all == tokenizer->Decode(ids, options.skip_special_tokens));
}

TEST_CASE("Detokenizer gives back what was encoded, character by character") {
  static const auto tokenizer = Tokenizer::Load(TANDEM_GOLDEN_DIR "/tokenizers/gpt2").value();
  const std::string text = "Grüße, 你好 👩‍👩‍👧 \xEF\xBF\xBD ok\r\n\t☕";
  Detokenizer detokenizer(*tokenizer, {}, {});
  std::string all;
  const auto ids = tokenizer->Encode(text, false).value();
  for (const TokenId id : ids) detokenizer.Append(id, &all);
  detokenizer.Flush(&all);
  CHECK(all == text);
}

}  // namespace
}  // namespace tandem
