#pragma once

// One connection's HTTP: reads requests, runs their handlers one after another, writes the
// responses. Thread: its shard's. Owned by shared_ptr: by its coroutine and by pending callbacks.
// Any error of a client ends in a 4xx response or a closed connection and affects nothing else.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "frontend/http/connection.h"
#include "frontend/http/listener.h"
#include "frontend/http/request_reader.h"
#include "frontend/http/router.h"
#include "frontend/http/sse.h"
#include "frontend/net/net.h"

namespace tandem {

class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(HttpServer* server, Shard* shard, int fd, std::unique_ptr<Transport> transport);
  ~Session();

  // The connection's whole life. `self` keeps it alive.
  static Awaitable<void> Run(std::shared_ptr<Session> self);
  // For the server's end: closes a connection that is between two requests, but not one that has
  // waited for its first for less than linger_s: that request may be under way.
  void CloseIfIdle();
  // Closes a connection that has been idle for retired_idle_s.
  void CloseIfLongIdle();
  void Cut() { connection_.MarkClosed(); }
  // Cuts the connection unless a drain waits for its request.
  void CutUnlessAdmitted();
  Shard& shard() const { return *shard_; }

 private:
  friend class Exchange;
  friend class EventStream;

  enum class Read {
    kOk,
    kClosed,  // the client is gone
    kFailed,  // refused; close once the response is sent
  };

  void CloseBetweenRequests();
  Awaitable<bool> ServeOne();  // false: close the connection
  Awaitable<bool> AwaitRequest();
  Awaitable<Read> ReadHead(RequestReader& reader);
  void TakeHead(RequestReader& reader);
  Awaitable<Read> ReadBody(RequestReader& reader);
  Read RefuseRead(int status, std::string_view message);
  Awaitable<Read> ServeHead(RequestReader& reader);
  std::optional<Response> TakeKeyPlace(const Route& route);
  Awaitable<void> RunHandler(const Route& route);
  void EndExchange(const Route* route, double request_bytes);
  Awaitable<void> Linger();

  // The implementation of Exchange and EventStream.
  void Respond(const Response& response);
  EventStream& StartEventStream(HeaderList headers);
  bool SendChunk(std::string_view events);
  void FinishStream();
  void OnClosed(std::function<void()> callback);

  void PostClosed();
  void KeepStreamAlive();
  std::string RenderHead(int status, std::string_view content_type, const HeaderList& headers,
                         std::optional<size_t> content_length) const;
  const ServerOptions& options() const { return server_->options_; }

  HttpServer* const server_;
  Shard* const shard_;
  Connection connection_;
  bool served_one_ = false;
  bool idle_ = false;  // waiting for the first byte of a request
  double idle_since_ = 0;
  bool in_exchange_ = false;
  uint64_t exchange_number_ = 0;
  uint64_t num_events_sent_ = 0;  // of all exchanges

  // The exchange under way, or the last one.
  struct Turn {
    HttpRequest request;
    std::string target;
    double began = 0;  // monotonic
    bool http11 = true;
    bool keep_alive = false;
    bool admitted = false;            // counted in num_requests: a drain waits for it
    std::shared_ptr<void> key_place;  // among its API key's open requests
    bool responded = false;
    bool streaming = false;
    int status = 0;
    double response_bytes = 0;
  };
  Turn turn_;
  EventStream stream_{this};
  std::function<void()> on_closed_;
};

}  // namespace tandem
