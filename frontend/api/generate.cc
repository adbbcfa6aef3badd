#include "frontend/api/generate.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/log.h"
#include "common/strings.h"
#include "frontend/api/adapters.h"
#include "frontend/api/beam_run.h"
#include "frontend/api/generation.h"
#include "frontend/api/models.h"
#include "frontend/metrics/exposition.h"
#include "frontend/openai/structured_outputs.h"
#include "frontend/parsers/tool_grammar.h"
#include "frontend/processing/schema_origin.h"
#include "grammar/schema/schema_fault.h"
#include "proto_msgpack/no_token_left.h"

namespace tandem {
namespace {

// ---- 1. Admit ----

// Counts a refusal.
Status Admitted(AdmissionGate::Refusal refusal, const ApiContext& context) {
  if (refusal == AdmissionGate::Refusal::kNone) return OkStatus();
  const auto reason =
      refusal == AdmissionGate::Refusal::kRequests ? RejectionReason::kMaxNumQueuedReqs
      : refusal == AdmissionGate::Refusal::kTokens ? RejectionReason::kMaxNumQueuedTokens
                                                   : RejectionReason::kMaxTtft;
  context.metrics->frontend().admission_rejections[reason].Increment();
  return RefusalStatus(refusal);
}

// Null: the request leaves no spans.
std::unique_ptr<RequestTrace> BeginTrace(const HttpRequest& request, ApiContext* context) {
  constexpr std::string_view kParent = "traceparent", kState = "tracestate";
  std::string_view parent;
  std::string state;
  int num_parents = 0;
  for (const auto& [name, value] : request.headers) {
    if (name == kParent) {
      parent = value;
      ++num_parents;
    }
    if (name == kState) state += (state.empty() ? "" : ",") + value;
  }
  if (num_parents > 1) parent = {};
  if (context->tracer == nullptr) {
    if (num_parents > 0 && context->warnings_given.insert(kParent).second) {
      LOG_WARNING << "a client sends traceparent, but traces are off: --otlp-traces-endpoint";
    }
    return nullptr;
  }
  return context->tracer->Begin(parent, state, {request.arrival_time, request.arrival_monotonic});
}

}  // namespace

// ---- 2. Parse ----

Status ParseBody(std::string_view body, const ApiContext& context, GenerationCall* call) {
  ASSIGN_OR_RETURN(JsonDocument json, ParseJsonBody(body, context.options.json_limits));
  return call->Parse(std::move(json));
}

// ---- 3. Process ----

namespace {

StreamUsage MakeStreamUsage(const GenerationRequest& request, const ApiOptions& options) {
  if (options.enable_force_include_usage) return {true, true};
  if (!request.stream_options) return {};
  const bool at_end = request.stream_options->include_usage;
  return {at_end, at_end && request.stream_options->continuous_usage_stats};
}

OutputOptions MakeOutputOptions(const GenerationRequest& request, const ApiOptions& options) {
  OutputOptions result;
  const bool skip_special_tokens = request.skip_special_tokens.value_or(true);
  result.detokenizer = {skip_special_tokens, request.spaces_between_special_tokens};
  result.logprobs_style = {skip_special_tokens, request.return_tokens_as_token_ids.value_or(
                                                    options.return_tokens_as_token_ids)};
  result.stop = request.stop;
  result.include_stop_str_in_output = request.include_stop_str_in_output;
  result.min_tokens = request.min_tokens;
  if (request.stream) {
    result.stream_interval = std::max(options.stream_interval, request.stream_interval.value_or(1));
  }
  return result;
}

}  // namespace

StatusOr<PreparedRequest> ProcessRequest(const RequestHeaders& headers, const ApiContext& context,
                                         GenerationCall* call) {
  GenerationRequest& request = call->request();
  PreparedRequest prepared;
  ASSIGN_OR_RETURN(NamedModel model, FindModel(context.options, *headers.adapters, request.model));
  RequestContext request_context = headers.context;
  if (model.adapter != nullptr) request_context.lora_request = wire::Packed(model.adapter->lora);
  const bool id_from_body = !headers.id_from_client && request.request_id;
  request_context.external_id =
      call->id_prefix() + (id_from_body ? *request.request_id : headers.context.external_id);
  if (headers.priority) request.priority = *headers.priority;
  if (!headers.client_salt.empty()) {
    request.cache_salt = headers.client_salt + "/" + request.cache_salt.value_or("");
  }

  prepared.retired_fields = std::move(request.retired_fields);
  prepared.output = MakeOutputOptions(request, context.options);
  WriterInput& writer = prepared.writer;
  writer.head = {request_context.external_id, static_cast<int64_t>(request_context.arrival_time),
                 std::move(model.name), headers.system_fingerprint};
  writer.stream = request.stream;
  writer.stream_usage = MakeStreamUsage(request, context.options);
  writer.logprobs_style = prepared.output.logprobs_style;
  writer.tokenizer = &context.input_processor->tokenizer();
  prepared.constraint_field = ConstraintField(request);
  ASSIGN_OR_RETURN(prepared.processed, call->Process(request_context));
  const wire::EngineCoreRequest& first = prepared.processed.requests.front();
  if (!first.sampling_params.structured_outputs) {
    prepared.constraint_field = "";
  } else if (prepared.constraint_field.empty()) {
    prepared.constraint_field = "tools";
  }
  // Then an engine may also refuse that.
  if (!first.lora_request.is_nil()) prepared.constraint_field = "";
  prepared.output.message = prepared.processed.message;
  if (prepared.output.message && prepared.output.message->shows_special_tokens) {
    prepared.output.detokenizer.skip_special_tokens = false;
  }
  return prepared;
}

namespace {

// What of the request has no effect; each thing once, because clients repeat themselves.
void WarnOfIgnored(const PreparedRequest& prepared, ApiContext* context) {
  for (const RetiredField& field : prepared.retired_fields) {
    if (!context->warnings_given.insert(field.name).second) continue;
    LOG_WARNING << "a client sends " << field.name
                << ", which is ignored: its API has no such field"
                << (field.instead.empty() ? "" : ", use ") << field.instead;
  }
  const std::string_view warning = prepared.processed.warning;
  if (!warning.empty() && context->warnings_given.insert(warning).second) LOG_WARNING << warning;
}

// ---- 4. Run ----

// Sends what the writer has written so far. A stream of several choices sends the outputs of one
// engine step in one write: the first output posts the flush, which runs after the others.
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

  // The response head goes out with the first event, so that an earlier error has its own status.
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

// ---- 5. Write ----

// The load as a response header (ORCA), when a load balancer requests it with
// endpoint-load-metrics-format. Nothing for an unknown format.
HeaderList LoadReport(const HttpRequest& request, Metrics* metrics) {
  const std::string format = ToLower(request.Header("endpoint-load-metrics-format"));
  if (format != "text" && format != "json") {
    if (!format.empty()) LOG_DEBUG << "unknown endpoint-load-metrics-format: no load report";
    return {};
  }
  double usage = 0, waiting = 0;
  for (int i = 0; i < metrics->num_engines(); ++i) {
    usage = std::max(usage, metrics->engine(i).kv_cache_usage_perc.Value());
    waiting += static_cast<double>(metrics->engine(i).load.Read().waiting);
  }
  std::string report = "TEXT named_metrics.kv_cache_usage_perc=" + MetricNumber(usage) +
                       ", named_metrics.num_requests_waiting=" + MetricNumber(waiting);
  if (format == "json") {
    report = "JSON {\"named_metrics\": {\"kv_cache_usage_perc\": " + MetricNumber(usage) +
             ", \"num_requests_waiting\": " + MetricNumber(waiting) + "}}";
  }
  return {{"endpoint-load-metrics", std::move(report)}};
}

}  // namespace

void RespondWithError(Exchange& exchange, const ApiContext& context, const GenerationCall& call,
                      const Status& status) {
  LOG_DEBUG << "request refused id=" << exchange.request().request_id << " " << status.ToString();
  Response response = call.Error(status);
  if (status.code() == StatusCode::kResourceExhausted) {
    for (auto& [name, value] : response.headers) {
      if (name == "Retry-After")
        value = std::to_string(context.admission_gate->RetryAfterSeconds());
    }
  }
  exchange.Respond(response);
}

namespace {

// Where the texts of a request are counted in which calls are looked for; null: in none.
ParserInvocations* InvocationsOf(ApiContext* context, const GenerationCall& call,
                                 const PreparedRequest& prepared) {
  if (!prepared.output.message || !prepared.output.message->looks_for_calls()) return nullptr;
  const ParserMode mode =
      prepared.writer.stream ? ParserMode::kStreaming : ParserMode::kNonStreaming;
  return &context->metrics->frontend().tool_call_parser_invocations[call.request_type()][mode];
}

}  // namespace

std::unique_ptr<Generation> MakeGeneration(ApiContext* context, const GenerationCall& call,
                                           double arrival_monotonic, AdmittedRequest& request) {
  PreparedRequest& prepared = request.prepared;
  auto generation =
      std::make_unique<Generation>(context, std::move(prepared.processed), prepared.output,
                                   arrival_monotonic, std::move(request.ticket));
  generation->CountToolCalls(InvocationsOf(context, call, prepared),
                             /*per_delta=*/prepared.writer.stream);
  if (request.deadline) generation->SetDeadline(*request.deadline);
  generation->SetTrace(std::move(request.trace));
  prepared.writer.prompts = generation->prompts();
  return generation;
}

namespace {

// Stages 4 and 5 of a beam search, which is never a stream.
Awaitable<void> SearchBeams(Exchange& exchange, ApiContext* context, const GenerationCall& call,
                            AdmittedRequest request) {
  PreparedRequest& prepared = request.prepared;
  BeamRun run(context, std::move(prepared.processed), prepared.output,
              exchange.request().arrival_monotonic, std::move(request.ticket));
  run.CountToolCalls(InvocationsOf(context, call, prepared));
  if (request.deadline) run.SetDeadline(*request.deadline);
  if (request.trace) run.SetTrace(std::move(request.trace), prepared.writer.head.id);
  exchange.OnClosed([&run] { run.Abort(); });
  const Status status = co_await run.Search();
  run.EndTrace(status);
  if (run.aborted()) co_return;
  if (!status.ok()) co_return RespondWithError(exchange, *context, call, status);
  std::string body;
  prepared.writer.prompts = run.prompts();
  prepared.writer.out = &body;
  run.Write(call.MakeWriter(std::move(prepared.writer)).get());
  exchange.Respond(
      {200, std::move(body), "application/json", LoadReport(exchange.request(), context->metrics)});
}

}  // namespace

// ---- All five ----

Awaitable<void> Generate(Exchange& exchange, ApiContext* context, MakeCall make_call) {
  const std::unique_ptr<GenerationCall> call = make_call(*context);
  auto request = co_await Admit(exchange, context, call.get());
  if (!request.ok()) co_return RespondWithError(exchange, *context, *call, request.status());
  co_await Run(exchange, context, *call, std::move(*request));
}

Awaitable<Status> FetchAll(Exchange& exchange, const ApiContext* context,
                           std::optional<double> deadline, GenerationCall* call) {
  while (call->needs_fetch()) {
    const Status fetched = co_await call->Fetch(exchange, deadline);
    if (!fetched.ok()) co_return fetched;
    auto take = [call] { return call->TakeFetched(); };
    const Status taken = co_await OnPool(context->text_pool, std::move(take));
    if (!taken.ok()) co_return taken;
  }
  co_return OkStatus();
}

namespace {

// The extra_args of a request whose KV another engine holds; nil: none does.
wire::RawValue RemoteKvOf(const GenerationRequest& request) {
  const Json& params = *request.kv_transfer_params;
  if (!params.is_object() || params.value("do_remote_prefill", Json()) != true) return {};
  const std::vector<uint8_t> bytes = Json::to_msgpack({{"kv_transfer_params", params}});
  return {std::string(bytes.begin(), bytes.end())};
}

// ProcessRequest. What another engine holds for a request that is refused is given up.
StatusOr<PreparedRequest> ProcessOrGiveUp(const RequestHeaders& headers, const ApiContext& context,
                                          GenerationCall* call) {
  wire::RawValue remote_kv = RemoteKvOf(call->request());
  StatusOr<PreparedRequest> prepared = ProcessRequest(headers, context, call);
  if (prepared.ok() || remote_kv.is_nil()) return prepared;
  EngineClient* const client = context.engine_client;
  client->RunOnShard([client, remote_kv = std::move(remote_kv)]() mutable {
    client->SendRefused(std::move(remote_kv));
  });
  return prepared;
}

}  // namespace

Awaitable<StatusOr<AdmittedRequest>> Admit(Exchange& exchange, ApiContext* context,
                                           GenerationCall* call) {
  // 1. Admit.
  AdmittedRequest request;
  const Status has_room = Admitted(context->admission_gate->Check(), *context);
  if (!has_room.ok()) co_return has_room;
  request.ticket = std::make_unique<AdmissionGate::Ticket>(context->admission_gate);
  CO_ASSIGN_OR_RETURN(RequestHeaders headers, ReadHeaders(exchange.request(), *context));
  if (headers.timeout_s) {
    request.deadline = exchange.request().arrival_monotonic + *headers.timeout_s;
  }
  request.trace = BeginTrace(exchange.request(), context);

  // 2. Parse and 3. process, in one trip to the text pool unless something else is needed between.
  std::optional<std::string> adapter;  // the folder of one that is to be loaded
  auto work = [&headers, &adapter, context, call,
               body = std::move(
                   exchange.mutable_request().body)]() -> StatusOr<std::optional<PreparedRequest>> {
    RETURN_IF_ERROR(ParseBody(body, *context, call));
    adapter = FindAdapterFolder(*context, *headers.adapters, call->request().model);
    if (adapter || call->needs_fetch()) return std::optional<PreparedRequest>();
    ASSIGN_OR_RETURN(PreparedRequest prepared, ProcessOrGiveUp(headers, *context, call));
    return std::optional(std::move(prepared));
  };
  auto prepared = co_await OnPool(context->text_pool, std::move(work));
  if (!prepared.ok()) co_return prepared.status();
  if (*prepared) {
    request.prepared = std::move(**prepared);
  } else {
    if (adapter) {
      const Status loaded = co_await LoadFromFolder(context, *call->request().model, *adapter);
      if (!loaded.ok()) co_return loaded;
      headers.adapters = context->adapters;
    }
    const Status fetched = co_await FetchAll(exchange, context, request.deadline, call);
    if (!fetched.ok()) co_return fetched;
    auto rest = [&headers, context, call] { return ProcessOrGiveUp(headers, *context, call); };
    auto whole = co_await OnPool(context->text_pool, std::move(rest));
    if (!whole.ok()) co_return whole.status();
    request.prepared = std::move(*whole);
  }
  const int64_t num_prompt_tokens = request.prepared.processed.num_prompt_tokens;
  const Status in_time =
      Admitted(context->admission_gate->CheckPrompts(num_prompt_tokens), *context);
  if (!in_time.ok()) co_return in_time;
  WarnOfIgnored(request.prepared, context);
  co_return std::move(request);
}

namespace {

// What an engine refuses of a request that was checked here is its constraint, unless several of
// its fields do.
Status AboutConstraint(std::string_view field, const std::string& tool_tag, const MessagePlan* plan,
                       const Status& error) {
  if (error.code() != StatusCode::kInvalidArgument || !error.param().empty()) return error;
  if (error.message().starts_with(wire::kNoTokenLeft)) return error;
  const std::optional<SchemaFault> fault = ReadFault(error.message());
  std::optional<SchemaOrigin> origin;
  if (plan != nullptr) {
    origin = OriginOfSchema(tool_tag, *plan, fault ? std::optional(fault->index) : std::nullopt);
  }
  if (!origin) return Status(error).WithParam(std::string(field));
  const std::string reason = fault ? fault->reason : error.message();
  if (origin->field.empty()) return InvalidArgumentError(reason).WithParam(std::string(field));
  return InvalidSchemaOf(origin->function, reason).WithParam(origin->field);
}

}  // namespace

Awaitable<void> Run(Exchange& exchange, ApiContext* context, const GenerationCall& call,
                    AdmittedRequest request) {
  if (exchange.closed()) co_return;
  if (request.prepared.processed.beams) {
    co_await SearchBeams(exchange, context, call, std::move(request));
    co_return;
  }

  // 4. Run: outputs reach the writer through callbacks; the coroutine waits for the end.
  WriterInput& input = request.prepared.writer;
  const bool stream = input.stream;
  const bool several = request.prepared.processed.requests.size() > 1;
  const std::string_view constraint_field = request.prepared.constraint_field;
  const std::string tool_tag = std::move(request.prepared.processed.tool_tag);
  const std::shared_ptr<const MessagePlan> plan = request.prepared.processed.message;
  const auto generation =
      MakeGeneration(context, call, exchange.request().arrival_monotonic, request);
  const auto sender = std::make_shared<StreamSender>(&exchange, generation.get(), several);
  input.out = sender->buffer();
  const auto writer = call.MakeWriter(std::move(input));
  std::function<void()> on_progress;
  if (stream) on_progress = [raw = sender.get()] { raw->OnProgress(); };
  const Status started = generation->Start(writer.get(), std::move(on_progress));
  if (!started.ok()) co_return RespondWithError(exchange, *context, call, started);
  exchange.OnClosed([raw = generation.get()] { raw->Abort(); });
  co_await generation->WaitForEnd();
  if (generation->aborted()) co_return;

  // 5. Write.
  if (!generation->error().ok()) {
    if (!sender->started()) {
      const Status error =
          AboutConstraint(constraint_field, tool_tag, plan.get(), generation->error());
      co_return RespondWithError(exchange, *context, call, error);
    }
    writer->WriteError(generation->error());
  }
  if (stream) {
    sender->Finish();
  } else {
    HeaderList headers = LoadReport(exchange.request(), context->metrics);
    for (auto& header : writer->headers()) headers.push_back(std::move(header));
    exchange.Respond(
        {200, std::move(*sender->buffer()), writer->content_type(), std::move(headers)});
  }
}

}  // namespace tandem
