// Encoding with a cache gives the ids of encoding without, for every recorded tokenizer and chats
// that grow, whatever stands around the cuts: added tokens with all flags, pieces of them, blanks.

#include "frontend/text/encoded_text_cache.h"

#include <atomic>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "common/utf8.h"
#include "frontend/text/tokenizer.h"
#include "tests/support/files/golden_folders.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

std::vector<std::string> AllTokenizers() {
  std::vector<std::string> folders;
  for (const char* const file : {"tokenizer.json", "tokenizer.model", "tiktoken.model"}) {
    for (const std::string& folder : GoldenFolders(TANDEM_GOLDEN_DIR, "tokenizers", file)) {
      folders.push_back(folder);
    }
  }
  return folders;
}

std::vector<std::string> AddedTokens(const Tokenizer& tokenizer) {
  std::vector<std::string> texts;
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    if (tokenizer.IsAdded(id)) texts.emplace_back(*tokenizer.IdToToken(id));
  }
  if (texts.empty()) texts.push_back("<s>");
  return texts;
}

class ChatText {
 public:
  ChatText(const Tokenizer& tokenizer, uint32_t seed)
      : random_(seed), added_(AddedTokens(tokenizer)) {}

  // A turn: an added token, some text, often longer than what is cached at least.
  std::string Turn() {
    std::string turn = added_[Draw(added_.size())];
    if (Draw(6) == 0) turn = Cut(turn);  // a part of one
    static const std::vector<std::string> kWords = {" ",       "  ",   "\n",     "the",    " cat's",
                                                    "Ünïcode", "漢字", "\u0301", "\uFFFD", "123",
                                                    "a",       "_x",   "<|",     "|>",     "swrd"};
    for (size_t n = Draw(120); n > 0; --n) {
      if (Draw(30) == 0) {
        char32_t any = static_cast<char32_t>(Draw(0x2FFFF) + 1);
        if (any >= 0xD800 && any <= 0xDFFF) any = 'x';
        AppendUtf8(any, &turn);
      } else {
        turn += kWords[Draw(kWords.size())];
      }
    }
    return turn;
  }
  size_t Draw(size_t end) { return std::uniform_int_distribution<size_t>(0, end - 1)(random_); }

 private:
  std::string Cut(const std::string& text) {
    size_t size = Draw(text.size() + 1);
    while (size < text.size() && IsUtf8Continuation(text[size])) ++size;
    return text.substr(0, size);
  }

  std::mt19937 random_;
  const std::vector<std::string> added_;
};

TEST_CASE("Ids of a chat that grows are those of encoding it anew") {
  static const std::vector<std::string> folders = AllTokenizers();
  const std::string name = GENERATE(from_range(folders));
  const size_t max_bytes = GENERATE(size_t{1} << 20, size_t{6000});
  CAPTURE(name, max_bytes);
  const auto tokenizer = Tokenizer::Load(name).value();
  EncodedTextCache cache(max_bytes);
  for (uint32_t seed = 1; seed <= 12; ++seed) {
    CAPTURE(seed);
    ChatText chat(*tokenizer, seed);
    std::string text;
    for (int turn = 0; turn < 6; ++turn) {
      text += chat.Turn();
      const bool special = chat.Draw(2) == 0;
      CAPTURE(text);
      // Some models know no token for a character and have none for unknown ones.
      const auto expected = tokenizer->Encode(text, special);
      const auto got = tokenizer->Encode(text, special, &cache);
      REQUIRE(got.ok() == expected.ok());
      if (expected.ok()) REQUIRE(*got == *expected);
      REQUIRE(cache.num_bytes() <= max_bytes);
    }
  }
  CHECK(cache.num_bytes() > 0);
}

TEST_CASE("The longest unused text makes room, and one too long is not kept") {
  const auto text = [](char letter) { return std::string(1000, letter); };
  EncodedTextCache cache(4 * (1000 + 4 + 128));
  std::vector<TokenId> ids;
  for (TokenId i = 0; i < 4; ++i) cache.Insert(text(static_cast<char>('a' + i)), false, {&i, 1});
  REQUIRE(cache.Find(text('a'), false, &ids));
  const TokenId last = 9;
  cache.Insert(text('z'), false, {&last, 1});
  CHECK_FALSE(cache.Find(text('b'), false, &ids));
  CHECK_FALSE(cache.Find(text('a'), true, &ids));
  CHECK(cache.Find(text('a'), false, &ids));
  CHECK(cache.Find(text('z'), false, &ids));
  CHECK(ids == std::vector<TokenId>{0, 0, 9});
  cache.Insert(std::string(3000, 'x'), false, {&last, 1});
  CHECK_FALSE(cache.Find(std::string(3000, 'x'), false, &ids));
  cache.Insert("short", false, {&last, 1});
  CHECK_FALSE(cache.Find("short", false, &ids));
}

TEST_CASE("Threads share a cache and get the right ids") {
  EncodedTextCache cache(20'000);
  std::vector<std::thread> threads;
  std::atomic<int> num_wrong = 0;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&cache, &num_wrong, t] {
      for (int i = 0; i < 3000; ++i) {
        const TokenId id = (i * 7 + t) % 40;
        const std::string text(200 + static_cast<size_t>(id), 'x');
        std::vector<TokenId> ids;
        if (cache.Find(text, false, &ids) && ids != std::vector<TokenId>{id}) ++num_wrong;
        cache.Insert(text, false, {&id, 1});
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(num_wrong == 0);
}

}  // namespace
}  // namespace tandem
