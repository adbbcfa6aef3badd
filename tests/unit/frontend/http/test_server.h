#pragma once

// A real server on a free loopback port and a blocking client, for the tests of frontend/http.
// Nothing sleeps: the client blocks in recv (with a generous limit), handlers report what they saw
// through promises.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "frontend/http/listener.h"
#include "frontend/http/router.h"
#include "frontend/net/net.h"

namespace tandem {

// POST /echo: the body, as JSON.
inline Route EchoRoute() {
  Route echo;
  echo.method = "POST";
  echo.path = "/echo";
  echo.handler = [](Exchange& exchange) -> Awaitable<void> {
    exchange.Respond({200, exchange.request().body, "application/json", {}});
    co_return;
  };
  return echo;
}

class TestServer {
 public:
  explicit TestServer(std::vector<Route> routes, ServerOptions options = {}, int num_shards = 1) {
    for (int i = 0; i < num_shards; ++i) shards_.push_back(std::make_unique<Shard>(i));
    std::vector<Shard*> shards;
    for (const auto& shard : shards_) shards.push_back(shard.get());
    options.host = "127.0.0.1";
    options.port = 0;
    options.disable_access_log = true;
    if (!options.error) {
      options.error = [](std::string_view, int status, std::string_view message) {
        return Response{status, "error: " + std::string(message), "text/plain", {}};
      };
    }
    server_ = std::make_unique<HttpServer>(std::move(options), Router(std::move(routes)), shards);
    status_ = server_->Listen();
    for (const auto& shard : shards_) shard->Start();
  }
  ~TestServer() {
    for (const auto& shard : shards_) shard->Stop();
    for (const auto& shard : shards_) shard->Join();
    server_.reset();
  }

  int port() const { return server_->port(); }
  HttpServer& server() { return *server_; }
  Shard& shard(int i = 0) { return *shards_[static_cast<size_t>(i)]; }
  const Status& status() const { return status_; }

 private:
  std::vector<std::unique_ptr<Shard>> shards_;
  std::unique_ptr<HttpServer> server_;
  Status status_;
};

struct Reply {
  int status = 0;
  std::string head;
  std::string body;  // chunks joined

  bool Has(std::string_view text) const { return head.find(text) != std::string::npos; }
};

class Client {
 public:
  // receive_buffer: SO_RCVBUF, set before connecting; 0 leaves it.
  explicit Client(int port, int receive_buffer = 0) {
    fd_ = ::socket(AF_INET, SOCK_STREAM, 0);
    if (receive_buffer > 0) {
      ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    }
    const timeval limit{20, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    ::setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    const int on = 1;
    ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  ~Client() { Close(); }
  Client(const Client&) = delete;

  bool connected() const { return connected_; }
  int fd() const { return fd_; }
  void Close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }

  // Sends no more but continues to read.
  void EndInput() { ::shutdown(fd_, SHUT_WR); }

  bool Send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }

  // The next response; status 0 when the connection ended before a complete one.
  Reply ReadReply() {
    Reply reply;
    size_t end;
    while ((end = in_.find("\r\n\r\n")) == std::string::npos) {
      if (!Fill()) return reply;
    }
    reply.head = in_.substr(0, end + 2);
    in_.erase(0, end + 4);
    const int status = std::stoi(reply.head.substr(9, 3));
    if (status == 100) return ReadReply();
    if (reply.Has("transfer-encoding: chunked")) {
      if (!ReadChunks(&reply.body)) return reply;
    } else if (const size_t at = reply.head.find("content-length: "); at != std::string::npos) {
      const size_t length = std::stoul(reply.head.substr(at + 16));
      while (in_.size() < length) {
        if (!Fill()) return reply;
      }
      reply.body = in_.substr(0, length);
      in_.erase(0, length);
    } else {
      while (Fill()) {
      }
      reply.body = std::exchange(in_, "");
    }
    reply.status = status;
    return reply;
  }

  Reply Ask(std::string_view request) {
    if (!Send(request)) return {};
    return ReadReply();
  }
  Reply Get(std::string_view path, std::string_view headers = "") {
    return Ask("GET " + std::string(path) + " HTTP/1.1\r\nHost: x\r\n" + std::string(headers) +
               "\r\n");
  }
  Reply Post(std::string_view path, std::string_view body, std::string_view headers = "") {
    return Ask("POST " + std::string(path) +
               " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: " +
               std::to_string(body.size()) + "\r\n" + std::string(headers) + "\r\n" +
               std::string(body));
  }

  // Reads until the peer closes. False when it does not within the limit.
  bool ReadToEnd() {
    while (Fill()) {
    }
    return ended_;
  }
  // More bytes into in_; false at the end or after the limit.
  bool Fill() {
    char bytes[16384];
    const ssize_t n = ::recv(fd_, bytes, sizeof bytes, 0);
    if (n <= 0) {
      ended_ = n == 0 || errno == ECONNRESET;
      return false;
    }
    in_.append(bytes, static_cast<size_t>(n));
    return true;
  }
  const std::string& pending() const { return in_; }

 private:
  bool ReadChunks(std::string* body) {
    while (true) {
      size_t line;
      while ((line = in_.find("\r\n")) == std::string::npos) {
        if (!Fill()) return false;
      }
      const size_t size = std::stoul(in_.substr(0, line), nullptr, 16);
      while (in_.size() < line + 2 + size + 2) {
        if (!Fill()) return false;
      }
      body->append(in_, line + 2, size);
      in_.erase(0, line + 2 + size + 2);
      if (size == 0) return true;
    }
  }

  int fd_ = -1;
  bool connected_ = false;
  bool ended_ = false;
  std::string in_;
};

}  // namespace tandem
