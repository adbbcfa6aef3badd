#pragma once

// A text/event-stream response, made so that a token costs one system call and no allocation.
// Thread: the session's shard. Owned by the exchange; dies with it.
// Send never blocks: it writes to the socket at once; what the kernel does not take is kept (up to
// ServerOptions::unsent_bytes_per_stream) and sent when the socket drains. Over that limit the
// client counts as gone: Send returns false, closed() is true and the exchange's OnClosed runs.

#include <cstddef>
#include <string_view>

namespace tandem {

class Session;

class EventStream {
 public:
  // One or several complete events, "data: …\n\n" each; call it once per step. False once the
  // client is gone (closed or too slow); there is no point in rendering more.
  bool Send(std::string_view events);
  // Ends the response after what was sent. Does nothing when the client is gone.
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
