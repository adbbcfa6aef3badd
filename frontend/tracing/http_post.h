#pragma once

// One blocking POST over a connection of its own, http or https, for the thread that sends spans.
// Not for shards. Everything but looking a name up ends at the deadline.

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/net/client_stream.h"
#include "common/status.h"
#include "frontend/tracing/http_url.h"

namespace tandem {

struct PostReply {
  int status = 0;
  std::string retry_after;  // the header, or ""
  std::string body;         // its first 64 KiB; empty where it comes in chunks
};

// The point in time (monotonic seconds) at which to give up; asked again and again, as it may move.
using PostDeadline = std::function<double()>;

// UNAVAILABLE: no connection; FAILED_PRECONDITION: a certificate that is not trusted;
// DEADLINE_EXCEEDED. A reply of any status is a reply. trust: may be null for http.
StatusOr<PostReply> HttpPost(const HttpUrl& url,
                             const std::vector<std::pair<std::string, std::string>>& headers,
                             std::string_view body, const TlsTrust* trust,
                             const PostDeadline& deadline);

}  // namespace tandem
