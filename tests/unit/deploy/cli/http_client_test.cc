#include "deploy/cli/http_client.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <thread>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Catch::Matchers::Contains;

// Long enough for what arrives, even on a busy machine.
constexpr HttpTimeouts kShort = {.connect_s = 60, .silence_s = 1};

// Listens on the loopback interface and sends what the test wants, or nothing.
class Listener {
 public:
  explicit Listener(int backlog = 8) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address_;
    REQUIRE(bind(fd_, Address(), size) == 0);
    REQUIRE(getsockname(fd_, Address(), &size) == 0);
    REQUIRE(listen(fd_, backlog) == 0);
  }
  ~Listener() { close(fd_); }
  Listener(const Listener&) = delete;
  int fd() const { return fd_; }
  sockaddr* Address() { return reinterpret_cast<sockaddr*>(&address_); }
  StatusOr<HttpClient> Client(HttpTimeouts timeouts) const {
    return HttpClient::ForUrl("http://127.0.0.1:" + std::to_string(ntohs(address_.sin_port)), "",
                              timeouts);
  }
  // Accepts one connection, sends `text` and keeps it open until the client leaves.
  std::thread Reply(const std::string& text) const {
    return std::thread([fd = fd_, text] {
      const int peer = accept(fd, nullptr, nullptr);
      char request[4096];
      ssize_t size = recv(peer, request, sizeof request, 0);
      send(peer, text.data(), text.size(), MSG_NOSIGNAL);
      while (size > 0) size = recv(peer, request, sizeof request, 0);
      close(peer);
    });
  }

 private:
  int fd_;
  sockaddr_in address_ = {};
};

TEST_CASE("HttpClient understands the usual forms of a URL and refuses others") {
  CHECK(HttpClient::ForUrl("http://127.0.0.1:8000", "").ok());
  CHECK(HttpClient::ForUrl("http://[::1]:8000/prefix/", "").ok());
  CHECK(HttpClient::ForUrl("https://x", "").status().code() == StatusCode::kInvalidArgument);
  CHECK_FALSE(HttpClient::ForUrl("http://", "").ok());
  CHECK_FALSE(HttpClient::ForUrl("http://host:", "").ok());
}

TEST_CASE("HttpClient returns a reply") {
  const Listener server;
  std::thread replies = server.Reply("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
  const auto reply = server.Client({})->Get("/x");
  replies.join();
  REQUIRE(reply.ok());
  CHECK(reply->status == 200);
  CHECK(reply->body == "hello");
}

TEST_CASE("HttpClient does not wait forever for a silent server") {
  const Listener server;  // its backlog lets clients connect; it accepts none
  const auto reply = server.Client(kShort)->Get("/x");
  REQUIRE(reply.status().code() == StatusCode::kUnavailable);
  CHECK_THAT(reply.status().message(), Contains("timed out"));
}

TEST_CASE("HttpClient does not wait forever for the rest of a reply") {
  const Listener server;
  std::thread replies = server.Reply(
      "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 100\r\n\r\n"
      "data: one\n\n");
  std::string events;
  const auto reply = server.Client(kShort)->PostForEvents("/x", "{}", [&](std::string_view data) {
    events += data;
    return true;
  });
  replies.join();
  CHECK(events == "one");
  REQUIRE(reply.status().code() == StatusCode::kUnavailable);
  CHECK_THAT(reply.status().message(), Contains("timed out"));
}

TEST_CASE("HttpClient does not wait forever for a connection") {
  Listener server(/*backlog=*/0);
  int fillers[4];
  for (int& filler : fillers) {
    filler = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    connect(filler, server.Address(), sizeof(sockaddr_in));
  }
  const auto reply = server.Client({.connect_s = 0.05, .silence_s = 60})->Get("/x");
  for (const int filler : fillers) close(filler);
  REQUIRE(reply.status().code() == StatusCode::kUnavailable);
  CHECK_THAT(reply.status().message(), Contains("timed out"));
}

TEST_CASE("HttpClient reports a server that is not there") {
  StatusOr<HttpClient> client = [] { return Listener().Client({}); }();
  const auto reply = client->Get("/x");
  REQUIRE(reply.status().code() == StatusCode::kUnavailable);
  CHECK_THAT(reply.status().message(), Contains("refused"));
}

}  // namespace
}  // namespace tandem
