// Texts as numbers and booleans. The table is what pydantic 2.14.3 reads (TypeAdapter of int, float
// and bool); it also takes texts that look like no number ("0-5" is -5, "5._0" is 5.0), infinities
// and NaN, which are refused here.

#include "frontend/openai/lax_values.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <random>
#include <regex>
#include <string>

#include "frontend/openai/chat_request.h"
#include "frontend/openai/completion_request.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

struct Row {
  const char* text;
  std::optional<int64_t> integer;
  std::optional<double> number;
  std::optional<bool> boolean;
};
constexpr std::nullopt_t kNo = std::nullopt;
const Row kRows[] = {{"5", 5, 5, kNo},
                     {" 5", 5, 5, kNo},
                     {"5 ", 5, 5, kNo},
                     {"\t5\n", 5, 5, kNo},
                     {"+5", 5, 5, kNo},
                     {"-5", -5, -5, kNo},
                     {"--5", kNo, kNo, kNo},
                     {"+-5", kNo, kNo, kNo},
                     {"++5", kNo, kNo, kNo},
                     {"05", 5, 5, kNo},
                     {"-05", -5, -5, kNo},
                     {"5.0", 5, 5, kNo},
                     {"5.00 ", 5, 5, kNo},
                     {"5.", kNo, 5, kNo},
                     {"5.5", kNo, 5.5, kNo},
                     {".5", kNo, 0.5, kNo},
                     {"-.5", kNo, -0.5, kNo},
                     {"1e3", kNo, 1000, kNo},
                     {"1E3", kNo, 1000, kNo},
                     {"1.0e3", kNo, 1000, kNo},
                     {"1e", kNo, kNo, kNo},
                     {"e1", kNo, kNo, kNo},
                     {"1_000", 1000, 1000, kNo},
                     {"5_0.0", 50, 50, kNo},
                     {"_1", kNo, kNo, kNo},
                     {"1_", kNo, kNo, kNo},
                     {"1__0", kNo, kNo, kNo},
                     {"1.0_0", kNo, 1, kNo},
                     {"0x10", kNo, kNo, kNo},
                     {"5 0", kNo, kNo, kNo},
                     {"5,0", kNo, kNo, kNo},
                     {"+ 5", kNo, kNo, kNo},
                     {"", kNo, kNo, kNo},
                     {"  ", kNo, kNo, kNo},
                     {".", kNo, kNo, kNo},
                     {"+", kNo, kNo, kNo},
                     {"\u0665", kNo, kNo, kNo},
                     {"in", kNo, kNo, kNo},
                     {"1", 1, 1, true},
                     {"0", 0, 0, false},
                     {"2", 2, 2, kNo},
                     {"-0.0", 0, 0, kNo},
                     {"true", kNo, kNo, true},
                     {"True", kNo, kNo, true},
                     {"TRUE", kNo, kNo, true},
                     {"yes", kNo, kNo, true},
                     {"Y", kNo, kNo, true},
                     {"t", kNo, kNo, true},
                     {"on", kNo, kNo, true},
                     {"false", kNo, kNo, false},
                     {"no", kNo, kNo, false},
                     {"N", kNo, kNo, false},
                     {"f", kNo, kNo, false},
                     {"off", kNo, kNo, false},
                     {" true", kNo, kNo, kNo},
                     {"true ", kNo, kNo, kNo},
                     {"truee", kNo, kNo, kNo},
                     {"9223372036854775807", INT64_MAX, 9223372036854775807.0, kNo},
                     {"-9223372036854775808", INT64_MIN, -9223372036854775808.0, kNo},
                     // pydantic's numbers are as large as you like; these fields have 64 bits.
                     {"9223372036854775808", kNo, 9223372036854775808.0, kNo},
                     // Not here.
                     {"NaN", kNo, kNo, kNo},
                     {"inf", kNo, kNo, kNo},
                     {"-Infinity", kNo, kNo, kNo},
                     {"1e400", kNo, kNo, kNo},
                     {"nan(1)", kNo, kNo, kNo}};

TEST_CASE("texts are numbers and booleans as pydantic reads them") {
  for (const Row& row : kRows) {
    CAPTURE(row.text);
    CHECK(IntegerOfText(row.text) == row.integer);
    CHECK(NumberOfText(row.text) == row.number);
    CHECK(BooleanOfText(row.text) == row.boolean);
  }
}

TEST_CASE("random texts are numbers where a regular expression says so") {
  const char* env = std::getenv("TANDEM_SEED");
  const uint32_t seed = env != nullptr ? std::stoul(env) : std::random_device()();
  CAPTURE(seed);
  std::mt19937 random(seed);
  const std::regex integer(R"([ \t\n]*[+-]?\d(_?\d)*(\.0+)?[ \t\n]*)");
  const std::regex number(
      R"([ \t\n]*[+-]?(\d(_?\d)*(\.(\d(_?\d)*)?)?|\.\d(_?\d)*)([eE][+-]?\d(_?\d)*)?[ \t\n]*)");
  constexpr std::string_view kBytes = "0015_ \t..+-eE";
  for (int i = 0; i < 20000; ++i) {
    std::string text;
    for (size_t length = 1 + random() % 7; text.size() < length;) {
      text += kBytes[random() % kBytes.size()];
    }
    CAPTURE(text);
    std::string plain = text;
    plain.erase(std::remove(plain.begin(), plain.end(), '_'), plain.end());
    const double value = std::strtod(plain.c_str(), nullptr);
    const auto as_integer = IntegerOfText(text);
    REQUIRE(as_integer.has_value() == std::regex_match(text, integer));
    if (as_integer) REQUIRE(static_cast<double>(*as_integer) == value);
    const auto as_number = NumberOfText(text);
    // Too large or too small for a double.
    if (!std::isnormal(value) && text.find_first_of("eE") != text.npos) continue;
    REQUIRE(as_number.has_value() == std::regex_match(text, number));
    if (as_number) REQUIRE(*as_number == value);
  }
}

TEST_CASE("fields take numbers and booleans as texts and as each other") {
  const auto parsed = ParseCompletionRequest({{"prompt", "x"},
                                              {"max_tokens", "5"},
                                              {"temperature", "0.7"},
                                              {"stream", "On"},
                                              {"logprobs", true},
                                              {"echo", 1},
                                              {"seed", "1_0.0"},
                                              {"stop_token_ids", {"3", 4.0, true}},
                                              {"logit_bias", {{"7", "-1.5"}}},
                                              {"stream_options", {{"include_usage", "yes"}}}});
  INFO(parsed.status().ToString());
  REQUIRE(parsed.ok());
  CHECK(parsed->max_tokens == 5);
  CHECK(parsed->temperature == 0.7);
  CHECK(parsed->stream);
  CHECK(parsed->logprobs == 1);
  CHECK(parsed->echo);
  CHECK(parsed->seed == 10);
  CHECK(parsed->stop_token_ids == std::vector<int64_t>{3, 4, 1});
  CHECK(parsed->logit_bias->at(7) == -1.5);
  CHECK(parsed->stream_options->include_usage);
}

TEST_CASE("a number as a text has the range of its field") {
  const auto refusal = [](const char* name, const Json& value) {
    Json body = {{"messages", {{{"role", "user"}, {"content", "x"}}}}};
    body[name] = value;
    return ParseChatRequest(body).status();
  };
  CHECK(refusal("top_p", "1.5").message().rfind("top_p must be in (0, 1], got 1.5", 0) == 0);
  CHECK(refusal("top_p", "1.5").param() == "top_p");
  CHECK(refusal("n", "0").param() == "n");
  CHECK(refusal("top_p", "NaN").param() == "body.top_p");
  CHECK(refusal("top_p", "NaN").message().find("must be a number, got a string") !=
        std::string::npos);
  CHECK(refusal("max_tokens", "5.5").param() == "body.max_tokens");
  CHECK(refusal("logprobs", 2).param() == "body.logprobs");
  CHECK(refusal("stream", 0.5).param() == "body.stream");
  CHECK(refusal("cache_salt", 5).param() == "body.cache_salt");
}

}  // namespace
}  // namespace tandem
