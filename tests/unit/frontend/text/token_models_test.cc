// Whole tokenizers of a few tokens for each model; expected ids are those of `tokenizers` 0.23.3.

#include "frontend/text/tokenizer.h"

#include <fstream>
#include <sstream>

#include "frontend/text/byte_trie.h"
#include "frontend/text/vocabulary.h"
#include "tests/support/files/temp_folder.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Ids = std::vector<TokenId>;

StatusOr<Ids> Encode(const std::string& parts, std::string_view text) {
  const auto tokenizer = Tokenizer::Parse("{" + parts + "}", "");
  REQUIRE(tokenizer.ok());
  return (*tokenizer)->Encode(text, false);
}

constexpr const char* kUnigram = R"("model": {"type": "Unigram", "unk_id": 0, "vocab": [
  ["<unk>", 0], ["a", -1], ["b", -1], ["ab", -1.5], ["abc", -9], ["c", -1]]})";

TEST_CASE("Unigram takes the tokens of the highest total score") {
  CHECK(Encode(kUnigram, "ab").value() == Ids{3});
  CHECK(Encode(kUnigram, "abcab").value() == Ids{3, 5, 3});
  CHECK(Encode(kUnigram, "").value().empty());
}

TEST_CASE("Unigram makes one token of unknown characters side by side") {
  CHECK(Encode(kUnigram, "aéxb").value() == Ids{1, 0, 2});
  CHECK(Encode(kUnigram, "<unk>").value() == Ids{0});
}

TEST_CASE("Unigram spells unknown characters by bytes where it has all of them") {
  const std::string model = R"("model": {"type": "Unigram", "unk_id": 0, "byte_fallback": true,
    "vocab": [["<unk>", 0], ["a", -1], ["<0xC3>", -5], ["<0xA9>", -5]]})";
  CHECK(Encode(model, "aé").value() == Ids{1, 2, 3});
  CHECK(Encode(model, "aê").value() == Ids{1, 0});
}

TEST_CASE("Unigram refuses an unknown character when it has no unknown token") {
  const auto ids = Encode(R"("model": {"type": "Unigram", "vocab": [["a", -1]]})", "ab");
  CHECK(ids.status().code() == StatusCode::kInvalidArgument);
  CHECK_THAT(ids.status().message(), Catch::Contains("\"b\""));
}

TEST_CASE("WordPiece cuts a word into the longest tokens it begins with") {
  const std::string model = R"("pre_tokenizer": {"type": "WhitespaceSplit"},
    "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
    "max_input_chars_per_word": 5,
    "vocab": {"[UNK]": 0, "un": 1, "##able": 2, "##ab": 3, "a": 4, "##é": 5}})";
  CHECK(Encode(model, "una unab aé").value() == Ids{0, 1, 3, 4, 5});
  CHECK(Encode(model, "unable").value() == Ids{0});  // too long
  CHECK(Encode(model, "aéééé aééééé").value() == Ids{4, 5, 5, 5, 5, 0});
}

TEST_CASE("WordLevel looks words up") {
  const std::string model = R"("pre_tokenizer": {"type": "Whitespace"},
    "model": {"type": "WordLevel", "unk_token": "<unk>", "vocab": {"<unk>": 0, "hi": 1, "!": 2}})";
  CHECK(Encode(model, "hi, hi!").value() == Ids{1, 0, 1, 2});
}

TEST_CASE("BPE spells the inside and the end of a word by affixes") {
  const std::string model = R"("pre_tokenizer": {"type": "WhitespaceSplit"},
    "model": {"type": "BPE", "unk_token": "<unk>", "end_of_word_suffix": "</w>",
    "vocab": {"<unk>": 0, "l": 1, "o": 2, "w</w>": 3, "lo": 4, "low</w>": 5, "o</w>": 6, "low": 7},
    "merges": ["l o", "lo w</w>"]})";
  CHECK(Encode(model, "low lo").value() == Ids{5, 1, 6});
  const std::string prefixed = R"("pre_tokenizer": {"type": "WhitespaceSplit"},
    "model": {"type": "BPE", "continuing_subword_prefix": "##",
    "vocab": {"a": 0, "##b": 1, "ab": 2, "##c": 3, "##bc": 4}, "merges": ["a ##b", "##b ##c"]})";
  CHECK(Encode(prefixed, "abc").value() == Ids{2, 3});
}

TEST_CASE("Kinds after ByteLevel see the alphabet's characters") {
  const std::string model = R"("pre_tokenizer": {"type": "Sequence", "pretokenizers": [
    {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false},
    {"type": "Digits", "individual_digits": true}]},
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "vocab": {"a": 0, "1": 1, "a1": 2, "Â": 3, "²": 4, "Â²": 5},
    "merges": ["a 1", "Â ²"]})";
  CHECK(Encode(model, "a1²").value() == Ids{0, 1, 3, 4});
}

TEST_CASE("BPE dropout is for training: but for 1 it takes no merge away") {
  const auto encode = [](const std::string& dropout) {
    return Encode(R"("model": {"type": "BPE", "ignore_merges": true, "dropout": )" + dropout +
                      R"(, "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]})",
                  "ab");
  };
  CHECK(encode("0.9").value() == Ids{2});
  CHECK(encode("0").value() == Ids{2});
  CHECK(encode("1.0").value() == Ids{0, 1});
  for (const char* dropout : {"1.5", "-1", "\"0.1\""}) {
    const auto wrong =
        Tokenizer::Parse(R"({"model": {"type": "BPE", "vocab": {}, "merges": [], "dropout": )" +
                             std::string(dropout) + "}}",
                         "");
    CHECK_THAT(wrong.status().message(), Catch::Contains("a number from 0 to 1"));
  }
}

TEST_CASE("BPE after a Metaspace that follows ByteLevel takes characters, not bytes") {
  const std::string model = R"("pre_tokenizer": {"type": "Sequence", "pretokenizers": [
    {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false},
    {"type": "Metaspace", "prepend_scheme": "always"}]},
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "vocab": {"▁": 0, "Ã": 1, "©": 2, "▁Ã": 3, "Ã©": 4},
    "merges": ["▁ Ã", "Ã ©"]})";
  CHECK(Encode(model, "é").value() == Ids{3, 2});
}

// As CLIP's.
TEST_CASE("A byte-level BPE may spell the end of a word by a suffix") {
  const std::string model = R"("pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "unk_token": "?", "end_of_word_suffix": "</w>",
    "vocab": {"?": 0, "Ã": 1, "©</w>": 2, "Ã©</w>": 3, "a": 4, "Ġ": 5, "aÃ": 6, "a</w>": 7},
    "merges": ["Ã ©</w>", "a Ã"]})";
  CHECK(Encode(model, "é").value() == Ids{3});
  CHECK(Encode(model, "aé é a").value() == Ids{4, 3, 5, 3, 5, 7});
}

TEST_CASE("A byte-level BPE keeps merges that no text has, which merge nothing") {
  const std::string model = R"("pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "▁": 3, "▁a": 4},
    "merges": ["▁ a", "a b"]})";
  CHECK(Encode(model, "ab").value() == Ids{2});
}

// A tokenizer.model of a few pieces; the rest is as the library's defaults.
std::string SentencePieceBytes(char kind, bool byte_fallback,
                               const std::vector<std::pair<std::string, char>>& pieces) {
  const auto field = [](char number, const std::string& bytes) {
    return std::string{static_cast<char>(number << 3 | 2), static_cast<char>(bytes.size())} + bytes;
  };
  std::string model;
  for (const auto& [text, type] : pieces) {
    model += field(1, field(1, text) + std::string{3 << 3, type});
  }
  std::string trainer = {3 << 3, kind};
  if (byte_fallback) trainer += std::string{static_cast<char>(0x98), 2, 1};  // field 35
  return model + field(2, trainer) + field(3, field(1, "identity"));
}

// Expected ids and texts are those of sentencepiece 0.2.3.
TEST_CASE("A tokenizer.model of words or of characters looks them up") {
  constexpr char kNormal = 1, kUnknown = 2, kControl = 3, kUser = 4, kByte = 6, kWord = 3,
                 kChar = 4;
  const std::vector<std::pair<std::string, char>> special = {
      {"<unk>", kUnknown}, {"<s>", kControl}, {"</s>", kControl}};
  const auto load = [&](char kind, std::vector<std::pair<std::string, char>> pieces, bool bytes) {
    pieces.insert(pieces.begin(), special.begin(), special.end());
    const TempFolder folder;
    folder.Write("tokenizer.model", SentencePieceBytes(kind, bytes, pieces));
    return Tokenizer::Load(folder.path()).value();
  };
  const auto word = load(kWord, {{"▁hi", kNormal}, {"▁you", kNormal}, {"▁", kNormal}}, false);
  CHECK(word->Encode("  hi  you ", false).value() == Ids{3, 4});
  CHECK(word->Encode("hi no way you", false).value() == Ids{3, 0, 4});
  CHECK(word->Encode("▁▁hi", false).value() == Ids{5, 5, 3});
  CHECK(word->Encode("", false).value().empty());
  CHECK(word->Decode(Ids{3, 0, 4}, false) == "hi \u2047  you");
  const auto chars =
      load(kChar, {{"▁", kNormal}, {"h", kNormal}, {"i", kNormal}, {"é", kNormal}, {"<x>", kUser}},
           false);
  CHECK(chars->Encode("héqqi h", false).value() == Ids{3, 4, 6, 0, 5, 3, 4});
  CHECK(chars->Encode("a<x>h", false).value() == Ids{3, 0, 7, 4});
  std::vector<std::pair<std::string, char>> bytes;
  for (int byte = 0; byte < 256; ++byte) {
    bytes.emplace_back(ByteTokenText(static_cast<unsigned char>(byte)), kByte);
  }
  bytes.emplace_back("▁hi", kNormal);
  const auto spelled = load(kWord, bytes, true);
  CHECK(spelled->Encode("hi é", false).value() == Ids{259, 229, 153, 132, 198, 172});
  CHECK(spelled->Decode(Ids{259, 229, 153, 132, 198, 172}, false) == "hi▁é");
}

// A configuration beside a tokenizer.model names the control symbols to find and to add.
TEST_CASE("tokenizer.model takes its special tokens from tokenizer_config.json") {
  TempFolder folder;
  std::ifstream in(TANDEM_GOLDEN_DIR "/tokenizers/spm_bpe/tokenizer.model");
  std::ostringstream bytes;
  bytes << in.rdbuf();
  folder.Write("tokenizer.model", bytes.str());
  const auto bare = Tokenizer::Load(folder.path()).value();
  const TokenId bos = bare->TokenToId("<s>").value();
  CHECK(bare->IsSpecial(bos));
  CHECK(bare->Encode("a", true).value().front() == bos);
  CHECK(bare->Encode("a<s>", false).value().back() != bos);
  folder.Write("tokenizer_config.json",
               R"({"bos_token": "<s>", "add_bos_token": false, "add_eos_token": true})");
  const auto named = Tokenizer::Load(folder.path()).value();
  CHECK(named->bos_id() == bos);
  CHECK(named->Encode("a<s>", false).value().back() == bos);
  CHECK(named->Encode("a", true).value().front() != bos);
  CHECK(named->Encode("a", true).value().back() == named->TokenToId("</s>"));
  CHECK(named->Decode(named->Encode("<s>a b", false).value(), true) == "a b");
}

TEST_CASE("ByteTrie finds the longest key that a text begins with") {
  const ByteTrie trie({{"a", 1}, {"abc", 2}, {"b", 3}, {"a", 4}});
  CHECK(trie.Longest("abd") == std::pair<int32_t, size_t>{4, 1});
  CHECK(trie.Longest("abcd") == std::pair<int32_t, size_t>{2, 3});
  CHECK(trie.Longest("c").first == -1);
  CHECK(trie.Longest("").first == -1);
  CHECK(ByteTrie().Longest("a").first == -1);
}

}  // namespace
}  // namespace tandem
