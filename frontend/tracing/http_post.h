#pragma once

// One blocking POST over a connection of its own, http or https, for the thread that sends spans.
// Not for shards. Everything but looking a name up ends at the deadline.

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/status.h"
#include "frontend/tracing/http_url.h"

namespace tandem {

struct PostReply {
  int status = 0;
  std::string retry_after;  // the header, or ""
  std::string body;         // its first 64 KiB; empty where it comes in chunks
};

// A client's TLS: whom it believes.
class TlsTrust {
 public:
  // authorities: PEM file; "": the system's. INVALID_ARGUMENT: the file is not usable.
  static StatusOr<std::unique_ptr<TlsTrust>> Load(const std::string& authorities);
  ~TlsTrust();
  TlsTrust(const TlsTrust&) = delete;

 private:
  friend class PostStream;
  explicit TlsTrust(void* context) : context_(context) {}
  void* const context_;  // SSL_CTX
};

// The point in time (monotonic seconds) at which to give up; asked again and again, as it may move.
using PostDeadline = std::function<double()>;

// UNAVAILABLE: no connection, or none that TLS accepts; DEADLINE_EXCEEDED. A reply of any status is
// a reply. trust: may be null for http.
StatusOr<PostReply> HttpPost(const HttpUrl& url,
                             const std::vector<std::pair<std::string, std::string>>& headers,
                             std::string_view body, const TlsTrust* trust,
                             const PostDeadline& deadline);

}  // namespace tandem
