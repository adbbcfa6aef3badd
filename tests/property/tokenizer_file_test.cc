// Hostile tokenizer.json files: any damage gives a Status or a tokenizer that works, never a crash.

#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include <nlohmann/json.hpp>

#include "common/strings.h"
#include "frontend/text/tokenizer.h"
#include "tests/support/files/temp_folder.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using nlohmann::json;

json SmallTokenizer() {
  std::ifstream in(TANDEM_GOLDEN_DIR "/tokenizers/qwen2/tokenizer.json");
  json root = json::parse(in);
  // Bytes and the first merges are enough, and quick to parse.
  json merges = json::array();
  for (size_t i = 0; i < 20; ++i) merges.push_back(root["model"]["merges"][i]);
  json vocab = json::object();
  for (const auto& [text, id] : root["model"]["vocab"].items()) {
    if (id.get<int>() < 300) vocab[text] = id;
  }
  root["model"]["merges"] = merges;
  root["model"]["vocab"] = vocab;
  return root;
}

void Use(const std::string& text) {
  const auto tokenizer = Tokenizer::Parse(text, "");
  if (!tokenizer.ok()) {
    REQUIRE_FALSE(tokenizer.status().message().empty());
    return;
  }
  const auto ids = (*tokenizer)->Encode("Hi <|im_start|>12 don't \xC3\xA9\n\n x", true);
  if (ids.ok()) (*tokenizer)->Decode(*ids, false);
}

// Replaces one value somewhere in the tree by something of another kind.
void Damage(json* node, std::mt19937* random, int depth) {
  const auto draw = [&](size_t end) {
    return std::uniform_int_distribution<size_t>(0, end - 1)(*random);
  };
  if (node->is_structured() && !node->empty() && (depth < 2 || draw(3) > 0)) {
    auto it = node->begin();
    std::advance(it, static_cast<std::ptrdiff_t>(draw(node->size())));
    return Damage(&*it, random, depth + 1);
  }
  const json kValues[] = {nullptr,
                          true,
                          -1,
                          1e300,
                          4294967296,
                          "",
                          "x y",
                          "(",
                          "\\p{",
                          "[a[b",
                          "&&",
                          json::array(),
                          json::object(),
                          json::array({1, "a"})};
  *node = kValues[draw(std::size(kValues))];
}

TEST_CASE("Tokenizer survives damaged values of tokenizer.json") {
  static const json whole = SmallTokenizer();
  const uint32_t seed = GENERATE(range(1u, 401u));
  CAPTURE(seed);
  std::mt19937 random(seed);
  json damaged = whole;
  Damage(&damaged, &random, 0);
  Use(damaged.dump(-1, ' ', true));
}

TEST_CASE("Tokenizer survives cut and flipped bytes of tokenizer.json") {
  static const std::string whole = SmallTokenizer().dump();
  const uint32_t seed = GENERATE(range(1u, 301u));
  CAPTURE(seed);
  std::mt19937 random(seed);
  std::string text = whole;
  std::uniform_int_distribution<size_t> pos(0, text.size() - 1);
  if (seed % 3 == 0) text.resize(pos(random));
  for (int i = 0; i < 3 && !text.empty(); ++i) {
    text[pos(random) % text.size()] = static_cast<char>(random());
  }
  Use(text);
}

TEST_CASE("Tokenizer survives cut and flipped bytes of tokenizer.model") {
  const uint32_t seed = GENERATE(range(1u, 121u));
  CAPTURE(seed);
  std::mt19937 random(seed);
  const char* const name = seed % 2 == 0 ? "spm_bpe" : "spm_unigram_nfkc";
  std::ifstream in(std::string(TANDEM_GOLDEN_DIR "/tokenizers/") + name + "/tokenizer.model");
  std::ostringstream whole;
  whole << in.rdbuf();
  std::string bytes = whole.str();
  REQUIRE(bytes.size() > 1000);
  if (seed % 5 == 0) bytes.resize(random() % bytes.size());
  for (int i = 0; i < 8 && !bytes.empty(); ++i) {
    bytes[random() % bytes.size()] = static_cast<char>(random());
  }
  const TempFolder folder;
  folder.Write("tokenizer.model", bytes);
  const auto tokenizer = Tokenizer::Load(folder.path());
  if (!tokenizer.ok()) {
    CHECK_FALSE(tokenizer.status().message().empty());
    return;
  }
  const auto ids = (*tokenizer)->Encode("Hi \u00BD\uFB01 <s>12 don't \xC3\xA9\n\n x\u3000", true);
  if (ids.ok()) CHECK(FindInvalidUtf8((*tokenizer)->Decode(*ids, false)) == std::string::npos);
}

TEST_CASE("Tokenizer survives cut and flipped bytes of a tiktoken file") {
  const uint32_t seed = GENERATE(range(1u, 121u));
  CAPTURE(seed);
  std::mt19937 random(seed);
  std::ifstream in(TANDEM_GOLDEN_DIR "/tokenizers/tiktoken_kimi/tiktoken.model");
  std::ostringstream whole;
  whole << in.rdbuf();
  std::string bytes = whole.str();
  REQUIRE(bytes.size() > 1000);
  if (seed % 5 == 0) bytes.resize(random() % bytes.size());
  const size_t digits_or_text = seed % 2 == 0 ? 10 : 256;
  for (int i = 0; i < 2 && !bytes.empty(); ++i) {
    bytes[random() % bytes.size()] = static_cast<char>('0' + random() % digits_or_text);
  }
  const TempFolder folder;
  folder.Write("x.tiktoken", bytes);
  folder.Write("tokenizer_config.json", R"({"tokenizer_class": "TikTokenTokenizer"})");
  const auto tokenizer = Tokenizer::Load(folder.path());
  if (!tokenizer.ok()) {
    CHECK_FALSE(tokenizer.status().message().empty());
    return;
  }
  const auto ids = (*tokenizer)->Encode("Hi \u00BD\uFB01 12 don't \xC3\xA9\n\n x\u3000", true);
  if (ids.ok()) CHECK(FindInvalidUtf8((*tokenizer)->Decode(*ids, false)) == std::string::npos);
}

TEST_CASE("Tokenizer survives cut and changed bytes of tekken.json and lists of tokens") {
  const uint32_t seed = GENERATE(range(1u, 121u));
  const std::string hurt = GENERATE("tekken/tekken.json", "vocab_and_merges/vocab.json",
                                    "vocab_and_merges/merges.txt", "vocab_txt/vocab.txt");
  CAPTURE(seed, hurt);
  std::mt19937 random(seed);
  const std::filesystem::path path = TANDEM_GOLDEN_DIR "/tokenizer_files/" + hurt;
  const TempFolder folder;
  for (const auto& entry : std::filesystem::directory_iterator(path.parent_path())) {
    if (entry.path().extension() == ".gz") continue;
    std::ifstream in(entry.path());
    std::ostringstream whole;
    whole << in.rdbuf();
    std::string bytes = whole.str();
    REQUIRE(bytes.size() > 1000);
    if (entry.path() == path && seed % 5 == 0) bytes.resize(random() % bytes.size());
    for (int i = 0; entry.path() == path && i < 2 && !bytes.empty(); ++i) {
      bytes[random() % bytes.size()] = static_cast<char>(" 0a,]\"\n\xff"[random() % 8]);
    }
    folder.Write(entry.path().filename().string(), bytes);
  }
  const auto tokenizer = Tokenizer::Load(folder.path());
  if (!tokenizer.ok()) {
    CHECK_FALSE(tokenizer.status().message().empty());
    return;
  }
  const auto ids = (*tokenizer)->Encode("Hi \u00BD\uFB01 12 don't \xC3\xA9\n\n x\u3000", true);
  if (ids.ok()) CHECK(FindInvalidUtf8((*tokenizer)->Decode(*ids, false)) == std::string::npos);
}

TEST_CASE("Tokenizer refuses deeply nested parts") {
  std::string nested = R"({"type":"Sequence","pretokenizers":[)";
  std::string text;
  for (int i = 0; i < 5000; ++i) text += nested;
  for (int i = 0; i < 5000; ++i) text += "]}";
  const auto tokenizer = Tokenizer::Parse(R"({"pre_tokenizer":)" + text + "}", "");
  CHECK(tokenizer.status().code() == StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tandem
