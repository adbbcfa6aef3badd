#include "frontend/tracing/span_exporter.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <string>
#include <thread>
#include <utility>

#include "common/log.h"
#include "common/mailbox.h"
#include "common/strings.h"
#include "common/version.h"
#include "frontend/tracing/http_post.h"
#include "frontend/tracing/otlp.h"

namespace tandem {
namespace {

constexpr double kForever = std::numeric_limits<double>::infinity();
constexpr int kMaxTries = 6;
constexpr double kFirstBackoffSeconds = 1, kMaxBackoffSeconds = 30;

double Now() { return SystemClock().Monotonic(); }

}  // namespace

bool IsWorthRetrying(int http_status) {
  return http_status == 429 || (http_status >= 502 && http_status <= 504);
}

// What the thread works with. Members without a mark belong to it.
struct SpanExporter::State {
  State(TraceOptions given, OnOutcome count)
      : options(std::move(given)), on_outcome(std::move(count)) {}

  static void Run(const std::shared_ptr<State>& self);
  void SayWhetherThere();
  // Moves what has been pushed to `pending`, until the deadline has passed or `enough` are there.
  void Collect(double deadline, size_t enough);
  void SendBatch();
  // How the collector took the body: OK; INVALID_ARGUMENT, it never will; UNAVAILABLE.
  Status Post(const std::string& body, double* retry_after_s, TracesRefused* refused);
  Status Deliver(const std::string& body, TracesRefused* refused);
  void LogChange(const Status& status);
  double Deadline(double wanted) const { return std::min(wanted, stop_at.load()); }
  void Count(SpanOutcome outcome, int64_t num_spans) const {
    if (!is_abandoned) on_outcome(outcome, num_spans);
  }

  const TraceOptions options;
  const OnOutcome on_outcome;              // any thread
  Mailbox<std::vector<Span>> box;          // any thread
  std::atomic<int64_t> num_queued = 0;     // any thread; in the box, pending or being sent
  std::atomic<double> stop_at = kForever;  // any thread
  std::atomic<bool> is_abandoned = false;  // any thread; nothing is counted any more
  Mailbox<bool> ended;                     // any thread; closed at the thread's end
  std::unique_ptr<TlsTrust> trust;
  std::vector<std::pair<std::string, std::string>> headers;
  std::vector<std::vector<Span>> drained;
  std::vector<Span> pending;
  bool is_failing = false;
};

StatusOr<std::unique_ptr<SpanExporter>> SpanExporter::Start(TraceOptions options,
                                                            OnOutcome on_outcome) {
  const auto state = std::make_shared<State>(std::move(options), std::move(on_outcome));
  if (state->options.endpoint.is_tls) {
    ASSIGN_OR_RETURN(state->trust, TlsTrust::Load(state->options.authorities));
  }
  state->headers = {{"Content-Type", "application/x-protobuf"},
                    {"User-Agent", "tandem/" + std::string(kVersion)}};
  state->headers.insert(state->headers.end(), state->options.headers.begin(),
                        state->options.headers.end());
  std::thread([state] { State::Run(state); }).detach();
  return std::unique_ptr<SpanExporter>(new SpanExporter(state));
}

SpanExporter::~SpanExporter() {
  state_->stop_at = Now() + kFlushSeconds;
  state_->box.Close();
  // Looking a name up ends at no deadline; such a thread ends with the process.
  constexpr std::chrono::milliseconds kGrace(500);
  const std::chrono::duration<double> flush(kFlushSeconds);
  const bool has_ended =
      state_->ended.WaitFor(std::chrono::duration_cast<std::chrono::nanoseconds>(flush) + kGrace);
  state_->is_abandoned = !has_ended;
}

void SpanExporter::TryAdd(std::vector<Span> spans) {
  const auto count = static_cast<int64_t>(spans.size());
  if (state_->num_queued.fetch_add(count) + count > state_->options.max_queued_spans) {
    state_->num_queued -= count;
    state_->Count(SpanOutcome::kQueueFull, count);
    return;
  }
  state_->box.Push(std::move(spans));
}

void SpanExporter::State::Run(const std::shared_ptr<State>& self) {
  SetThreadName("traces");
  self->SayWhetherThere();
  while (!self->box.closed()) {
    self->Collect(kForever, 1);
    self->Collect(Now() + self->options.delay_s,
                  static_cast<size_t>(self->options.max_batch_spans));
    self->SendBatch();
  }
  self->Collect(0, 0);
  while (!self->pending.empty()) self->SendBatch();
  self->ended.Close();
}

void SpanExporter::State::Collect(double deadline, size_t enough) {
  while (true) {
    box.Drain(&drained);
    for (std::vector<Span>& spans : drained) {
      std::move(spans.begin(), spans.end(), std::back_inserter(pending));
    }
    const double left = deadline - Now();
    if (pending.size() >= enough || left <= 0 || box.closed()) return;
    if (deadline == kForever) {
      box.Wait();
    } else {
      box.WaitFor(std::chrono::nanoseconds(static_cast<int64_t>(left * 1e9)));
    }
  }
}

void SpanExporter::State::SayWhetherThere() {
  double retry_after_s = 0;
  TracesRefused refused;
  const Status status = Post("", &retry_after_s, &refused);
  if (status.ok()) {
    LOG_INFO << "[traces] the collector at " << options.endpoint.text() << " takes spans";
    return;
  }
  is_failing = true;
  LOG_WARNING << "[traces] the collector at " << options.endpoint.text()
              << " takes no spans: " << status.message();
}

Status SpanExporter::State::Post(const std::string& body, double* retry_after_s,
                                 TracesRefused* refused) {
  const double give_up_at = Now() + options.timeout_s;
  const auto deadline = [this, give_up_at] { return Deadline(give_up_at); };
  const auto reply = HttpPost(options.endpoint, headers, body, trust.get(), deadline);
  if (!reply.ok()) return UnavailableError(reply.status().message());
  constexpr int kStatusesPerClass = 100;
  if (reply->status / kStatusesPerClass == 2) {
    *refused = DecodeTracesReply(reply->body);
    return OkStatus();
  }
  const std::string text = "HTTP status " + std::to_string(reply->status);
  if (!IsWorthRetrying(reply->status)) return InvalidArgumentError(text);
  *retry_after_s = static_cast<double>(ParseNumber<int64_t>(reply->retry_after).value_or(0));
  return UnavailableError(text);
}

Status SpanExporter::State::Deliver(const std::string& body, TracesRefused* refused) {
  double backoff = kFirstBackoffSeconds;
  for (int i = 1;; ++i) {
    double retry_after_s = 0;
    Status status = Post(body, &retry_after_s, refused);
    LogChange(status);
    const bool is_final = status.ok() || status.code() == StatusCode::kInvalidArgument;
    if (is_final || i == kMaxTries || box.closed()) return status;
    const double pause = std::clamp(retry_after_s, backoff, kMaxBackoffSeconds);
    Collect(Now() + pause, std::numeric_limits<size_t>::max());
    backoff = std::min(2 * backoff, kMaxBackoffSeconds);
  }
}

void SpanExporter::State::SendBatch() {
  const size_t count = std::min(pending.size(), static_cast<size_t>(options.max_batch_spans));
  if (count == 0) return;
  const std::string body = EncodeTraces(options.resource, std::span(pending).first(count));
  // Spans of the next batches may arrive meanwhile, behind these.
  pending.erase(pending.begin(), pending.begin() + static_cast<ptrdiff_t>(count));
  TracesRefused refused;
  const Status status = Deliver(body, &refused);
  const auto total = static_cast<int64_t>(count);
  num_queued -= total;
  if (!status.ok()) {
    Count(status.code() == StatusCode::kInvalidArgument ? SpanOutcome::kRefused
                                                        : SpanOutcome::kUndelivered,
          total);
    return;
  }
  refused.num_spans = std::min(refused.num_spans, total);
  if (refused.num_spans > 0) {
    LOG_WARNING << "[traces] the collector refused " << refused.num_spans
                << " spans: " << refused.message;
    Count(SpanOutcome::kRefused, refused.num_spans);
  }
  Count(SpanOutcome::kExported, total - refused.num_spans);
}

// Once for each run of failures.
void SpanExporter::State::LogChange(const Status& status) {
  if (status.ok() && is_failing) {
    LOG_INFO << "[traces] the collector at " << options.endpoint.text() << " takes spans again";
  } else if (!status.ok() && !is_failing) {
    LOG_WARNING << "[traces] the collector at " << options.endpoint.text()
                << " takes no spans: " << status.message()
                << "; tandem:trace_spans_total counts those that are lost";
  }
  is_failing = !status.ok();
}

}  // namespace tandem
