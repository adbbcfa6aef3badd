#include "tests/simulation/frontends.h"

#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace tandem {
namespace {

Status Wrong(const RequestId& id, const std::string& what) {
  return InternalError("client of " + id + ": " + what);
}

}  // namespace

void Frontends::ListenTo(const Scheduler* scheduler, const SimConnector* connector) {
  scheduler_ = scheduler;
  connector_ = connector;
  calls_.clear();  // to the previous engine, which will not reply
}

uint64_t Frontends::BeginCall() {
  calls_[next_call_id_] = false;
  return next_call_id_++;
}

Status Frontends::Receive(const ClientMessage& message) {
  const wire::EngineCoreOutputs& outputs = message.outputs;
  if (outputs.is_empty()) return InternalError("an empty message");
  if (outputs.timestamp < last_timestamp_) return InternalError("time runs backwards");
  last_timestamp_ = outputs.timestamp;
  if (outputs.utility_output) {
    if (!outputs.outputs.empty()) return InternalError("a reply together with outputs");
    RETURN_IF_ERROR(ReceiveReply(*outputs.utility_output));
  }
  for (const wire::EngineCoreOutput& output : outputs.outputs) {
    RETURN_IF_ERROR(CheckOutput(output));
    if (scenario_->streams.at(output.request_id).request.client_index != message.client_index) {
      return Wrong(output.request_id, "sent to another client");
    }
  }
  for (const RequestId& id : outputs.finished_requests) RETURN_IF_ERROR(CheckFinishedId(id));
  if (outputs.scheduler_stats) RETURN_IF_ERROR(CheckStats(*outputs.scheduler_stats));
  return OkStatus();
}

Status Frontends::ReceiveReply(const wire::UtilityOutput& answer) {
  const auto call = calls_.find(static_cast<uint64_t>(answer.call_id));
  if (call == calls_.end() || call->second) return InternalError("a reply to no call");
  call->second = true;
  return OkStatus();
}

Status Frontends::CheckOutput(const wire::EngineCoreOutput& output) {
  const auto found = scenario_->streams.find(output.request_id);
  if (found == scenario_->streams.end()) return Wrong(output.request_id, "is unknown");
  Stream& stream = found->second;
  // A refusal that was under way when its client aborted.
  const bool refusal = output.finish_reason == wire::FinishReason::kError &&
                       (stream.refused || stream.grammar_fails || stream.sent_while_paused);
  if (stream.ended && refusal) return OkStatus();
  if (!stream.sent || stream.ended) return Wrong(output.request_id, "gets a record after its end");
  RETURN_IF_ERROR(CheckTokens(output, &stream));
  stream.emitted.insert(stream.emitted.end(), output.new_token_ids.begin(),
                        output.new_token_ids.end());
  for (const wire::EngineCoreEvent& event : output.events) {
    if (event.type == wire::EventType::kPreempted) ++coverage_->num_preemptions;
  }
  if (output.finish_reason) {
    RETURN_IF_ERROR(CheckFinish(output, stream));
    stream.ended = true;
    if (output.finish_reason == wire::FinishReason::kError) ++coverage_->num_request_failures;
  } else if (output.new_token_ids.empty()) {
    return Wrong(output.request_id, "gets a record without tokens or end");
  } else if (stream.emitted.size() >= stream.answer.size()) {
    return Wrong(output.request_id, "should have ended");
  }
  return OkStatus();
}

Status Frontends::CheckTokens(const wire::EngineCoreOutput& output, Stream* stream) const {
  for (size_t i = 0; i < output.new_token_ids.size(); ++i) {
    const size_t position = stream->emitted.size() + i;
    if (stream->refused || position >= stream->answer.size() ||
        output.new_token_ids[i] != stream->answer[position]) {
      return Wrong(output.request_id, "wrong token at output " + std::to_string(position));
    }
  }
  if (output.new_token_ids.empty()) return OkStatus();
  const bool first = !std::exchange(stream->has_record, true);
  const bool is_first_output = first && stream->request.own.num_prior_output_tokens == 0;
  if (output.prefill_stats.has_value() != is_first_output) {
    return Wrong(output.request_id, "prefill_stats");
  }
  double last = 0;
  for (const wire::EngineCoreEvent& event : output.events) {
    if (event.timestamp < last || event.timestamp > last_timestamp_) {
      return Wrong(output.request_id, "event out of order");
    }
    last = event.timestamp;
  }
  if (!first) return OkStatus();
  if (output.events.size() < 2 || output.events[0].type != wire::EventType::kQueued ||
      output.events[1].type != wire::EventType::kScheduled) {
    return Wrong(output.request_id, "does not begin with QUEUED, SCHEDULED");
  }
  if (!is_first_output) return OkStatus();
  const wire::PrefillStats& stats = *output.prefill_stats;
  if (stats.num_cached_tokens + stats.num_computed_tokens != stats.num_prompt_tokens) {
    return Wrong(output.request_id, "prefill_stats do not add up");
  }
  return OkStatus();
}

Status Frontends::CheckFinish(const wire::EngineCoreOutput& output, const Stream& stream) const {
  switch (*output.finish_reason) {
    case wire::FinishReason::kAbort:
      return stream.may_abort ? OkStatus() : Wrong(output.request_id, "aborted by nobody");
    case wire::FinishReason::kError:
      return CheckError(output, stream);
    default:
      if (stream.emitted.size() != stream.answer.size() || *output.finish_reason != stream.reason ||
          output.stop_reason != stream.stop_reason) {
        return Wrong(output.request_id, "wrong end");
      }
      return OkStatus();
  }
}

Status Frontends::CheckError(const wire::EngineCoreOutput& output, const Stream& stream) const {
  if (!output.error) return Wrong(output.request_id, "an error without a message");
  if (output.error->code == wire::kErrorEnginePaused) {
    return stream.sent_while_paused ? OkStatus()
                                    : Wrong(output.request_id, "refused without a pause");
  }
  const bool lacks_grammar =
      stream.grammar_fails && stream.emitted.empty() && output.error->message == "no such rule";
  if (stream.refused || lacks_grammar) {
    return output.error->code == wire::kErrorValidation
               ? OkStatus()
               : Wrong(output.request_id, "error code " + output.error->code);
  }
  const bool may_fail_by_load =
      scenario_->options.scheduler.kv_load_failure_policy == KvLoadFailurePolicy::kFail;
  if (may_fail_by_load && connector_ && connector_->HasFailed(output.request_id)) return OkStatus();
  return stream.fails_after == stream.emitted.size()
             ? OkStatus()
             : Wrong(output.request_id, "failed: " + output.error->message);
}

Status Frontends::CheckFinishedId(const RequestId& id) {
  const auto stream = scenario_->streams.find(id);
  if (stream == scenario_->streams.end() || !stream->second.ended)
    return Wrong(id, "finished too early");
  if (++stream->second.num_finished_ids > 1) return Wrong(id, "finished twice");
  return OkStatus();
}

Status Frontends::CheckStats(const wire::SchedulerStats& stats) {
  const wire::PrefixCacheStats& prefix = stats.prefix_cache_stats;
  coverage_->num_hit_tokens += prefix.hits + prefix.preempted_hits;
  if (stats.num_running_reqs != static_cast<int64_t>(scheduler_->num_running()) ||
      stats.num_waiting_reqs + stats.num_skipped_waiting_reqs !=
          static_cast<int64_t>(scheduler_->num_waiting()) ||
      prefix.hits > prefix.queries || prefix.preempted_hits > prefix.preempted_queries) {
    return InternalError("wrong statistics");
  }
  return stats.spec_decoding_stats ? CheckDrafts(*stats.spec_decoding_stats) : OkStatus();
}

Status Frontends::CheckDrafts(const wire::SpecDecodingStats& stats) {
  coverage_->num_drafts += stats.num_draft_tokens;
  coverage_->num_accepted_drafts += stats.num_accepted_tokens;
  const auto sum = [](const std::vector<int64_t>& counts) {
    return std::accumulate(counts.begin(), counts.end(), int64_t{0});
  };
  if (stats.num_spec_tokens != scenario_->limits.drafts.num_speculative_tokens ||
      stats.num_drafts < 1 || stats.num_draft_tokens < stats.num_drafts ||
      stats.num_draft_tokens_per_pos[0] != stats.num_drafts ||
      sum(stats.num_draft_tokens_per_pos) != stats.num_draft_tokens ||
      sum(stats.num_accepted_tokens_per_pos) != stats.num_accepted_tokens ||
      stats.num_accepted_tokens > stats.num_draft_tokens) {
    return InternalError("wrong statistics of drafts");
  }
  return OkStatus();
}

Status Frontends::CheckEnd() const {
  for (const auto& [id, stream] : scenario_->streams) {
    if (!stream.ended) return Wrong(id, "never ended");
    if (stream.num_finished_ids != 1) return Wrong(id, "was not among the finished ids");
  }
  for (const auto& [id, answered] : calls_) {
    if (!answered) return InternalError("call " + std::to_string(id) + " got no reply");
  }
  return OkStatus();
}

}  // namespace tandem
