// Tokenizers in files other than tokenizer.json, and what the files beside it change, against ids
// and texts of transformers 5.23, tokenizers 0.23.3 and mistral-common 1.13.1. What is recorded and
// how: tests/golden/tokenizer_files/make.py.

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "frontend/text/detokenizer.h"
#include "frontend/text/tokenizer.h"
#include "tests/support/files/temp_folder.h"
#include "tests/support/gzip/gzip_lines.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using nlohmann::json;

const std::string kFolder = TANDEM_GOLDEN_DIR "/tokenizer_files/";

std::shared_ptr<const Tokenizer> Load(const json& variant) {
  const TempFolder folder;
  for (const auto& [name, path] : variant["files"].items()) {
    std::filesystem::copy_file(kFolder + path.get<std::string>(), folder.PathOf(name));
  }
  folder.Write("tokenizer_config.json", variant["config"].dump());
  const json json_files = variant.value("json_files", json::object());
  for (const auto& [name, content] : json_files.items()) {
    folder.Write(name, content.dump());
  }
  auto tokenizer = Tokenizer::Load(folder.path());
  INFO(tokenizer.status().ToString());
  REQUIRE(tokenizer.ok());
  return *tokenizer;
}

json SpecialToken(const Tokenizer& tokenizer, const char* name) {
  const auto token = tokenizer.special_tokens().find(name);
  return token == tokenizer.special_tokens().end() ? json() : json(token->second);
}

std::string Streamed(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  DetokenizerOptions options;
  options.skip_special_tokens = false;
  Detokenizer detokenizer(tokenizer, options, {});
  std::string text;
  for (const TokenId id : ids) detokenizer.Append(id, &text);
  detokenizer.Flush(&text);
  return text;
}

TEST_CASE("Every kind of tokenizer file gives the recorded ids and texts") {
  const std::string name = GENERATE("tekken", "vocab_and_merges", "vocab_txt", "config_flags");
  static const json texts = ReadGzipJson(TANDEM_GOLDEN_DIR "/tokenizers/texts.json")["texts"];
  size_t num_texts = 0;
  for (const json& variant : ReadGzipJson(kFolder + name + "/goldens.json")) {
    CAPTURE(name, variant["config"].dump(), variant.value("json_files", json()).dump());
    const auto tokenizer = Load(variant);
    CHECK(SpecialToken(*tokenizer, "bos_token") == variant["bos"]);
    CHECK(SpecialToken(*tokenizer, "eos_token") == variant["eos"]);
    for (const json& item : variant["encode"]) {
      const std::string text = item[0].is_string() ? item[0] : texts[item[0].get<size_t>()];
      CAPTURE(text);
      CHECK(tokenizer->Encode(text, false).value() == item[1].get<std::vector<TokenId>>());
      CHECK(tokenizer->Encode(text, true).value() ==
            (item.size() > 2 ? item[2] : item[1]).get<std::vector<TokenId>>());
      ++num_texts;
    }
    for (const json& item : variant["decode"]) {
      const auto ids = item[0].get<std::vector<TokenId>>();
      CAPTURE(ids);
      CHECK(tokenizer->Decode(ids, false) == item[1].get<std::string>());
      CHECK(tokenizer->Decode(ids, true) == item.back().get<std::string>());
      CHECK(Streamed(*tokenizer, ids) == item[1].get<std::string>());
    }
  }
  CHECK(num_texts > (name == "config_flags" ? 10 : 300));
}

// The ids of the file's pieces are the sentencepiece library's.
TEST_CASE("spiece.model is T5's: </s> ends a text, extra ids follow the pieces") {
  const std::string from = TANDEM_GOLDEN_DIR "/tokenizers/spm_unigram/";
  const TempFolder folder;
  std::filesystem::copy_file(from + "tokenizer.model", folder.PathOf("spiece.model"));
  const auto tokenizer = Tokenizer::Load(folder.path()).value();
  const auto model = Tokenizer::Load(from).value();
  const json texts = ReadGzipJson(TANDEM_GOLDEN_DIR "/tokenizers/texts.json")["texts"];
  const TokenId end = tokenizer->TokenToId("</s>").value();
  const json goldens = ReadGzipJson(from + "goldens.json");
  REQUIRE(!goldens["encode"].empty());
  for (const json& item : goldens["encode"]) {
    const std::string text = texts[item[0].get<size_t>()];
    if (text.find("</s>") != std::string::npos || text.find("<unk>") != std::string::npos) continue;
    CAPTURE(text);
    auto ids = item[1].get<std::vector<TokenId>>();
    CHECK(tokenizer->Encode(text, false).value() == ids);
    ids.push_back(end);
    CHECK(tokenizer->Encode(text, true).value() == ids);
  }
  const TokenId first = model->vocab_size();
  CHECK(tokenizer->vocab_size() == first + 100);
  CHECK(tokenizer->Encode("<extra_id_99><extra_id_0>", false).value() ==
        std::vector<TokenId>{first, first + 99});
  CHECK(tokenizer->IsSpecial(first));
}

}  // namespace
}  // namespace tandem
