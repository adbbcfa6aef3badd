// Runs the text files of tests/cases/api; tests/cases/README.md describes their form.

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "common/strings.h"
#include "frontend/api/error.h"
#include "frontend/api/tokenize.h"
#include "tests/support/api_model.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using nlohmann::json;

struct Case {
  std::string title;
  std::string path;
  std::string body;
  std::string kind;         // "lowers", "same prompt as", "answers", or "<status> <type> <param>"
  std::string expectation;  // the lines after it
};

std::vector<Case> ReadCases(const std::filesystem::path& file) {
  std::vector<Case> cases;
  enum { kBefore, kRequest, kBody, kKind, kExpectation } at = kBefore;
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) {
    if (line.rfind("== ", 0) == 0) {
      cases.push_back({line.substr(3), {}, {}, {}, {}});
      at = kRequest;
    } else if (at == kRequest) {
      cases.back().path = line.substr(line.find(' ') + 1);
      at = kBody;
    } else if (at == kBody && line == "--") {
      at = kKind;
    } else if (at == kBody) {
      cases.back().body += line + "\n";
    } else if (at == kKind) {
      cases.back().kind = line;
      at = kExpectation;
    } else if (at == kExpectation && !line.empty() && line[0] != '#') {
      cases.back().expectation += line + "\n";
    }
  }
  return cases;
}

// Compares objects by the expected keys only; null stands for an absent key.
void CheckSubset(const json& expected, const json& actual) {
  for (const auto& [key, value] : expected.items()) {
    CAPTURE(key);
    const json found = actual.contains(key) ? actual[key] : json(nullptr);
    if (value.is_object() && found.is_object()) {
      CheckSubset(value, found);
    } else {
      CHECK(found == value);
    }
  }
}

void CheckLowered(const Case& c, const PreparedRequest& prepared) {
  json expected = json::parse(c.expectation);
  const auto& requests = prepared.processed.requests;
  if (expected.contains("requests")) CHECK(requests.size() == expected["requests"]);
  expected.erase("requests");
  json retired = json::array();
  for (const RetiredField& field : prepared.retired_fields) retired.push_back(field.name);
  CHECK(retired == expected.value("retired", json::array()));
  expected.erase("retired");
  for (size_t i = 1; i < requests.size(); ++i) {
    const std::string key = "request." + std::to_string(i);
    if (!expected.contains(key)) continue;
    CheckSubset(expected[key], json::parse(DescribeRequest(requests[i])));
    expected.erase(key);
  }
  CheckSubset(expected, json::parse(DescribeRequest(requests.at(0))));
}

void CheckRefused(const Case& c, const Status& status) {
  const ApiError error = ToApiError(status);
  std::istringstream words(c.kind);
  int http_status = 0;
  std::string type;
  std::string param;
  words >> http_status >> type >> param;
  CHECK(error.http_status == http_status);
  CHECK(error.type == (type == "Bad_Request" ? "Bad Request" : type));
  CHECK(error.param == (param == "-" ? "" : param));
  for (const std::string_view line : Split(c.expectation, '\n')) {
    CHECK(error.message.find(line) != std::string::npos);
  }
}

// LONG*n stands for n times the letter a.
std::string Expand(const std::string& body) {
  const size_t at = body.find("LONG*");
  if (at == std::string::npos) return body;
  const size_t end = body.find_first_not_of("0123456789", at + 5);
  const size_t count = std::stoul(body.substr(at + 5, end - at - 5));
  return body.substr(0, at) + std::string(count, 'a') + body.substr(end);
}

void RunCase(const ApiModel& model, const Case& c) {
  if (c.path == "/tokenize" || c.path == "/detokenize") {
    const auto parsed = ParseJson(c.body);
    REQUIRE(parsed.ok());
    const auto answer = c.path == "/tokenize"
                            ? TokenizeBodyToJson(**parsed, model.input_processor(), model.options(),
                                                 ServedAdapters(), ApiModel::kMaxModelLen)
                            : DetokenizeBodyToJson(**parsed, model.input_processor(),
                                                   model.options(), ServedAdapters());
    INFO(answer.status().ToString());
    if (c.kind != "answers") return CheckRefused(c, answer.status());
    REQUIRE(answer.ok());
    return CheckSubset(json::parse(c.expectation), json::parse(*answer));
  }
  const auto prepared = model.Prepare(c.path, Expand(c.body));
  INFO(prepared.status().ToString());
  if (c.kind == "same prompt as") {
    const auto other = model.Prepare(c.path, c.expectation);
    INFO(other.status().ToString());
    REQUIRE((prepared.ok() && other.ok()));
    CHECK(prepared->processed.requests[0].prompt_token_ids ==
          other->processed.requests[0].prompt_token_ids);
    return;
  }
  if (c.kind != "lowers") return CheckRefused(c, prepared.status());
  REQUIRE(prepared.ok());
  CheckLowered(c, *prepared);
}

// As a server that is started with parsers, which clients' tools need.
InputConfig ParserInput() {
  InputConfig config;
  const auto parsers = ChooseParsers("hermes", "qwen3", "");
  REQUIRE(parsers.ok());
  config.parsers = *parsers;
  return config;
}

InputConfig PlainInput() {
  InputConfig config;
  config.enable_trace_replay = true;
  return config;
}

// A model that makes vectors. Each pair of texts may be encoded twice, and no more.
InputConfig PoolingInput() {
  InputConfig config;
  config.pooling.emplace().embedding_size = 64;
  return config;
}

TEST_CASE("API cases: every request has the expected outcome") {
  const ApiModel plain(PlainInput());
  const ApiModel with_parsers(ParserInput());
  const ApiModel pooling(PoolingInput());
  int num_cases = 0;
  for (const auto& file :
       std::filesystem::directory_iterator(TANDEM_SOURCE_DIR "/tests/cases/api")) {
    const std::string topic = file.path().stem();
    const ApiModel& model = topic == "clients"   ? with_parsers
                            : topic == "pooling" ? pooling
                                                 : plain;
    for (const Case& c : ReadCases(file.path())) {
      CAPTURE(file.path().filename().string(), c.title);
      RunCase(model, c);
      ++num_cases;
    }
  }
  CHECK(num_cases >= 140);
}

}  // namespace
}  // namespace tandem
