#include "engine_core/grammar/grammar_config.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Catch::Matchers::Contains;

TEST_CASE("structured-outputs-config: vLLM's keys, and no others") {
  CHECK_FALSE(ParseGrammarConfig("")->defaults.disable_any_whitespace);
  CHECK(ParseGrammarConfig(R"({"backend": "auto", "disable_any_whitespace": true,
                               "disable_additional_properties": true, "reasoning_parser": ""})")
            ->defaults.disable_any_whitespace);
  CHECK_FALSE(ParseGrammarConfig("")->defaults.enable_in_reasoning);
  CHECK(ParseGrammarConfig(R"({"enable_in_reasoning": true})")->defaults.enable_in_reasoning);
  const auto message = [](const char* text) { return ParseGrammarConfig(text).status().message(); };
  CHECK_THAT(message("[]"), Contains("--structured-outputs-config: not a JSON object"));
  CHECK_THAT(message(R"({"backend": "guidance"})"), Contains("backend is \"guidance\""));
  CHECK_THAT(message(R"({"disable_any_whitespace": 1})"), Contains("true or false"));
  CHECK_THAT(message(R"({"reasoning_parser": "qwen3"})"), Contains("--reasoning-parser"));
  CHECK_THAT(message(R"({"colour": 1})"), Contains("no key is called colour"));
}

}  // namespace
}  // namespace tandem
