// Chat templates against what transformers (5.23.0, jinja2 3.1.6) rendered: whole templates over
// conversations, and one snippet per feature of the language.

#include <cstdlib>
#include <ctime>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "frontend/chat/chat_template.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kNow = 1741529107;  // 2025-03-09T14:05:07 UTC

std::string ReadFile(const std::string& path) {
  std::ifstream in(TANDEM_GOLDEN_DIR "/chat_templates/" + path);
  REQUIRE(in);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

void UseUtc() {
  setenv("TZ", "UTC", 1);
  tzset();
}

// raise_exception and transformers' own refusals speak to the client; other errors just fail.
void CheckResult(const ordered_json& golden, const StatusOr<std::string>& result) {
  if (!golden.contains("error")) {
    INFO(result.status().ToString());
    REQUIRE(result.ok());
    CHECK(*result == golden["output"].get<std::string>());
    return;
  }
  REQUIRE_FALSE(result.ok());
  if (golden["error"] == "TemplateError") {
    CHECK(result.status().message() == golden["message"].get<std::string>());
  }
}

TEST_CASE("ChatTemplate renders whole templates as transformers does") {
  UseUtc();
  const ordered_json goldens = ordered_json::parse(ReadFile("goldens.json"));
  const ordered_json conversations = ordered_json::parse(ReadFile("conversations.json"));
  std::map<std::string, const ordered_json*> by_name;
  for (const auto& item : conversations["conversations"]) by_name[item["name"]] = &item;
  std::map<std::string, std::string> special_tokens;
  for (const auto& [name, text] : goldens["base_vars"].items()) special_tokens[name] = text;

  std::map<std::string, ChatTemplate> templates;
  for (const auto& golden : goldens["cases"]) {
    const std::string name = golden["template"];
    const std::string conversation = golden["conversation"];
    CAPTURE(name, conversation, golden["options"].dump());
    if (templates.count(name) == 0) {
      auto compiled = ChatTemplate::Compile(ReadFile("templates/" + name + ".jinja"));
      INFO(compiled.status().ToString());
      REQUIRE(compiled.ok());
      templates.emplace(name, *std::move(compiled));
    }
    ordered_json vars = by_name.at(conversation)->at("vars");
    ChatTemplateInput input;
    input.messages = &by_name.at(conversation)->at("messages");
    ordered_json tools;
    ordered_json documents;
    if (vars.contains("tools")) input.tools = &(tools = vars["tools"]);
    if (vars.contains("documents")) input.documents = &(documents = vars["documents"]);
    vars.erase("tools");
    vars.erase("documents");
    input.kwargs = &vars;
    input.add_generation_prompt = golden["options"].value("add_generation_prompt", false);
    input.continue_final_message = golden["options"].value("continue_final_message", false);
    input.special_tokens = &special_tokens;
    input.now_s = kNow;
    CheckResult(golden, templates.at(name).Render(input));
  }
}

TEST_CASE("ChatTemplate renders snippets of every feature as jinja2 does") {
  UseUtc();
  const ordered_json snippets = ordered_json::parse(ReadFile("snippets.json"));
  for (const auto& golden : snippets["cases"]) {
    const std::string source = golden["template"];
    CAPTURE(source);
    const auto compiled = ChatTemplate::Compile(source);
    if (!compiled.ok()) {
      INFO(compiled.status().ToString());
      CHECK(golden.contains("error"));
      continue;
    }
    CheckResult(golden, compiled->RenderVariables(golden["context"], kNow));
  }
}

}  // namespace
}  // namespace tandem
