// The recorded bodies of tests/golden/parsers/validation.json: which of them vLLM accepts, and what
// it answers to the others.

#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>

#include "frontend/api/error.h"
#include "tests/support/api_model.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using nlohmann::json;

ApiModel MakeModel() {
  InputConfig config;
  config.parsers = ChooseParsers("hermes", "qwen3", "").value();
  return ApiModel(std::move(config));
}

// Where this server differs, and why.
struct Difference {
  std::string_view name;
  enum class In { kWords, kOutcome } in;
};
constexpr Difference kDifferences[] = {
    {"both_generation_flags", Difference::In::kWords},  // names a field
    {"thinking_budget_bad", Difference::In::kWords},    // those of every field's range
    {"rf_tag_bad", Difference::In::kOutcome},           // the engine's grammars refuse it
    {"so_choice_empty", Difference::In::kOutcome},      // refused: nothing could be generated
};

bool Differs(std::string_view name, Difference::In in) {
  for (const Difference& row : kDifferences) {
    if (row.name == name && row.in == in) return true;
  }
  return false;
}

// vLLM repeats the field, and its value, at the end.
std::string WithoutParameter(const std::string& message) {
  return message.substr(0, message.find(" (parameter="));
}

// Refused by vLLM's own checks, by the form of its fields, or later, by its engine.
void CheckError(const json& recorded, const ApiError& error) {
  CHECK(error.http_status == 400);
  if (recorded.value("kind", "") == "schema") {
    CHECK(error.type == recorded["body_out"]["error"]["type"]);
    CHECK(error.param == recorded["body_out"]["error"]["param"]);
    return;
  }
  CHECK(error.type == "BadRequestError");
  if (Differs(recorded["name"].get<std::string>(), Difference::In::kWords)) return;
  const bool is_late = recorded.contains("then");
  if (is_late) {  // the recorded message is cut off
    CHECK(error.message.rfind(recorded["then"]["message"].get<std::string>(), 0) == 0);
    return;
  }
  CHECK(WithoutParameter(error.message) == WithoutParameter(recorded["message"]));
  CHECK(error.param == (recorded["param"].is_null() ? "" : recorded["param"]));
}

TEST_CASE("bodies with tools and formats are accepted and refused as recorded") {
  const ApiModel model = MakeModel();
  std::ifstream file(TANDEM_GOLDEN_DIR "/parsers/validation.json");
  const json recorded = json::parse(file);
  REQUIRE(recorded["cases"].size() == 32);
  for (const json& test : recorded["cases"]) {
    CAPTURE(test["name"].get<std::string>());
    const auto prepared = model.Prepare("/v1/chat/completions", test["body"].dump());
    INFO(prepared.status().ToString());
    const bool ok = test["ok"].get<bool>() && !test.contains("then");
    const bool differs = Differs(test["name"].get<std::string>(), Difference::In::kOutcome);
    CHECK(prepared.ok() == (ok != differs));
    if (!ok && !prepared.ok()) CheckError(test, ToApiError(prepared.status()));
  }
}

}  // namespace
}  // namespace tandem
