#include "frontend/engine_client/running_requests.h"

#include <algorithm>
#include <sstream>
#include <string_view>
#include <utility>

#include "common/check.h"
#include "proto_msgpack/engine_end.h"
#include "proto_msgpack/lora_request.h"

namespace tandem {
namespace {

// "cmpl-x-0" → "cmpl-x", others as they are.
std::string_view ResponseId(std::string_view external_id) {
  if (!external_id.starts_with("cmpl-")) return external_id;
  return external_id.substr(0, external_id.rfind('-'));
}

Status ToStatus(const wire::EngineCoreError& error) {
  if (error.code == wire::kErrorValidation) return InvalidArgumentError(error.message);
  if (error.retryable) return UnavailableError(error.message);
  return InternalError(error.message);
}

bool IsNamed(const RequestId& id, const wire::EngineCoreRequest& request,
             const std::vector<std::string>& names) {
  const std::string_view external_id = request.external_req_id ? *request.external_req_id : id;
  const std::string_view response_id = ResponseId(external_id);
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    return name == id || name == external_id || name == response_id;
  });
}

constexpr char kResendMark = '~';

// Without the number of a resend.
RequestId OwnId(const RequestId& sent_id) { return sent_id.substr(0, sent_id.rfind(kResendMark)); }

int64_t TokenBytes(size_t num_tokens) { return static_cast<int64_t>(num_tokens * sizeof(TokenId)); }

int64_t KeptBytes(const wire::EngineCoreRequest& request) {
  int64_t bytes = TokenBytes(request.prompt_token_ids.size());
  for (const std::string& frame : request.aux_frames) bytes += static_cast<int64_t>(frame.size());
  return bytes;
}

int64_t KeptBytes(const RunningRequest& running) {
  return KeptBytes(running.request) + TokenBytes(running.emitted.size());
}

}  // namespace

RunningRequests::RunningRequests(int num_engines, int64_t max_kept_bytes)
    : max_kept_bytes_(max_kept_bytes),
      num_per_engine_(2 * static_cast<size_t>(num_engines)),
      aborts_(num_per_engine_.size()) {}

void RunningRequests::Add(wire::EngineCoreRequest request, int engine_index, bool can_resume,
                          OutputSink* sink) {
  if (engine_index != kNoEngine) ++num_per_engine_[static_cast<size_t>(engine_index)];
  const RequestId request_id = request.request_id;
  RunningRequest& running = running_[request_id];
  running.num_prompt_tokens = request.prompt_token_ids.size();
  running.request = std::move(request);
  running.sink = sink;
  running.engine_index = engine_index;
  running.order = next_order_++;
  running.is_kept = true;
  kept_bytes_ += KeptBytes(running);
  if (!can_resume || kept_bytes_ > max_kept_bytes_) StopKeeping(&running);
}

void RunningRequests::AddPrefill(const RequestId& prefill_id, int engine_index, OutputSink* sink) {
  wire::EngineCoreRequest request;
  request.request_id = prefill_id;
  Add(std::move(request), engine_index, /*can_resume=*/false, sink);
  running_.find(prefill_id)->second.is_prefill = true;
  ++num_prefills_;
}

bool RunningRequests::HasRoomFor(const std::vector<wire::EngineCoreRequest>& requests) const {
  int64_t bytes = kept_bytes_;
  for (const wire::EngineCoreRequest& request : requests) bytes += KeptBytes(request);
  return bytes <= max_kept_bytes_;
}

RunningRequest* RunningRequests::Find(const RequestId& request_id) {
  const auto position = running_.find(request_id);
  return position == running_.end() ? nullptr : &position->second;
}

RunningRequests::Map::iterator RunningRequests::FindSent(const RequestId& sent_id) {
  auto position = running_.find(sent_id);
  if (position == running_.end()) position = running_.find(OwnId(sent_id));
  const bool is_current =
      position != running_.end() && position->second.request.request_id == sent_id;
  return is_current ? position : running_.end();
}

void RunningRequests::KeepOutput(RunningRequest* running, const std::vector<TokenId>& token_ids) {
  if (!running->is_kept) return;
  running->emitted.insert(running->emitted.end(), token_ids.begin(), token_ids.end());
  kept_bytes_ += TokenBytes(token_ids.size());
  if (kept_bytes_ > max_kept_bytes_) StopKeeping(running);
}

void RunningRequests::StopKeeping(RunningRequest* running) {
  kept_bytes_ -= KeptBytes(*running);
  running->is_kept = false;
  running->request.prompt_token_ids = {};
  running->request.aux_frames = {};
  running->emitted = {};
}

OutputSink* RunningRequests::Remove(Map::iterator position) {
  RunningRequest& running = position->second;
  OutputSink* const sink = running.sink;
  if (running.is_kept) StopKeeping(&running);
  if (running.is_prefill) --num_prefills_;
  if (running.engine_index != kNoEngine) {
    --num_per_engine_[static_cast<size_t>(running.engine_index)];
  }
  running_.erase(position);
  return sink;
}

void RunningRequests::Fail(const RequestId& request_id, const Status& status) {
  const auto position = running_.find(request_id);
  if (position != running_.end()) Remove(position)->OnError(status);
}

namespace {

void UseNextId(RunningRequest* running) {
  RequestId& id = running->request.request_id;
  const RequestId own_id = running->num_resends == 0 ? id : OwnId(id);
  id = own_id + kResendMark + std::to_string(++running->num_resends);
}

bool IsEngineEnd(const wire::EngineCoreOutput& output) {
  const auto* const why = std::get_if<std::string>(&output.stop_reason);
  return output.finish_reason == wire::FinishReason::kAbort && why != nullptr &&
         *why == wire::kEngineEnds;
}

}  // namespace

void RunningRequests::HandleOutput(const wire::EngineCoreOutput& output, double timestamp) {
  auto position = FindSent(output.request_id);
  if (position == running_.end()) return;  // aborted, or sent to an engine that has died since
  if (output.num_nans_in_logits > 0) {
    position->second.sink->OnNansInLogits();
    position = FindSent(output.request_id);
    if (position == running_.end()) return;
  }
  if (output.error) return Remove(position)->OnError(ToStatus(*output.error));
  if (output.finish_reason == wire::FinishReason::kError) {
    return Remove(position)->OnError(InternalError("the engine failed on this request"));
  }
  // It goes on after the engine's loss; what that one still reports of it is of another id.
  if (position->second.is_kept && IsEngineEnd(output)) return UseNextId(&position->second);
  if (output.finished()) return Remove(position)->OnOutput(output, timestamp);
  RunningRequest& running = position->second;
  KeepOutput(&running, output.new_token_ids);
  running.deaths.OnOutput();
  running.sink->OnOutput(output, timestamp);
}

void RunningRequests::HandleFinished(const RequestId& sent_id) {
  const auto position = FindSent(sent_id);
  if (position == running_.end()) return;  // finished or aborted, as it should be
  Remove(position)->OnError(InternalError("the engine dropped request " + sent_id));
}

// ---- Engines come and go ----

std::vector<RequestId> RunningRequests::RequestsOf(int engine_index) const {
  std::vector<std::pair<int64_t, RequestId>> ordered;
  for (const auto& [request_id, running] : running_) {
    if (running.engine_index == engine_index) ordered.emplace_back(running.order, request_id);
  }
  std::sort(ordered.begin(), ordered.end());
  std::vector<RequestId> ids;
  ids.reserve(ordered.size());
  for (auto& [order, request_id] : ordered) ids.push_back(std::move(request_id));
  return ids;
}

void RunningRequests::MakePredecessor(int engine_index) {
  const int predecessor = Predecessor(engine_index, num_engines());
  for (auto& [request_id, running] : running_) {
    if (running.engine_index == engine_index) running.engine_index = predecessor;
  }
  const auto from = static_cast<size_t>(engine_index), to = static_cast<size_t>(predecessor);
  num_per_engine_[to] += std::exchange(num_per_engine_[from], 0);
  wire::AbortRequest aborts = std::exchange(aborts_[from], {});
  aborts_[to].insert(aborts_[to].end(), aborts.begin(), aborts.end());
}

void RunningRequests::LeaveEngine(RunningRequest* running) {
  CHECK(running->is_kept && running->engine_index != kNoEngine);
  --num_per_engine_[static_cast<size_t>(running->engine_index)];
  running->engine_index = kNoEngine;
  wire::EngineCoreRequest& request = running->request;
  request.prompt_token_ids.insert(request.prompt_token_ids.end(), running->emitted.begin(),
                                  running->emitted.end());
  running->emitted.clear();
  request.own.num_prior_output_tokens =
      static_cast<int32_t>(request.prompt_token_ids.size() - running->num_prompt_tokens);
  UseNextId(running);
}

void RunningRequests::TakeBack(RunningRequest* running) {
  QueueAbort(*running);
  LeaveEngine(running);
}

void RunningRequests::JoinEngine(RunningRequest* running, int engine_index) {
  CHECK_EQ(running->engine_index, kNoEngine);
  running->engine_index = engine_index;
  running->has_older_adapter = false;  // the engine takes what is there now
  ++num_per_engine_[static_cast<size_t>(engine_index)];
}

void RunningRequests::OnAdapterLoaded(const std::string& name, const std::string& path) {
  for (auto& [request_id, running] : running_) {
    if (running.request.lora_request.is_nil()) continue;
    const StatusOr<wire::LoraRequest> lora = wire::UnpackLoraRequest(running.request.lora_request);
    running.has_older_adapter |= lora.ok() && lora->name == name && lora->path == path;
  }
}

// ---- Aborts ----

void RunningRequests::QueueAbort(const RunningRequest& running) {
  if (running.engine_index == kNoEngine) return;
  aborts_[static_cast<size_t>(running.engine_index)].push_back(running.request.request_id);
}

void RunningRequests::QueueAbort(int engine_index, const RequestId& sent_id) {
  aborts_[static_cast<size_t>(engine_index)].push_back(sent_id);
}

void RunningRequests::QueueAborts(int engine_index) {
  for (const auto& [request_id, running] : running_) {
    if (running.engine_index == engine_index) QueueAbort(running);
  }
}

void RunningRequests::Abort(const RequestId& request_id) {
  const auto position = running_.find(request_id);
  if (position == running_.end()) return;
  QueueAbort(position->second);
  Remove(position);
}

size_t RunningRequests::AbortNamed(const std::vector<std::string>& names) {
  std::vector<RequestId> ids;
  for (const auto& [request_id, running] : running_) {
    if (running.is_prefill) continue;
    if (names.empty() || IsNamed(request_id, running.request, names)) ids.push_back(request_id);
  }
  return AbortEach(ids, [](const RequestId& request_id, OutputSink* sink) {
    wire::EngineCoreOutput output;
    output.request_id = request_id;
    output.finish_reason = wire::FinishReason::kAbort;
    sink->OnOutput(output, /*timestamp=*/0);  // no tokens, so no interval starts or ends here
  });
}

void RunningRequests::AbortAll(const Status& why) {
  std::vector<RequestId> ids;
  for (const auto& [request_id, running] : running_) {
    if (!running.is_prefill) ids.push_back(request_id);
  }
  AbortEach(ids, [&why](const RequestId&, OutputSink* sink) { sink->OnError(why); });
}

size_t RunningRequests::AbortEach(
    const std::vector<RequestId>& request_ids,
    const std::function<void(const RequestId& request_id, OutputSink* sink)>& last_call) {
  size_t num_ended = 0;
  for (const RequestId& request_id : request_ids) {
    const auto position = running_.find(request_id);
    if (position == running_.end()) continue;  // another sink's last call aborted it
    OutputSink* const sink = position->second.sink;
    Abort(request_id);
    last_call(request_id, sink);
    ++num_ended;
  }
  return num_ended;
}

wire::AbortRequest RunningRequests::TakeAborts(int engine_index) {
  return std::exchange(aborts_[static_cast<size_t>(engine_index)], {});
}

std::string RunningRequests::DebugString() const {
  std::ostringstream text;
  for (const auto& [id, running] : running_) {
    text << "  " << id << " engine ";
    if (running.engine_index == kNoEngine) {
      text << "none";
    } else if (running.engine_index >= num_engines()) {
      text << running.engine_index - num_engines() << "'s predecessor";
    } else {
      text << running.engine_index;
    }
    text << " prompt " << running.num_prompt_tokens << " emitted "
         << running.request.own.num_prior_output_tokens + running.emitted.size() << "\n";
  }
  return text.str();
}

}  // namespace tandem
