#pragma once

// Turns the body of one response, as it arrives, into a RequestOutcome: when the chunks with
// choices arrived, the text, how many tokens the server counted. Understands completions and chat
// completions, as server-sent events or as one JSON body, and vectors and scores, each of which
// counts as a choice. Thread: one. Times: the caller's stamps.
// Failure: DATA_LOSS for what is not a JSON object, UNAVAILABLE with the server's words for an
// error event or an HTTP status other than 200.

#include <string>
#include <string_view>

#include "common/status.h"
#include "deploy/cli/bench/serve_metrics.h"
#include "deploy/cli/sse_parser.h"

namespace tandem {

class CompletionReader {
 public:
  // Fills *outcome, whose `start` must be set.
  explicit CompletionReader(RequestOutcome* outcome);

  Status Take(int status_code, bool is_event_stream, std::string_view piece, double now);
  // The body is complete. Sets success, or returns why not.
  Status Finish(int status_code, const std::string& reason, double now);

 private:
  Status TakeChunk(std::string_view json, double now);

  RequestOutcome* outcome_;
  SseParser events_;
  bool is_event_stream_ = false;
  bool has_chunk_ = false;
  bool done_ = false;  // after "[DONE]"
  double last_chunk_at_ = 0;
  std::string body_;  // of a response that is not an event stream
};

}  // namespace tandem
