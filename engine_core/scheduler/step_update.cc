#include "engine_core/scheduler/step_update.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "common/check.h"
#include "engine_core/scheduler/stop_check.h"
#include "proto_msgpack/codec.h"

namespace tandem {
namespace {

wire::FinishReason FinishReasonOf(wire::RequestStatus status) {
  switch (status) {
    case wire::RequestStatus::kFinishedStopped:
      return wire::FinishReason::kStop;
    case wire::RequestStatus::kFinishedLengthCapped:
    case wire::RequestStatus::kFinishedIgnored:
      return wire::FinishReason::kLength;
    case wire::RequestStatus::kFinishedAborted:
      return wire::FinishReason::kAbort;
    case wire::RequestStatus::kFinishedRepetition:
      return wire::FinishReason::kRepetition;
    default:
      return wire::FinishReason::kError;
  }
}

// Drops the rows of tokens that were dropped.
void KeepRows(size_t num_rows, wire::LogprobsRows* rows) {
  if (static_cast<size_t>(rows->num_rows) <= num_rows) return;
  rows->num_rows = static_cast<int32_t>(num_rows);
  const size_t num_values = num_rows * static_cast<size_t>(rows->num_columns);
  rows->token_ids.resize(num_values);
  rows->logprobs.resize(num_values);
  rows->ranks.resize(num_rows);
}

// Moves what comes with the record's tokens.
void MoveExtra(RequestResult* extra, wire::EngineCoreOutput* record) {
  record->num_nans_in_logits = extra->num_nans_in_logits;
  if (extra->logprobs) {
    KeepRows(record->new_token_ids.size(), &*extra->logprobs);
    record->new_logprobs = std::move(*extra->logprobs);
  }
  if (extra->prompt_logprobs) record->new_prompt_logprobs = std::move(*extra->prompt_logprobs);
  if (extra->prompt_scores) record->prompt_token_id_logprobs = std::move(*extra->prompt_scores);
}

// vLLM's frontends look for a span's parent in the output that ends the request.
void ReturnTraceHeaders(const Request& request, wire::EngineCoreOutput* record) {
  if (!request.wire.trace_headers.is_nil()) record->trace_headers = request.wire.trace_headers;
}

bool IsRunning(const Request& request) { return request.status == wire::RequestStatus::kRunning; }

}  // namespace

void StepUpdate::Apply(const Step& step, ModelOutput* result, ClientOutputs* outputs) {
  CHECK_EQ(result->sampled_token_ids.size(), step.requests.size());
  if (parts_.transfers.has_connector()) {
    parts_.transfers.EndHeldBack(step);
    NoteFailedLoads(step, result->kv_transfers);
  }
  auto extra = result->results.begin();
  auto drafted = result->drafts.begin();
  auto mask = step.output.token_masks.begin();
  for (size_t i = 0; i < step.requests.size(); ++i) {
    OwnResult own{.sampled = result->sampled_token_ids[i]};
    if (extra != result->results.end() && static_cast<size_t>(extra->request_idx) == i) {
      own.extra = &*extra++;
    }
    if (drafted != result->drafts.end() && static_cast<size_t>(drafted->request_idx) == i) {
      own.drafted = &*drafted++;
    }
    if (mask != step.output.token_masks.end() && static_cast<size_t>(mask->request_idx) == i) {
      own.forced = step.output.Forced(*mask);
    }
    while (mask != step.output.token_masks.end() && static_cast<size_t>(mask->request_idx) == i) {
      ++mask;
    }
    UpdateRequest(step.output.requests[i], *result, own, step.requests[i], outputs);
  }
  if (!parts_.transfers.has_connector()) return;
  EndFailedLoads(outputs);
  parts_.transfers.Settle(result->kv_transfers);
  SendHeld(/*all=*/false, outputs);
}

void StepUpdate::SendHeld(bool all, ClientOutputs* outputs) {
  for (HeldOutput& held : parts_.transfers.TakeOutputs(all)) {
    const RequestId id = held.record.request_id;
    outputs->AddOutput(held.client_index, id) = std::move(held.record);
    outputs->AddFinished(held.client_index, id);
  }
}

void StepUpdate::UpdateRequest(const ScheduledRequest& scheduled, const ModelOutput& result,
                               const OwnResult& own, Request* request, ClientOutputs* outputs) {
  --request->num_steps_in_flight;
  const bool is_stale = request->num_stale_steps > 0;
  if (is_stale) --request->num_stale_steps;
  parts_.encoder_cache.ReleaseComputed(*request);
  const bool has_failed = own.extra != nullptr && !own.extra->status.ok();
  // Ended while the step ran, or it samples this position again.
  if (request->finished() || (is_stale && request->drops_stale_output)) {
    if (has_failed) parts_.kv_cache.Forget(request->block_hashes);
  } else if (has_failed) {
    Fail(request, *own.extra, outputs);
  } else if (scheduled.needs_sample && request->pools()) {
    if (!is_stale) --request->num_output_placeholders;
    EndPooled(request, own.extra, outputs);
  } else if (scheduled.needs_sample) {
    if (!is_stale) --request->num_output_placeholders;
    const std::span<const TokenId> accepted =
        parts_.drafts.Settle(scheduled, result, own.drafted, is_stale, request);
    AppendTokens(request, accepted, own, outputs);
  }
}

// Those that run lose what this step and those in flight computed on top of KV that is missing.
void StepUpdate::NoteFailedLoads(const Step& step, const KvTransferReport& report) {
  failed_.clear();
  const bool fails = parts_.config.kv_load_failure_policy == KvLoadFailurePolicy::kFail;
  for (const FailedLoad& load :
       parts_.transfers.NoteFailures(step, parts_.requests.running(), report)) {
    if (fails) failed_.push_back(load.request);
    if (IsRunning(*load.request)) {
      parts_.requests.RollBack(load.request, load.num_valid_tokens);
    } else if (!fails || !load.is_whole) {
      parts_.requests.CutLoad(load.request, load.num_valid_tokens);
    }
  }
}

void StepUpdate::EndFailedLoads(ClientOutputs* outputs) {
  for (Request* request : failed_) {
    EndWithError(request, InternalError("its KV could not be loaded"), outputs);
  }
}

// Appends the accepted drafts, the sampled token and what it forces, up to the first that ends the
// request.
void StepUpdate::AppendTokens(Request* request, std::span<const TokenId> accepted,
                              const OwnResult& own, ClientOutputs* outputs) {
  wire::EngineCoreOutput& record = outputs->AddOutput(request->wire.client_index, request->id());
  std::optional<Stop> stop;
  int32_t num_dropped = 0;
  const auto append = [&](TokenId token) {
    if (stop) {
      ++num_dropped;
      return;
    }
    CHECK_GE(token, 0) << "no token for " << request->id();
    request->token_ids.push_back(token);
    record.new_token_ids.push_back(token);
    stop = CheckStop(request->wire.sampling_params, request->token_ids, request->num_prompt_tokens,
                     parts_.config.max_model_len);
  };
  std::ranges::for_each(accepted, append);
  append(own.sampled);
  const int32_t num_computed_dropped = num_dropped;  // forced tokens are not computed
  std::ranges::for_each(own.forced, append);
  parts_.requests.ExtendHashes(request);
  RegisterComputed(num_computed_dropped, request);
  request->reasoning.Read(request->token_ids);
  record.events.swap(request->events);
  if (!request->has_output) record.prefill_stats = PrefillStatsOf(*request);
  request->has_output = true;
  if (own.extra != nullptr) MoveExtra(own.extra, &record);
  if (stop) {
    record.stop_reason = stop->reason;
    record.spec_decode_metrics = parts_.drafts.MetricsOf(*request);
    End(request, stop->status, outputs, &record);
  }
}

// record: the last one of the outputs.
void StepUpdate::End(Request* request, wire::RequestStatus status, ClientOutputs* outputs,
                     wire::EngineCoreOutput* record) {
  record->finish_reason = FinishReasonOf(status);
  ReturnTraceHeaders(*request, record);
  wire::RawValue params = parts_.requests.Finish(request, status);
  if (!params.is_nil()) record->kv_transfer_params = std::move(params);
  if (!parts_.transfers.WantsOutput(request->id())) return;
  const int32_t client_index = request->wire.client_index;
  parts_.transfers.HoldOutput({client_index, outputs->TakeLast(client_index)});
}

// Without a result where a replay has no model to compute it.
void StepUpdate::EndPooled(Request* request, RequestResult* result, ClientOutputs* outputs) {
  wire::EngineCoreOutput& record = outputs->AddOutput(request->wire.client_index, request->id());
  RegisterComputed(/*num_dropped=*/0, request);
  record.events.swap(request->events);
  if (!request->has_output) record.prefill_stats = PrefillStatsOf(*request);
  request->has_output = true;
  if (result != nullptr && result->pooled) {
    const PooledStates& pooled = *result->pooled;
    wire::TensorView tensor = {.dtype = "float32", .shape = {pooled.num_columns}, .data = {}};
    if (pooled.num_rows > 0) tensor.shape = {pooled.num_rows, pooled.num_columns};
    tensor.data = {reinterpret_cast<const char*>(pooled.values.data()),
                   pooled.values.size() * sizeof(float)};
    record.pooling_output = wire::PackedTensor(tensor);
  }
  End(request, wire::RequestStatus::kFinishedStopped, outputs, &record);
}

// A block that was filled by drafts or placeholders has a hash only now. num_dropped: accepted
// tokens that came after the end.
void StepUpdate::RegisterComputed(int32_t num_dropped, Request* request) {
  if (!IsRunning(*request)) return;
  parts_.kv_cache.RegisterUpTo(
      request->slot, request->sequence(),
      request->num_computed_tokens - request->num_output_placeholders - num_dropped);
}

// Ends a request that failed in the executor. Nothing it has written to the cache or read from it
// is trusted: blocks with NaN in them would fail every later request with this prefix.
void StepUpdate::Fail(Request* request, const RequestResult& result, ClientOutputs* outputs) {
  if (IsRunning(*request)) {
    parts_.kv_cache.ForgetBeyond(request->slot, request->sequence(), 0);
  } else {  // preempted since: its blocks may be on the free list and still registered
    parts_.kv_cache.Forget(request->block_hashes);
  }
  EndWithError(request, result.status, outputs, result.num_nans_in_logits);
}

void StepUpdate::EndWithError(Request* request, const Status& status, ClientOutputs* outputs,
                              int32_t num_nans_in_logits) {
  wire::EngineCoreOutput& record = outputs->AddOutput(request->wire.client_index, request->id());
  record.finish_reason = wire::FinishReason::kError;
  ReturnTraceHeaders(*request, &record);
  record.num_nans_in_logits = num_nans_in_logits;
  record.events.swap(request->events);
  // Masks that leave no token and an invalid grammar are the client's mistakes.
  const bool invalid = status.code() == StatusCode::kInvalidArgument;
  record.error = wire::EngineCoreError{
      .code = std::string(invalid ? wire::kErrorValidation : wire::kErrorInternal),
      .message = status.message()};
  parts_.requests.Finish(request, wire::RequestStatus::kFinishedError);
}

wire::PrefillStats StepUpdate::PrefillStatsOf(const Request& request) const {
  wire::PrefillStats stats;
  const int32_t num_registered =
      IsRunning(request) ? parts_.kv_cache.NumRegisteredTokens(request.slot) : 0;
  stats.num_prompt_tokens = request.num_prompt_tokens;
  const int32_t num_cached = request.first_known.total();
  stats.num_cached_tokens = num_cached;
  stats.num_local_cached_tokens = request.first_known.num_local;
  stats.num_external_cached_tokens = request.first_known.num_remote;
  stats.num_computed_tokens = request.num_prompt_tokens - num_cached;
  stats.num_cache_creation_tokens =
      std::max(0, std::min(num_registered, request.num_prompt_tokens) - num_cached);
  return stats;
}

}  // namespace tandem
