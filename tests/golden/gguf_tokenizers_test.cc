// Tokenizers of GGUF files against recorded ids: tests/golden/quantized/<name>/gguf.json has texts
// and their ids. The same below the folder that TANDEM_GOLDENS names.

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "frontend/text/tokenizer.h"
#include "tests/support/files/golden_folders.h"

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

}  // namespace
}  // namespace tandem
