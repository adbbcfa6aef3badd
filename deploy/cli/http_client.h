#pragma once

// A blocking HTTP/1.1 client for the `tandem` command: one request at a time, one connection each.
// Thread: the caller's. Plain http over TCP or a UNIX socket; the server is on this host or at the
// end of the user's own tunnel. Errors: UNAVAILABLE when the server does not respond in time,
// INVALID_ARGUMENT for a bad URL, CANCELLED when a signal interrupts the wait.

#include <signal.h>

#include <functional>
#include <string>
#include <string_view>

#include "common/status.h"

namespace tandem {

struct HttpTimeouts {
  double connect_s = 10;
  double silence_s =
      600;  // before the first piece of a reply (the request may be queued) and between pieces
  // Signals blocked during waits, as ppoll has it; null: as the thread has them. A caller that
  // blocks a signal at all other times misses none.
  const sigset_t* wait_mask = nullptr;
};

struct HttpReply {
  int status = 0;
  std::string body;
};

class HttpClient {
 public:
  // url: http://host[:port][/prefix] or unix:/path/of/socket. The key goes out as "Authorization:
  // Bearer key" unless empty.
  static StatusOr<HttpClient> ForUrl(std::string_view url, std::string api_key,
                                     HttpTimeouts timeouts = {});

  // UNAVAILABLE: also a body over kMaxReplyBytes, which no server of ours sends.
  static constexpr size_t kMaxReplyBytes = 64 << 20;
  StatusOr<HttpReply> Get(std::string_view path) const;

  // Posts JSON and passes each server-sent event's data to on_event until "[DONE]", the end of the
  // stream, or on_event returns false (the connection is then closed). A reply with a status other
  // than 200 is returned whole, without events.
  StatusOr<HttpReply> PostForEvents(
      std::string_view path, std::string json,
      const std::function<bool(std::string_view data)>& on_event) const;

 private:
  std::string host_, port_;  // of a UNIX socket: empty, and its path
  std::string prefix_, api_key_;
  HttpTimeouts timeouts_;
};

}  // namespace tandem
