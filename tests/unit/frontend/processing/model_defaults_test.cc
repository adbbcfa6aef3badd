#include "frontend/processing/model_defaults.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

TEST_CASE("ModelDefaults: the override wins over the model's generation config") {
  const auto defaults = ParseModelDefaults(
      R"({"vocab_size": 512, "eos_token_id": 9, "model_type": "llama"})",
      R"({"temperature": 0.6, "top_p": 0.95, "top_k": 20, "eos_token_id": [2, 3], "max_new_tokens": 50})",
      R"({"temperature": 0.1, "max_new_tokens": 40})");
  REQUIRE(defaults.ok());
  CHECK(defaults->sampling.temperature == 0.1);
  CHECK(defaults->sampling.top_p == 0.95);
  CHECK(defaults->sampling.top_k == 20);
  CHECK_FALSE(defaults->sampling.min_p);
  CHECK(defaults->sampling.max_tokens == 40);
  CHECK(defaults->max_tokens_cap == 40);
  CHECK(defaults->eos_ids == std::vector<TokenId>{2, 3});
  CHECK(defaults->vocab_size == 512);
  CHECK(defaults->model_type == "llama");
}

TEST_CASE("ModelDefaults: the end token of config.json replaces a missing one") {
  const auto defaults =
      ParseModelDefaults(R"({"text_config": {"vocab_size": 8, "eos_token_id": 7}})", "", "");
  REQUIRE(defaults.ok());
  CHECK(defaults->eos_ids == std::vector<TokenId>{7});
  CHECK(defaults->vocab_size == 8);
  CHECK_FALSE(defaults->max_tokens_cap);
}

// As Python writes it in the files of Nemotron-H.
TEST_CASE("ModelDefaults: config.json may have infinities") {
  const auto defaults = ParseModelDefaults(
      R"({"time_step_limit": [0.0, Infinity], "vocab_size": 8, "eos_token_id": 7})", "", "");
  REQUIRE(defaults.ok());
  CHECK(defaults->eos_ids == std::vector<TokenId>{7});
}

TEST_CASE("ModelDefaults: --hf-overrides replaces keys of config.json, also nested ones") {
  const auto defaults =
      ParseModelDefaults(R"({"text_config": {"vocab_size": 8, "eos_token_id": 7}})", "", "",
                         R"({"text_config": {"eos_token_id": 3}})");
  REQUIRE(defaults.ok());
  CHECK(defaults->eos_ids == std::vector<TokenId>{3});
  CHECK(defaults->vocab_size == 8);
  CHECK(ParseModelDefaults("{}", "", "", "7").status().message().starts_with("--hf-overrides: "));
}

TEST_CASE("ModelDefaults: an end token outside of the vocabulary is none") {
  const auto defaults =
      ParseModelDefaults(R"({"vocab_size": 8})", R"({"eos_token_id": [-1, 8, 3]})", "");
  REQUIRE(defaults.ok());
  CHECK(defaults->eos_ids == std::vector<TokenId>{3});
}

TEST_CASE("ModelDefaults: an error about a malformed file or value names the file") {
  const auto message = [](std::string_view config, std::string_view generation,
                          std::string_view override_json) {
    return ParseModelDefaults(config, generation, override_json).status().message();
  };
  CHECK(message("{", "", "").rfind("config.json: ", 0) == 0);
  CHECK(message("", "[]", "").rfind("generation_config.json: ", 0) == 0);
  CHECK(message("", "", "5").rfind("--override-generation-config: ", 0) == 0);
  CHECK(message("", R"({"temperature": "hot"})", "").find("temperature") != std::string::npos);
  CHECK(message("", R"({"top_p": 0})", "").find("(0, 1]") != std::string::npos);
  CHECK(message("", R"({"eos_token_id": "</s>"})", "").find("eos_token_id") != std::string::npos);
  CHECK(message(R"({"vocab_size": -1})", "", "").find("vocab_size") != std::string::npos);
}

}  // namespace
}  // namespace tandem
