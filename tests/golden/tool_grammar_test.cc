// The recorded grammars of tests/golden/parsers/tool_requests.json.gz: what vLLM holds a model to,
// for each format of calls and each kind of request. Compared as JSON. With TANDEM_GOLDENS every
// format.

#include "frontend/parsers/tool_grammar.h"
#include "tests/support/files/golden_folders.h"
#include "tests/support/gzip/gzip_lines.h"

#include <string>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;
using Choice = MessageFormat::Choice;

Json ReadRecorded() {
  std::string path = std::string(TANDEM_GOLDEN_DIR) + "/parsers/tool_requests.json";
  if (const auto more = WholeGoldens()) path = *more + "/tool_parsers/requests.json";
  INFO(path);
  return Json::parse(ReadGzipText(path));
}

// The request's response_format, as the API's structured_outputs.
Json OwnOf(const Json& request) {
  if (!request.contains("response_format")) return nullptr;
  const Json& format = request["response_format"];
  if (format["type"] == "json_object") return {{"json_object", true}};
  return {{"json", format["json_schema"]["schema"]}};
}

ToolGrammarInput InputOf(const std::string& family, const Json& request) {
  ToolGrammarInput in;
  in.parser = FindToolParser(family == "mistral_v3" ? "mistral" : family);
  REQUIRE(in.parser != nullptr);
  in.is_harmony = family == "openai";
  in.own = OwnOf(request);
  if (!request.contains("tools")) return in;
  in.tools = &request["tools"];
  in.choice = Choice::kAuto;
  if (request.contains("tool_choice")) {
    const Json& choice = request["tool_choice"];
    if (choice == "none") in.choice = Choice::kNone;
    if (choice == "required") in.choice = Choice::kRequired;
    if (choice.is_object()) {
      in.choice = Choice::kNamed;
      in.named_tool = choice["function"]["name"].get_ref<const std::string&>();
    }
  }
  in.parallel_calls = request.value("parallel_tool_calls", true);
  return in;
}

// vLLM holds gemma4 to nothing; ours to its names and form wherever other formats are held.
bool HoldsMore(const std::string& family, const Json& request) {
  if (family != "gemma4" || !request.contains("tools")) return false;
  const Json choice = request.value("tool_choice", Json("auto"));
  if (choice != "auto") return choice != "none";
  const bool strict = request["tools"][0]["function"].value("strict", false);
  return strict || !request.value("parallel_tool_calls", true);
}

TEST_CASE("a request with tools needs the grammar that was recorded") {
  const Json recorded = ReadRecorded();
  for (const Json& test : recorded["cases"]) {
    const auto family = test["family"].get<std::string>();
    const auto name = test["request"].get<std::string>();
    INFO(family << " " << name);
    const StatusOr<ToolGrammar> grammar =
        MakeToolGrammar(InputOf(family, recorded["requests"][name]));
    REQUIRE(grammar.ok());
    nlohmann::json expected = test.value("structured_outputs", Json(nullptr));
    // Ours holds this format to one call too: of a second one that is cut off the text would show.
    const bool is_list = family.starts_with("mistral") && name == "required_single";
    if (is_list) expected["json"]["maxItems"] = 1;
    const nlohmann::json got = grammar->structured_outputs;
    if (HoldsMore(family, recorded["requests"][name])) {
      CHECK(got.dump().find("<|tool_call>call:") != std::string::npos);
      continue;
    }
    CHECK(got == expected);
  }
}

}  // namespace
}  // namespace tandem
