#pragma once

// Sends finished spans to a collector: OTLP over HTTP, in batches, from a thread of its own.
// Thread: TryAdd from any and never waits; the rest from main. A collector that is slow, gone or
// refuses costs spans and nothing else: at most max_queued_spans wait, later ones are dropped and
// counted. 429 and 502 to 504, and a lost connection, are tried again for half a minute; other
// refusals are final. The log has a line when sending begins to fail and one when it works again.

#include <functional>
#include <memory>
#include <vector>

#include "common/clock.h"
#include "common/status.h"
#include "frontend/tracing/span.h"
#include "frontend/tracing/span_outcome.h"
#include "frontend/tracing/trace_options.h"

namespace tandem {

class SpanExporter {
 public:
  // Runs on the exporter's thread and on those that call TryAdd.
  using OnOutcome = std::function<void(SpanOutcome outcome, int64_t num_spans)>;

  // Starts the thread, which first says in the log whether the collector is there.
  // INVALID_ARGUMENT: the certificates' file is not usable.
  static StatusOr<std::unique_ptr<SpanExporter>> Start(TraceOptions options, OnOutcome on_outcome);
  // Sends what is queued, for kFlushSeconds at most, and drops the rest.
  ~SpanExporter();
  SpanExporter(const SpanExporter&) = delete;

  static constexpr double kFlushSeconds = 2;

  // Spans of one request; all of them are taken, or dropped where they do not fit.
  void TryAdd(std::vector<Span> spans);

 private:
  struct State;
  explicit SpanExporter(std::shared_ptr<State> state) : state_(std::move(state)) {}
  // Shared with the thread, which may outlive this where a name server does not reply.
  const std::shared_ptr<State> state_;
};

// Whether a reply's status asks to send the same again.
bool IsWorthRetrying(int http_status);

}  // namespace tandem
