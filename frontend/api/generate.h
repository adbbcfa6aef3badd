#pragma once

// Runs every request that generates, whatever its endpoint: one coroutine of five stages, which
// generate.cc shows from top to bottom.
//   1. admit     refuse while too many requests wait; read the headers
//   2. parse     body → the endpoint's request              (on the text pool)
//   3. process   request → engine requests                  (on the text pool)
//   4. run       engine outputs → deltas → the writer's text, sent as it comes when streaming
//   5. write     the body, or the end of the stream, or the error
// A client that goes away ends its request in any stage; the engine requests are aborted.
// Thread: the exchange's shard.

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "frontend/api/context.h"
#include "frontend/api/generation.h"
#include "frontend/api/generation_call.h"
#include "frontend/api/request_headers.h"
#include "frontend/http/router.h"
#include "frontend/net/net.h"
#include "frontend/processing/output_processor.h"
#include "frontend/tracing/request_trace.h"

namespace tandem {

// Makes the call of one endpoint; the context outlives it.
using MakeCall = std::unique_ptr<GenerationCall> (*)(const ApiContext& context);

Awaitable<void> Generate(Exchange& exchange, ApiContext* context, MakeCall make_call);

// ---- Generate in two halves, for endpoints that do something else in between ----

// A request that is ready to run, with its place in the queue.
struct AdmittedRequest;

// Stages 1 to 3. The call is borrowed until the request has ended.
Awaitable<StatusOr<AdmittedRequest>> Admit(Exchange& exchange, ApiContext* context,
                                           GenerationCall* call);
// Stages 4 and 5.
Awaitable<void> Run(Exchange& exchange, ApiContext* context, const GenerationCall& call,
                    AdmittedRequest request);
// The engine requests of an admitted one. Its writer's input is left in place.
std::unique_ptr<Generation> MakeGeneration(ApiContext* context, const GenerationCall& call,
                                           double arrival_monotonic, AdmittedRequest& request);
// What a parsed request refers to, until it is whole.
Awaitable<Status> FetchAll(Exchange& exchange, const ApiContext* context,
                           std::optional<double> deadline, GenerationCall* call);
// With a Retry-After that follows from the queue where the queue is the reason.
void RespondWithError(Exchange& exchange, const ApiContext& context, const GenerationCall& call,
                      const Status& status);

// ---- Stages 2 and 3, for tests without sockets. Pure; any thread. ----

// A request that is ready to run.
struct PreparedRequest {
  ProcessedRequest processed;
  OutputOptions output;
  WriterInput writer;  // without prompts and out, which stage 4 adds
  std::vector<RetiredField> retired_fields;
  std::string_view constraint_field;  // whose grammar an engine may refuse; empty: there is none
};

Status ParseBody(std::string_view body, const ApiContext& context, GenerationCall* call);
StatusOr<PreparedRequest> ProcessRequest(const RequestHeaders& headers, const ApiContext& context,
                                         GenerationCall* call);

struct AdmittedRequest {
  std::unique_ptr<AdmissionGate::Ticket> ticket;
  std::optional<double> deadline;  // monotonic
  std::unique_ptr<RequestTrace> trace;
  PreparedRequest prepared;
};

}  // namespace tandem
