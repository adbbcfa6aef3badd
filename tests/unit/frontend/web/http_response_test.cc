#include "frontend/web/http_response.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

struct Read {
  Status status;
  bool is_done = false;
  std::string body;
};

Read ReadInPieces(std::string_view bytes, size_t piece_bytes) {
  Read read;
  HttpResponse response([&](std::string_view piece) {
    read.body += piece;
    return OkStatus();
  });
  while (!bytes.empty() && read.status.ok()) {
    read.status = response.Feed(bytes.substr(0, piece_bytes));
    bytes.remove_prefix(std::min(piece_bytes, bytes.size()));
  }
  read.is_done = response.done();
  return read;
}

TEST_CASE("HttpResponse reads chunks of any size in pieces of any size") {
  const std::string head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (const auto& [chunks, body] : std::vector<std::pair<std::string, std::string>>{
           {"0\r\n\r\n", ""},
           {"1\r\na\r\n0\r\n\r\n", "a"},
           {"1;x=y\r\na\r\n3\r\nbcd\r\n0\r\nTrailer: 1\r\n\r\n", "abcd"},
       }) {
    for (size_t piece_bytes = 1; piece_bytes <= head.size() + chunks.size(); ++piece_bytes) {
      CAPTURE(chunks, piece_bytes);
      const Read read = ReadInPieces(head + chunks, piece_bytes);
      CHECK(read.status.ok());
      CHECK(read.is_done);
      CHECK(read.body == body);
    }
  }
}

TEST_CASE("HttpResponse knows headers by their names in small letters") {
  HttpResponse response([](std::string_view) { return OkStatus(); });
  REQUIRE(response
              .Feed("HTTP/1.1 404 Gone Away\r\nContent-TYPE: text/event-stream\r\n"
                    "Content-Length: 0\r\n\r\n")
              .ok());
  CHECK(response.done());
  CHECK(response.status_code() == 404);
  CHECK(response.reason() == "Gone Away");
  CHECK(response.Header("content-type") == "text/event-stream");
  CHECK(response.Header("x-none").empty());
  CHECK(response.is_event_stream());
}

TEST_CASE("HttpResponse ends with the error that the body's reader returns") {
  HttpResponse response([](std::string_view) { return CancelledError("enough"); });
  const Status status = response.Feed("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc");
  CHECK(status.code() == StatusCode::kCancelled);
  HttpResponse other([](std::string_view) { return OkStatus(); });
  CHECK(other.Feed("SSH-2.0-x\r\n").code() == StatusCode::kDataLoss);
}

}  // namespace
}  // namespace tandem
