#include "deploy/cli/offline/batch_file.h"

#include <nlohmann/json.hpp>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

std::string Line(const std::string& id, const std::string& url = "/v1/completions",
                 const std::string& body = R"({"prompt": "x\u2028y"})") {
  return R"({"custom_id": ")" + id + R"(", "method": "POST", "url": ")" + url + R"(", "body": )" +
         body + "}";
}

std::string Refusal(const std::string& text) {
  const auto requests = ParseBatchInput(text);
  REQUIRE_FALSE(requests.ok());
  return requests.status().message();
}

TEST_CASE("Requests are read line by line, blank lines skipped") {
  const auto requests = ParseBatchInput(Line("a") + "\n\n  \r\n" + Line("b") + "\r\n" + Line("c"));
  REQUIRE(requests.ok());
  REQUIRE(requests->size() == 3);
  CHECK((*requests)[0].custom_id == "a");
  CHECK((*requests)[0].url == "/v1/completions");
  CHECK(Json::parse((*requests)[0].body)["prompt"] == "x\u2028y");
  CHECK((*requests)[2].custom_id == "c");
  CHECK((*requests)[2].refusal.empty());
  CHECK(ParseBatchInput("")->empty());
}

TEST_CASE("One bad line refuses the whole file by its number") {
  CHECK(Refusal(Line("a") + "\n{\n") == "Invalid request on line 2: not a JSON object");
  CHECK(Refusal("\n[1]") == "Invalid request on line 2: not a JSON object");
  CHECK(Refusal(R"({"custom_id": 1})") == "Invalid request on line 1: custom_id must be a string");
  CHECK(Refusal(R"({"custom_id": "a", "method": "GET", "url": "/v1/models"})") ==
        "Invalid request on line 1: method must be POST");
  CHECK(Refusal(Line("a", "/v1/completions", "[]")) ==
        "Invalid request on line 1: body must be an object");
  CHECK(Refusal(Line("a") + "\n" + Line("a")) == "custom_id \"a\" occurs twice");
}

TEST_CASE("A request that no server takes has its refusal as result") {
  const auto requests = ParseBatchInput(Line("a", "/v2/x") + "\n" +
                                        Line("b", "/v1/responses", R"({"stream": true})"));
  REQUIRE(requests.ok());
  CHECK_THAT((*requests)[0].refusal, Catch::StartsWith("URL /v2/x is not a supported endpoint."));
  CHECK((*requests)[1].refusal == "Request must not be sent in stream mode");
  const Json line = Json::parse(BatchOutputLine((*requests)[1], {}).text);
  CHECK(line["custom_id"] == "b");
  CHECK(line["response"]["status_code"] == 400);
  CHECK(line["response"]["body"].is_null());
  CHECK(line["error"] == "Request must not be sent in stream mode");
}

TEST_CASE("A stream is refused however the API would read it") {
  const auto refusal = [](const std::string& stream) {
    return ParseBatchInput(Line("a", "/v1/completions", R"({"stream": )" + stream + "}"))
        ->front()
        .refusal;
  };
  for (const char* yes : {"true", "1", "1.0", R"("true")", R"("On")", R"("1")"}) {
    CHECK(refusal(yes) == "Request must not be sent in stream mode");
  }
  for (const char* no : {"false", "null", "0", R"("no")", R"("zork")", "[]"}) {
    CHECK(refusal(no).empty());
  }
}

TEST_CASE("A body that the server would not read to its end is refused, the others are sent") {
  auto requests = ParseBatchInput(Line("a", "/v1/completions", R"({"prompt": "12345678"})") + "\n" +
                                  Line("b", "/v1/completions", "{}") + "\n" +
                                  Line("c", "/v2/x", R"({"prompt": "12345678"})"));
  REQUIRE(requests.ok());
  RefuseLargeBodies(0, &*requests);
  CHECK((*requests)[0].refusal.empty());
  RefuseLargeBodies(21, &*requests);
  CHECK((*requests)[0].refusal.empty());
  RefuseLargeBodies(20, &*requests);
  CHECK((*requests)[0].refusal ==
        "the body has 21 bytes; at most 20 are allowed (--max-request-body-bytes)");
  CHECK((*requests)[1].refusal.empty());
  CHECK_THAT((*requests)[2].refusal, Catch::StartsWith("URL /v2/x"));
}

TEST_CASE("A response that is no JSON is an error, and its line is JSON") {
  const BatchRequest request{"a", "/v1/completions", "{}", ""};
  const Json line = Json::parse(BatchOutputLine(request, {200, "data: {}"}).text);
  CHECK(line["response"]["body"].is_null());
  CHECK(line["error"] == "The response is not JSON, which the output file consists of");
}

TEST_CASE("Lines of results have vLLM's form") {
  const BatchRequest request{"a", "/v1/embeddings", "{}", ""};
  const std::string text = BatchOutputLine(request, {200, R"({"z": 1, "a": [2]})"}).text;
  CHECK(text.ends_with("}\n"));
  const Json line = Json::parse(text);
  CHECK(line.begin().key() == "id");
  CHECK(line["id"].get<std::string>().size() == 5 + 32);
  CHECK(line["response"]["status_code"] == 200);
  CHECK(line["response"]["request_id"].get<std::string>().starts_with("vllm-batch-"));
  CHECK(line["response"]["body"].dump() == R"({"z":1,"a":[2]})");
  CHECK(line["error"].is_null());

  const std::string error = R"({"error":{"message":"m","type":"t","param":null,"code":400}})";
  const Json failed = Json::parse(BatchOutputLine(request, {400, error}).text);
  CHECK(failed["response"]["status_code"] == 400);
  CHECK(failed["response"]["body"].is_null());
  CHECK(failed["error"].dump() == error);
  const Json lacking =
      Json::parse(BatchOutputLine(request, {404, R"({"detail":"Not Found"})"}).text);
  CHECK(lacking["error"] == "Model does not support endpoint: /v1/embeddings");
  CHECK(lacking["response"]["status_code"] == 400);
  CHECK(Json::parse(BatchOutputLine(request, {502, "\xff"}).text)["error"].is_string());
  // Numbers of /v1/embeddings with encoding_format bytes are no JSON.
  CHECK(BatchOutputLine(request, {200, "\x01\x02"}).is_error);
  CHECK(BatchOutputLine(request, {404, "{}"}).is_error);
  CHECK_FALSE(BatchOutputLine(request, {200, "{}"}).is_error);
}

TEST_CASE("A cut last line of the output does not count") {
  const BatchRequest request{"a", "/v1/completions", "{}", ""};
  const std::string whole = BatchOutputLine(request, {200, "{}"}).text;
  for (const size_t cut : {size_t{0}, size_t{1}, whole.size() / 2, whole.size() - 1}) {
    const auto state = ReadBatchOutput(whole + whole.substr(0, cut));
    REQUIRE(state.ok());
    CHECK(state->done == std::set<std::string>{"a"});
    CHECK(state->num_whole_bytes == static_cast<int64_t>(whole.size()));
  }
  CHECK(ReadBatchOutput("")->num_whole_bytes == 0);
  CHECK(ReadBatchOutput("{\"cus")->num_whole_bytes == 0);
  CHECK_THAT(ReadBatchOutput("hello\n").status().message(),
             Catch::StartsWith("line 1 is no result of a batch"));
}

}  // namespace
}  // namespace tandem
