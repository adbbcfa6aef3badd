#include "frontend/api/serve.h"

#include <algorithm>
#include <utility>

#include "common/log.h"
#include "common/strings.h"
#include "frontend/api/error.h"
#include "frontend/api/render.h"
#include "frontend/metrics/exposition.h"

namespace tandem {
namespace {

// Sends what the answer has written so far. A stream of several choices gets the outputs of one
// engine step in one write: the first of them posts the sending behind the rest of the message.
class StreamSender : public std::enable_shared_from_this<StreamSender> {
 public:
  StreamSender(Exchange* exchange, Generation* generation, bool several)
      : exchange_(exchange), generation_(generation), several_(several) {}

  std::string* buffer() { return &buffer_; }

  void OnProgress() {
    if (!several_) {
      Flush();
    } else if (!posted_) {
      posted_ = true;
      exchange_->shard().Post([weak = weak_from_this()] {
        if (const auto self = weak.lock()) self->Flush();
      });
    }
  }

  // The response head goes out with the first event, so that an earlier error has its own code.
  void Flush() {
    posted_ = false;
    if (buffer_.empty()) return;
    if (stream_ == nullptr) stream_ = &exchange_->StartEventStream();
    const bool alive = stream_->Send(buffer_);
    buffer_.clear();
    if (!alive) generation_->Abort();
  }

  void Finish() {
    Flush();
    if (stream_ != nullptr) stream_->Finish();
  }
  bool started() const { return stream_ != nullptr; }

 private:
  Exchange* const exchange_;
  Generation* const generation_;
  const bool several_;
  std::string buffer_;
  EventStream* stream_ = nullptr;
  bool posted_ = false;
};

std::optional<int64_t> IntegerHeader(const HttpRequest& request, std::string_view name) {
  return ParseNumber<int64_t>(request.Header(name));
}

StatusOr<PrepareInput> MakePrepareInput(const HttpRequest& request, const ApiContext& context) {
  const wire::EngineCoreReadyResponse* engine = context.engine_client->engine_info();
  if (engine == nullptr) return UnavailableError("the engine is not ready");
  PrepareInput input;
  input.input_processor = context.input_processor;
  input.options = &context.options;
  input.context.external_id = request.request_id;
  input.context.arrival_time = request.arrival_time;
  input.context.max_model_len = engine->max_model_len;
  input.id_from_client = request.Header("x-request-id") == request.request_id;
  const auto priority = IntegerHeader(request, "x-vllm-priority");
  if (priority && *priority == static_cast<int32_t>(*priority)) input.priority = priority;
  if (const auto rank = IntegerHeader(request, "x-data-parallel-rank")) {
    if (*rank < 0 || *rank >= context.engine_client->num_engines()) {
      return InvalidArgumentError("X-data-parallel-rank must be in [0, " +
                                  std::to_string(context.engine_client->num_engines() - 1) + "]");
    }
    input.context.data_parallel_rank = static_cast<int32_t>(*rank);
  }
  const std::string_view session = request.Header("x-session-id");
  constexpr size_t kMaxSessionBytes = 256;
  if (!session.empty() && session.size() <= kMaxSessionBytes) {
    input.context.session_id = std::string(session);
  }
  return input;
}

void CountRefusal(AdmissionGate::Refusal refusal, Metrics* metrics) {
  const auto reason = refusal == AdmissionGate::Refusal::kRequests
                          ? RejectionReason::kMaxNumQueuedReqs
                          : RejectionReason::kMaxNumQueuedTokens;
  metrics->frontend().admission_rejections[reason].Increment();
}

// What a load balancer asked for with endpoint-load-metrics-format (ORCA): the load as a header of
// the answer. Nothing for formats we do not know.
HeaderList LoadReport(const HttpRequest& request, Metrics* metrics) {
  const std::string format = ToLower(request.Header("endpoint-load-metrics-format"));
  if (format != "text" && format != "json") {
    if (!format.empty()) LOG_DEBUG << "no load report in an unknown format";
    return {};
  }
  double usage = 0, waiting = 0;
  for (int i = 0; i < metrics->num_engines(); ++i) {
    usage = std::max(usage, metrics->engine(i).kv_cache_usage_perc.Value());
    waiting += metrics->engine(i).num_requests_waiting.Value();
  }
  std::string report = "TEXT named_metrics.kv_cache_usage_perc=" + MetricNumber(usage) +
                       ", named_metrics.num_requests_waiting=" + MetricNumber(waiting);
  if (format == "json") {
    report = "JSON {\"named_metrics\": {\"kv_cache_usage_perc\": " + MetricNumber(usage) +
             ", \"num_requests_waiting\": " + MetricNumber(waiting) + "}}";
  }
  return {{"endpoint-load-metrics", std::move(report)}};
}

void RespondWithError(Exchange& exchange, const Status& status) {
  LOG_DEBUG << "request refused id=" << exchange.request().request_id << " " << status.ToString();
  exchange.Respond(ErrorResponse(status));
}

}  // namespace

StreamUsage MakeStreamUsage(const GenerationRequest& request, const ApiOptions& options) {
  StreamUsage usage;
  if (options.enable_force_include_usage) return {true, true};
  if (!request.stream_options) return usage;
  usage.at_end = request.stream_options->include_usage;
  usage.on_every_chunk = usage.at_end && request.stream_options->continuous_usage_stats;
  return usage;
}

std::string ResponseId(std::string_view prefix, const PrepareInput& input,
                       const GenerationRequest& request) {
  const bool from_body = !input.id_from_client && request.request_id;
  return std::string(prefix) + (from_body ? *request.request_id : input.context.external_id);
}

StatusOr<PreparedRequest> ParseAndPrepare(std::string_view body, PrepareInput input,
                                          PrepareFunction prepare) {
  const auto json = ParseJson(body, input.options->json_limits);
  if (!json.ok()) {
    BodyErrors errors;
    errors.AddForm("body", json.status().message());
    return errors.Result();
  }
  return prepare(**json, std::move(input));
}

Awaitable<void> ServeGeneration(Exchange& exchange, ApiContext* context, PrepareFunction prepare) {
  const AdmissionGate::Refusal refusal = context->admission_gate->Check();
  if (refusal != AdmissionGate::Refusal::kNone) {
    CountRefusal(refusal, context->metrics);
    RespondWithError(exchange, RefusalStatus(refusal));
    co_return;
  }
  auto ticket = std::make_unique<AdmissionGate::Ticket>(context->admission_gate);
  const double arrival = exchange.request().arrival_monotonic;
  auto input = MakePrepareInput(exchange.request(), *context);
  if (!input.ok()) {
    RespondWithError(exchange, input.status());
    co_return;
  }
  auto work = [body = std::move(exchange.mutable_request().body), input = std::move(*input),
               prepare] { return ParseAndPrepare(body, input, prepare); };
  auto prepared = co_await OnPool(context->text_pool, std::move(work));
  if (!prepared.ok()) {
    RespondWithError(exchange, prepared.status());
    co_return;
  }
  if (exchange.closed()) co_return;

  const bool stream = prepared->stream;
  const bool several = prepared->processed.requests.size() > 1;
  Generation generation(context, std::move(prepared->processed), prepared->output, arrival,
                        std::move(ticket));
  const auto sender = std::make_shared<StreamSender>(&exchange, &generation, several);
  const auto answer = prepared->make_answer(context->input_processor->tokenizer(),
                                            generation.prompts(), sender->buffer());
  std::function<void()> on_progress;
  if (stream) on_progress = [raw = sender.get()] { raw->OnProgress(); };
  const Status started = generation.Start(answer.get(), std::move(on_progress));
  if (!started.ok()) {
    RespondWithError(exchange, started);
    co_return;
  }
  exchange.OnClosed([&generation] { generation.Abort(); });
  co_await generation.done().Wait();

  if (generation.aborted()) co_return;
  if (!generation.error().ok()) {
    if (!sender->started()) {
      RespondWithError(exchange, generation.error());
      co_return;
    }
    sender->buffer()->append(ErrorEvent(generation.error()));
    ChunkWriter::AppendDone(sender->buffer());
  }
  if (stream) {
    sender->Finish();
  } else {
    exchange.Respond({200, std::move(*sender->buffer()), "application/json",
                      LoadReport(exchange.request(), context->metrics)});
  }
}

}  // namespace tandem
