#pragma once

// A text/event-stream response that costs one system call and no allocation per token.
// Thread: the session's shard. Owned by the exchange.
// Send never blocks: it writes to the socket at once; bytes that the kernel does not take are kept
// (up to ServerLimits::unsent_bytes_per_stream) and sent when the socket drains. Over that limit
// the client counts as gone: Send returns false, closed() is true and the exchange's OnClosed runs.

#include <cstddef>
#include <string_view>

namespace tandem {

class Session;

class EventStream {
 public:
  // One or several complete events, "data: …\n\n" each; call it once per step. False once the
  // client is gone (closed or too slow): rendering more is useless.
  bool Send(std::string_view events);
  // Ends the response. Does nothing when the client is gone.
  void Finish();

  bool closed() const;
  bool lagging() const { return lagging_; }  // closed because the client did not read
  size_t unsent_bytes() const;

 private:
  friend class Session;
  explicit EventStream(Session* session) : session_(session) {}
  Session* session_;
  bool lagging_ = false;
  bool finished_ = false;
};

}  // namespace tandem
