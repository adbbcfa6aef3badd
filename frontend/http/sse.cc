#include "frontend/http/sse.h"

#include "frontend/http/session.h"

namespace tandem {

bool EventStream::Send(std::string_view events) {
  if (closed() || finished_) return false;
  return session_->SendChunk(events);
}

void EventStream::Finish() {
  if (closed() || finished_) return;
  session_->FinishStream();
}

bool EventStream::closed() const { return session_->connection_.closed(); }
size_t EventStream::unsent_bytes() const { return session_->connection_.unsent(); }

}  // namespace tandem
