#include "deploy/cli/bench/completion_reader.h"

#include <string>
#include <vector>

#include "frontend/web/http_response.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

// A whole response fed in pieces; piece i arrives at time 10 + i, the request was sent at 10.
struct Fed {
  Status status;
  RequestOutcome outcome;
  bool keep_alive = false;
};

Fed Feed(const std::vector<std::string_view>& pieces) {
  Fed fed;
  fed.outcome.start = 10;
  CompletionReader reader(&fed.outcome);
  double now = 10;
  HttpResponse* reading = nullptr;
  HttpResponse response([&](std::string_view piece) {
    return reader.Take(reading->status_code(), reading->is_event_stream(), piece, now);
  });
  reading = &response;
  for (const std::string_view piece : pieces) {
    fed.status = response.Feed(piece);
    if (!fed.status.ok()) return fed;
    ++now;
  }
  if (!response.done()) fed.status = response.End();
  if (!fed.status.ok()) return fed;
  fed.status = reader.Finish(response.status_code(), response.reason(), now);
  fed.keep_alive = response.keep_alive();
  return fed;
}

std::string Chunked(const std::vector<std::string>& parts) {
  std::string text =
      "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
      "Transfer-Encoding: chunked\r\n\r\n";
  for (const std::string& part : parts) {
    char size[16];
    std::snprintf(size, sizeof size, "%zx", part.size());
    text += size + ("\r\n" + part) + "\r\n";
  }
  return text + "0\r\n\r\n";
}

const char kUsage[] =
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":3,"
    "\"prompt_tokens_details\":{\"completion_tokens\":99}}}\n\n";

TEST_CASE("A response has the same outcome wherever its bytes are cut") {
  const std::string whole = Chunked({
      "data:{\"choices\":[{\"index\":0,\"text\":\"a\\u00e9\"}]}\r\n\r\n",
      ": keep-alive\n\ndata: {\"choices\":[{\"text\":\"\"}],\n",
      "data: \"id\":\"x\"}\n\nevent: message\ndata: "
      "{\"choices\":[{\"text\":\"b\"}],\"usage\":null}\n\n",
      kUsage,
      "data: [DONE]\n\n",
  });
  const auto check = [](const Fed& fed) {
    REQUIRE(fed.status.ok());
    REQUIRE(fed.outcome.success);
    REQUIRE(fed.outcome.text == "a\u00e9b");
    REQUIRE(fed.outcome.itl.size() == 2);
    REQUIRE(fed.outcome.output_tokens == 3);
    REQUIRE(fed.outcome.prompt_tokens == 5);
    REQUIRE(fed.keep_alive);
  };
  check(Feed({whole}));
  const std::string_view bytes = whole;
  for (size_t first = 1; first < bytes.size(); ++first) {
    CAPTURE(first);
    const Fed two = Feed({bytes.substr(0, first), bytes.substr(first)});
    check(two);
    for (size_t second = first + 1; second < bytes.size(); second += 11) {
      check(Feed(
          {bytes.substr(0, first), bytes.substr(first, second - first), bytes.substr(second)}));
    }
  }
  std::vector<std::string_view> single;
  for (size_t i = 0; i < bytes.size(); ++i) single.push_back(bytes.substr(i, 1));
  check(Feed(single));
}

TEST_CASE("TTFT is the first chunk with choices, latency ends at the last one") {
  const std::string head =
      "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";
  const Fed fed = Feed({
      head,                                                                               // at 10
      ": ping\n\ndata: {\"choices\":[]}\n\n",                                             // at 11
      "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n",  // at 12
      "data: {\"choices\":[{\"delta\":{\"content\":\"x\"}},{\"delta\":{\"content\":\"y\"}}]}\n\n",
      "data: {\"choices\":[{\"delta\":{\"content\":\"z\"}}]}\n\n",  // at 14
      kUsage,                                                       // at 15
      "data: [DONE]\n\n",
  });
  REQUIRE(fed.status.ok());
  CHECK(fed.outcome.ttft == 2);
  CHECK(fed.outcome.itl == std::vector<double>{1, 1});
  CHECK(fed.outcome.latency == 4);
  CHECK(fed.outcome.text == "xz");
  CHECK_FALSE(fed.keep_alive);
}

TEST_CASE("One JSON body in place of a stream counts as one chunk") {
  const std::string body =
      R"({"choices":[{"message":{"content":"hi"}}],"usage":{"completion_tokens":4,"prompt_tokens":2}})";
  const Fed fed = Feed({"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: " +
                        std::to_string(body.size()) + "\r\n\r\n" + body});
  REQUIRE(fed.status.ok());
  CHECK(fed.outcome.output_tokens == 4);
  CHECK(fed.outcome.text == "hi");
  CHECK(fed.outcome.latency == fed.outcome.ttft);
}

TEST_CASE("A broken response is a failure with its reason") {
  const std::pair<std::string, std::string> failures[] = {
      {"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 4\r\n\r\nboom",
       "HTTP 500 Internal Server Error: boom"},
      {"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/event-stream\r\nContent-Length: "
       "4\r\n\r\nbusy",
       "HTTP 503 Service Unavailable: busy"},
      {Chunked({"data: {\"choices\":[{\"text\":\"a\"}\n\n"}), "malformed chunk"},
      {Chunked({"data: 5\n\n"}), "malformed chunk"},
      {Chunked({"data: {\"choices\":[]}\n\n", "data: [DONE]\n\n"}), "no chunk with choices"},
      {Chunked({}), "no chunk with choices"},
      {Chunked({"data: {\"choices\":[{\"text\":\"a\"}]}\n\n",
                "data: {\"error\":{\"message\":\"engine died\",\"code\":500}}\n\n"}),
       "engine died"},
      {Chunked({"data: {\"error\":\"plain\"}\n\n"}), "plain"},
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: "
       "text/event-stream\r\n\r\n20\r\ndata: {\"cho",
       "in the middle of the response"},
      {"HTTP/1.1 200 OK\r\nContent-Len", "in the middle of the response"},
      {"SSH-2.0-OpenSSH\r\n\r\n", "not HTTP"},
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "not HTTP"},
  };
  for (const auto& [bytes, words] : failures) {
    CAPTURE(bytes);
    const Fed fed = Feed({bytes});
    CHECK_FALSE(fed.status.ok());
    CHECK_FALSE(fed.outcome.success);
    CHECK_THAT(fed.status.message(), Catch::Contains(words));
  }
  CHECK_THAT(Feed({}).status.message(), Catch::Contains("without a response"));
}

TEST_CASE("Vectors and scores are counted, and are there when the response is") {
  const auto whole = [](const std::string& body) {
    return "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: " +
           std::to_string(body.size()) + "\r\n\r\n" + body;
  };
  const Fed vectors = Feed({whole(
      R"({"data": [{"embedding": [0.5, 1]}, {"embedding": "AAAA"}], "usage": {"prompt_tokens": 9}})")});
  REQUIRE(vectors.status.ok());
  CHECK(vectors.outcome.num_results == 2);
  CHECK(vectors.outcome.prompt_tokens == 9);
  CHECK(vectors.outcome.output_tokens == 0);
  CHECK(vectors.outcome.text.empty());
  CHECK(vectors.outcome.ttft == vectors.outcome.latency);
  const Fed scores = Feed(
      {whole(R"({"results": [{"index": 1, "document": {"text": "a"}, "relevance_score": 1}]})")});
  REQUIRE(scores.status.ok());
  CHECK(scores.outcome.num_results == 1);
  CHECK_FALSE(Feed({whole(R"({"data": []})")}).status.ok());
}

}  // namespace
}  // namespace tandem
