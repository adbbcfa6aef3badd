// Hostile chat templates: whatever a file holds, compiling and rendering it ends soon, with a text
// or a Status.

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <vector>

#include "frontend/chat/chat_template.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using nlohmann::ordered_json;

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

const std::vector<std::string>& Sources() {
  static const std::vector<std::string> sources = [] {
    std::vector<std::string> list;
    const std::string folder = TANDEM_GOLDEN_DIR "/chat_templates/";
    std::vector<std::filesystem::path> paths;
    for (const auto& entry : std::filesystem::directory_iterator(folder + "templates")) {
      paths.push_back(entry.path());
    }
    std::sort(paths.begin(), paths.end());
    for (const auto& path : paths) list.push_back(ReadFile(path));
    const auto snippets = ordered_json::parse(ReadFile(folder + "snippets.json"));
    for (const auto& item : snippets["cases"]) list.push_back(item["template"]);
    return list;
  }();
  return sources;
}

const ordered_json& Conversations() {
  static const ordered_json conversations =
      ordered_json::parse(ReadFile(TANDEM_GOLDEN_DIR "/chat_templates/conversations.json"));
  return conversations["conversations"];
}

ChatTemplateLimits TightLimits() {
  ChatTemplateLimits limits;
  limits.max_steps = 100'000;
  limits.max_output_bytes = 1 << 20;
  limits.max_value_bytes = 8 << 20;
  return limits;
}

void CompileAndRender(const std::string& source, const ordered_json& conversation) {
  const auto compiled = ChatTemplate::Compile(source, TightLimits());
  if (!compiled.ok()) {
    REQUIRE_FALSE(compiled.status().message().empty());
    return;
  }
  ChatTemplateInput input;
  input.messages = &conversation["messages"];
  input.kwargs = &conversation["vars"];
  input.add_generation_prompt = true;
  const auto text = compiled->Render(input);
  if (!text.ok()) REQUIRE_FALSE(text.status().message().empty());
}

TEST_CASE("ChatTemplate survives damaged templates") {
  const uint32_t seed = GENERATE(range(1u, 3001u));
  CAPTURE(seed);
  std::mt19937 random(seed);
  const auto draw = [&](size_t end) {
    return end == 0 ? 0 : std::uniform_int_distribution<size_t>(0, end - 1)(random);
  };
  const auto& sources = Sources();
  std::string source = sources[draw(sources.size())];
  for (size_t edits = 1 + draw(4); edits > 0; --edits) {
    const size_t pos = draw(source.size() + 1);
    const size_t size = draw(std::min<size_t>(source.size() - pos, 40) + 1);
    switch (draw(4)) {
      case 0:  // cut
        source.erase(pos, size);
        break;
      case 1:  // repeat
        source.insert(pos, source.substr(pos, size));
        break;
      case 2: {  // a piece of another template
        const std::string& other = sources[draw(sources.size())];
        const size_t from = draw(other.size());
        source.insert(pos, other.substr(from, draw(60)));
        break;
      }
      default: {  // a token out of place
        static const std::vector<std::string> kTokens = {
            "{{",   "}}",     "{%", "%}",        "{#",         "#}",     "-%}",   "'",
            "(",    ")",      "[",  "]",         "{",          "}",      "|",     ".",
            ",",    ":",      "~",  "*",         "**",         " if ",   " not ", " in ",
            " is ", "else",   "0",  "-1",        "[::0]",      "[::-1]", "1e999", "\\",
            "loop", "caller", "()", "|tojson",   "|list",      "\xFF",   "\xC3",  "999999999999",
            "set ", "for ",   "%",  "|map('d')", "namespace()"};
        source.insert(pos, kTokens[draw(kTokens.size())]);
      }
    }
  }
  CompileAndRender(source, Conversations()[draw(Conversations().size())]);
}

TEST_CASE("ChatTemplate survives random expressions") {
  const uint32_t seed = GENERATE(range(1u, 3001u));
  CAPTURE(seed);
  std::mt19937 random(seed);
  static const std::vector<std::string> kWords = {"messages",
                                                  "messages[0]",
                                                  ".content",
                                                  ".role",
                                                  "|length",
                                                  "|list",
                                                  "|tojson(indent=1)",
                                                  "|join",
                                                  "|sort",
                                                  "|first",
                                                  "|last",
                                                  "|reverse",
                                                  "|map('upper')",
                                                  "|sum",
                                                  "|int",
                                                  "|float",
                                                  "|string",
                                                  "|trim",
                                                  "|unique",
                                                  "|groupby('role')",
                                                  "|items",
                                                  "[1,2]",
                                                  "{'a': 1}",
                                                  "(1,)",
                                                  "()",
                                                  "'x'",
                                                  "''",
                                                  "0",
                                                  "-1",
                                                  "2.5",
                                                  "none",
                                                  "true",
                                                  "undefined",
                                                  "range(5)",
                                                  "dict(a=1)",
                                                  "namespace(a=1)",
                                                  ".a",
                                                  "[0]",
                                                  "[-1]",
                                                  "[1:]",
                                                  "[::-1]",
                                                  "['a']",
                                                  "+",
                                                  "-",
                                                  "*",
                                                  "/",
                                                  "//",
                                                  "%",
                                                  "**",
                                                  "~",
                                                  "==",
                                                  "<",
                                                  " in ",
                                                  " and ",
                                                  " or ",
                                                  " not ",
                                                  "(",
                                                  ")",
                                                  " if ",
                                                  " else ",
                                                  " is none",
                                                  " is string",
                                                  ".items()",
                                                  ".split()",
                                                  ".get('a')",
                                                  ".format(1)",
                                                  "|format(1)",
                                                  "|batch(2)",
                                                  "|slice(2)",
                                                  "|indent",
                                                  "|replace('a','b')",
                                                  "|round(1)",
                                                  "|default(1)",
                                                  "|selectattr('role')",
                                                  "|max",
                                                  "|dictsort"};
  std::string source = "{{ ";
  for (size_t n = 1 + random() % 9; n > 0; --n) source += kWords[random() % kWords.size()];
  source += " }}";
  CAPTURE(source);
  CompileAndRender(source, Conversations()[random() % Conversations().size()]);
}

}  // namespace
}  // namespace tandem
