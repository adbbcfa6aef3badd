// Chat templates against what transformers (5.23.0, jinja2 3.1.6) rendered: whole templates over
// conversations, and one snippet per feature of the language.

#include <cstdlib>
#include <ctime>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "frontend/chat/chat_template.h"
#include "frontend/processing/input_processor.h"
#include "tests/support/gzip/gzip_lines.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kNow = 1741529107;  // 2025-03-09T14:05:07 UTC

std::string ReadFile(const std::string& path) {
  return ReadGzipText(TANDEM_GOLDEN_DIR "/chat_templates/" + path);
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

struct Goldens {
  ordered_json cases;
  std::map<std::string, ordered_json> conversations;
  std::map<std::string, std::string> special_tokens;
};

Goldens ReadGoldens() {
  const ordered_json goldens = ordered_json::parse(ReadFile("goldens.json"));
  Goldens read{goldens["cases"], {}, goldens["base_vars"]};
  const ordered_json conversations = ordered_json::parse(ReadFile("conversations.json"));
  for (const auto& item : conversations["conversations"]) {
    read.conversations[item["name"]] = item;
  }
  return read;
}

// The API's body that asks for the same prompt.
ordered_json BodyOf(const ordered_json& golden, const ordered_json& conversation) {
  ordered_json vars = conversation["vars"];
  ordered_json body = {
      {"messages", conversation["messages"]},
      {"chat_template", ReadFile("templates/" + golden["template"].get<std::string>() + ".jinja")},
      {"add_generation_prompt", golden["options"].value("add_generation_prompt", false)},
      {"continue_final_message", golden["options"].value("continue_final_message", false)}};
  for (const char* name : {"tools", "documents"}) {
    if (vars.contains(name)) body[name] = vars[name];
    vars.erase(name);
  }
  body["chat_template_kwargs"] = vars;
  return body;
}

// The clock of a request is the system's.
std::string WithToday(std::string text) {
  const std::time_t now = std::time(nullptr);
  for (const char* format : {"%d %b %Y", "%Y-%m-%d, %A %H:%M"}) {
    const auto at = [format](std::time_t time) {
      char shown[32];
      return std::string(shown, std::strftime(shown, sizeof shown, format, std::gmtime(&time)));
    };
    const std::string recorded = at(kNow);
    for (size_t i = text.find(recorded); i != std::string::npos; i = text.find(recorded)) {
      text.replace(i, recorded.size(), at(now));
    }
  }
  return text;
}

// Conversations that a request cannot bring to a template as they are.
struct Difference {
  enum class Outcome { kRefused, kOtherText };
  std::string_view conversation;
  std::string_view templates;  // empty: all
  Outcome outcome;
};
constexpr Difference kDifferences[] = {
    {"odd_role", "", Difference::Outcome::kRefused},
    {"parts", "", Difference::Outcome::kRefused},  // images
    // Several texts are joined by line ends, for these templates of one text.
    {"parts_text", "", Difference::Outcome::kOtherText},
    // Arguments that are a text become the object that it stands for.
    {"args_string", "commandr gptoss_like llama3_tools mistral_tools",
     Difference::Outcome::kOtherText},
    // A message without content has an empty one.
    {"builtin", "gemma llama2 phi", Difference::Outcome::kOtherText},
    {"tools_call", "phi", Difference::Outcome::kOtherText},
    {"bad_id", "phi", Difference::Outcome::kOtherText},
    // A developer is the system to templates that do not know the role.
    {"identity",
     "chatml_tools commandr deepseek_r1 gemma llama2 llama3_tools mistral_tools phi qwen3_thinking",
     Difference::Outcome::kOtherText}};

std::optional<Difference::Outcome> DifferenceOf(const ordered_json& golden) {
  for (const Difference& row : kDifferences) {
    if (golden["conversation"] != row.conversation) continue;
    const auto name = golden["template"].get<std::string>();
    if (row.templates.empty() || row.templates.find(name) != row.templates.npos) return row.outcome;
  }
  return std::nullopt;
}

TEST_CASE("a chat request renders what transformers renders") {
  UseUtc();
  const Goldens goldens = ReadGoldens();
  InputConfig config;
  config.trust_request_chat_template = true;
  const std::string tokenizer =
      R"({"model": {"type": "BPE", "vocab": {"<s>": 0, "</s>": 1}, "merges": []}})";
  const InputProcessor processor(
      config, Tokenizer::Parse(tokenizer, ordered_json(goldens.special_tokens).dump()).value(), {});
  int num_equal = 0;
  for (const auto& golden : goldens.cases) {
    const std::string name = golden["conversation"];
    CAPTURE(golden["template"].get<std::string>(), name, golden["options"].dump());
    const std::string expected = WithToday(golden.value("output", ""));
    auto request = ParseChatRequest(BodyOf(golden, goldens.conversations.at(name)));
    const auto text = request.ok() ? processor.RenderChat(*request) : request.status();
    INFO(text.status().ToString());
    const auto difference = DifferenceOf(golden);
    if (difference == Difference::Outcome::kOtherText) {
      CHECK(text.ok());
      CHECK((!text.ok() || *text != expected));
      continue;
    }
    if (difference == Difference::Outcome::kRefused || golden.contains("error")) {
      CHECK_FALSE(text.ok());
      continue;
    }
    REQUIRE(text.ok());
    if (*text != expected) CHECK(*text == WithToday(golden["output"]));  // a minute later
    ++num_equal;
  }
  CHECK(num_equal == 418);
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
