// Runs the text files of tests/cases/templates; tests/cases/README.md describes their form.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "frontend/chat/chat_template.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

struct Case {
  std::string title;
  std::string source;
  std::string variables;
  std::string kind;  // "renders" or "fails"
  std::string expectation;
};

std::vector<Case> ReadCases(const std::filesystem::path& file) {
  std::vector<Case> cases;
  std::string* part = nullptr;
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) {
    if (line.rfind("== ", 0) == 0) {
      cases.push_back({line.substr(3), {}, {}, {}, {}});
      part = &cases.back().source;
    } else if (line == "-- with" && part != nullptr) {
      part = &cases.back().variables;
    } else if ((line == "-- renders" || line == "-- fails") && part != nullptr) {
      cases.back().kind = line.substr(3);
      part = &cases.back().expectation;
    } else if (part != nullptr) {
      *part += line + "\n";
    }
  }
  for (Case& item : cases) {
    // The blank line before the next case and the last line end belong to the file, not the text.
    for (std::string* text : {&item.source, &item.expectation}) {
      while (!text->empty() && text->back() == '\n') text->pop_back();
    }
  }
  return cases;
}

TEST_CASE("Template cases render or fail as expected") {
  std::vector<std::filesystem::path> files;
  for (const auto& entry :
       std::filesystem::directory_iterator(TANDEM_SOURCE_DIR "/tests/cases/templates")) {
    files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  REQUIRE_FALSE(files.empty());
  for (const auto& file : files) {
    for (const Case& item : ReadCases(file)) {
      INFO(file.filename().string() << ": " << item.title);
      const auto variables = nlohmann::ordered_json::parse(
          item.variables.empty() ? std::string("{}") : item.variables);
      StatusOr<std::string> result = InvalidArgumentError("not rendered");
      if (auto compiled = ChatTemplate::Compile(item.source); compiled.ok()) {
        result = compiled->RenderVariables(variables, 0);
      } else {
        result = compiled.status();
      }
      if (item.kind == "renders") {
        INFO(result.status().ToString());
        REQUIRE(result.ok());
        CHECK(*result == item.expectation);
      } else {
        REQUIRE(item.kind == "fails");
        REQUIRE_FALSE(result.ok());
        CHECK(result.status().message() == item.expectation);
      }
    }
  }
}

}  // namespace
}  // namespace tandem
