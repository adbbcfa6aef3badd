#pragma once

// One connection: reads requests, runs their handlers one after another, writes the answers.
// Thread: its shard's. Owned by shared_ptr: by its coroutine and by callbacks that are under way.
// The read side is watched from accept to close, so a client that leaves is noticed whatever the
// handler waits for; bytes that arrive meanwhile (pipelined requests) are kept up to a limit.
// Everything a client can do wrong ends in a 4xx answer or a closed connection, never further.

#include <atomic>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "frontend/http/listener.h"
#include "frontend/http/router.h"
#include "frontend/http/sse.h"
#include "frontend/http/transport.h"
#include "frontend/net/net.h"

namespace tandem {

class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(HttpServer* server, Shard* shard, int fd, std::unique_ptr<Transport> transport);
  ~Session();

  // The connection's whole life. `self` keeps it alive.
  static Awaitable<void> Run(std::shared_ptr<Session> self);
  // The server ends: at once when idle; else the open exchange is told and cut.
  void CloseIfIdle();
  void Cut() { MarkClosed(); }
  Shard& shard() const { return *shard_; }

 private:
  friend class Exchange;
  friend class EventStream;
  struct Head;    // what the parser knows once the head is complete
  struct Parser;  // Beast

  enum class Read { kOk, kClosed, kFailed };  // kFailed: answered, close after it was sent

  // -- input --
  void OnReadable();
  void WatchReads();
  Awaitable<bool> MoreInput(double deadline);
  Awaitable<Read> ReadHead(Parser& parser);
  Awaitable<Read> ReadBody(Parser& parser);
  Awaitable<void> Linger();

  // -- one exchange --
  Awaitable<bool> ServeOne();  // false: close the connection
  // An answer http gives itself, before any handler: routes, keys, types, draining.
  std::optional<Response> Refuse(const Router::Match& match, bool has_body) const;
  std::optional<Response> Preflight() const;
  Awaitable<void> RunHandler(const Route& route);
  void EndExchange(const Route* route, double request_bytes);
  void Respond(Response response);
  EventStream& StartEventStream(HeaderList headers);
  bool SendChunk(std::string_view events);
  void KeepStreamAlive();
  void FinishStream();
  void OnClosed(std::function<void()> callback);
  std::string RenderHead(int status, std::string_view content_type, const HeaderList& headers,
                         std::optional<size_t> content_length) const;
  bool Authorized() const;
  std::string_view CorsOrigin() const;
  Response Error(int status, std::string_view message) const;

  // -- output --
  void Write(std::initializer_list<std::string_view> parts);
  void OnWritable();
  void WatchWrites();
  Awaitable<void> Drain();
  size_t unsent() const { return backlog_.size() - backlog_sent_; }
  void MarkClosed();
  void PostClosed();

  HttpServer* const server_;
  Shard* const shard_;
  Socket socket_;
  std::unique_ptr<Transport> transport_;
  std::string peer_;

  std::string in_;
  Event input_;
  bool reading_ = false;     // a read is armed
  bool discarding_ = false;  // lingering: what arrives is dropped
  size_t discarded_ = 0;
  bool closed_ = false;
  bool served_one_ = false;
  double first_byte_unix_ = 0;
  double first_byte_monotonic_ = 0;
  double exchange_began_ = 0;

  std::string backlog_;  // what the kernel did not take yet, from backlog_sent_ on
  size_t backlog_sent_ = 0;
  bool writing_ = false;  // a write is armed
  Event drained_;

  // The exchange under way.
  bool in_exchange_ = false;
  uint64_t exchange_number_ = 0;
  HttpRequest request_;
  std::string target_;
  bool http11_ = true;
  bool keep_alive_ = true;
  bool responded_ = false;
  int status_ = 0;
  double response_bytes_ = 0;
  EventStream stream_{this};
  bool streaming_ = false;
  uint64_t response_sends_ = 0;  // events sent, of all exchanges
  std::function<void()> on_closed_;
};

}  // namespace tandem
