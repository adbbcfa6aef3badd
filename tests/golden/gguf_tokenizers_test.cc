// Tokenizers of GGUF files against recorded ids: tests/golden/quantized/<name>/gguf.json has texts
// and their ids. The same below the folder that TANDEM_GOLDENS names.

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "frontend/text/tokenizer.h"
#include "tests/support/files/gguf_bytes.h"
#include "tests/support/files/golden_folders.h"
#include "tests/support/files/temp_folder.h"
#include "tests/support/gzip/gzip_lines.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using nlohmann::json;

json ReadJson(const std::string& path) {
  std::ifstream in(path);
  REQUIRE(in);
  return json::parse(in);
}

// The recorded ids of the SentencePiece model are those of its tokenizer.model, whose rules for
// white space, and whose symbols of the user, llama.cpp's converter leaves out.
bool IsLost(const json& recorded, const std::string& text) {
  return recorded["metadata"]["tokenizer.ggml.model"][1] == "llama" &&
         (text.find('\n') != std::string::npos || text.find("  ") != std::string::npos);
}

TEST_CASE("GGUF tokenizers: recorded ids, and the texts back") {
  int num_texts = 0;
  for (const std::string& folder : GoldenFolders(TANDEM_GOLDEN_DIR, "quantized", "gguf.json")) {
    CAPTURE(folder);
    const json recorded = ReadJson(folder + "/gguf.json");
    const auto tokenizer = Tokenizer::Load(folder + "/model.gguf");
    CAPTURE(tokenizer.status().message());
    REQUIRE(tokenizer.ok());
    for (const json& pair : recorded["encode"]) {
      const std::string text = pair[0];
      if (IsLost(recorded, text)) continue;
      CAPTURE(text);
      const auto ids = (*tokenizer)->Encode(text, false);
      REQUIRE(ids.ok());
      CHECK(json(*ids) == pair[1]);
      CHECK((*tokenizer)->Decode(*ids, false) == text);
      ++num_texts;
    }
    CHECK((*tokenizer)->chat_templates().at("default") == recorded["chat_template"]);
    const json& metadata = recorded["metadata"];
    CHECK((*tokenizer)->eos_id() == metadata["tokenizer.ggml.eos_token_id"][1].get<TokenId>());
    const bool adds_bos = metadata["tokenizer.ggml.add_bos_token"][1];
    const TokenId bos = metadata["tokenizer.ggml.bos_token_id"][1];
    const auto ids = (*tokenizer)->Encode("Hello world", true);
    REQUIRE(ids.ok());
    CHECK((ids->front() == bos) == adds_bos);
  }
  CHECK(num_texts >= 19);
}

// A tokenizer.json whose BPE merges characters, as llama.cpp's converter writes Gemma 4's.
GgufBytes CharacterBpe(const json& tokenizer) {
  constexpr int32_t kNormal = 1, kUnknown = 2, kControl = 3, kOfUser = 4, kByte = 6;
  const json& vocabulary = tokenizer["model"]["vocab"];
  std::vector<std::string> tokens(vocabulary.size()), merges;
  std::vector<int32_t> types(vocabulary.size(), kNormal);
  for (const auto& [text, id] : vocabulary.items()) {
    tokens[id.get<size_t>()] = text;
    if (text.size() == 6 && text.starts_with("<0x")) types[id.get<size_t>()] = kByte;
  }
  for (const json& token : tokenizer["added_tokens"]) {
    const size_t id = token["id"];
    if (id >= tokens.size()) {
      tokens.resize(id + 1);
      types.resize(id + 1);
    }
    tokens[id] = token["content"];
    types[id] = token["content"] == "<unk>" ? kUnknown : token["special"] ? kControl : kOfUser;
  }
  for (const json& merge : tokenizer["model"]["merges"]) {
    merges.push_back(merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  }
  GgufBytes bytes;
  bytes.String("tokenizer.ggml.model", "gemma4")
      .Strings("tokenizer.ggml.tokens", tokens)
      .Integers("tokenizer.ggml.token_type", types)
      .Strings("tokenizer.ggml.merges", merges)
      .Integer("tokenizer.ggml.bos_token_id", vocabulary["<s>"])
      .Integer("tokenizer.ggml.eos_token_id", vocabulary["</s>"]);
  return bytes;
}

// A GGUF file has added tokens, but not that they are whole words or take blanks around them.
bool HasRules(const json& tokenizer, const std::string& text) {
  for (const json& token : tokenizer["added_tokens"]) {
    const bool has_rules =
        token["single_word"] || token["lstrip"] || token["rstrip"] || token["normalized"];
    if (has_rules && text.find(token["content"].get<std::string>()) != std::string::npos) {
      return true;
    }
  }
  return false;
}

TEST_CASE("GGUF tokenizers: gemma4's kind gives the ids of the tokenizer.json it is made of") {
  const std::string folder = TANDEM_GOLDEN_DIR "/tokenizers/gemma";
  const TempFolder temp;
  const json source = ReadJson(folder + "/tokenizer.json");
  temp.Write("gemma4.gguf", CharacterBpe(source).Build());
  const auto tokenizer = Tokenizer::Load(temp.PathOf("gemma4.gguf"));
  CAPTURE(tokenizer.status().message());
  REQUIRE(tokenizer.ok());
  const json texts = ReadGzipJson(folder + "/../texts.json");
  const json goldens = ReadGzipJson(folder + "/goldens.json");
  int num_texts = 0;
  for (const json& item : goldens["encode"]) {
    const std::string text = texts["texts"][item[0].get<size_t>()];
    CAPTURE(text);
    if (HasRules(source, text)) continue;
    ++num_texts;
    const auto bare = item[1].get<std::vector<TokenId>>();
    CHECK((*tokenizer)->Encode(text, false).value() == bare);
    CHECK((*tokenizer)->Encode(text, true).value() ==
          (item.size() > 2 ? item[2].get<std::vector<TokenId>>() : bare));
  }
  CHECK(num_texts > 250);
  for (const json& item : goldens["decode"]) {
    CHECK((*tokenizer)->Decode(item[0].get<std::vector<TokenId>>(), false) ==
          item[1].get<std::string>());
  }
}

}  // namespace
}  // namespace tandem
