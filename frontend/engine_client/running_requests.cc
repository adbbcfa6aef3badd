#include "frontend/engine_client/running_requests.h"

#include <algorithm>
#include <sstream>
#include <string_view>
#include <utility>

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

bool IsNamed(const wire::EngineCoreRequest& request, const std::vector<std::string>& names) {
  const std::string_view id = request.request_id;
  const std::string_view external_id = request.external_req_id ? *request.external_req_id : id;
  const std::string_view response_id = ResponseId(external_id);
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    return name == id || name == external_id || name == response_id;
  });
}

}  // namespace

RunningRequests::RunningRequests(int num_engines)
    : num_per_engine_(static_cast<size_t>(num_engines)),
      aborts_(static_cast<size_t>(num_engines)) {}

void RunningRequests::Add(wire::EngineCoreRequest request, int engine_index, OutputSink* sink) {
  ++num_per_engine_[static_cast<size_t>(engine_index)];
  const RequestId request_id = request.request_id;
  running_.emplace(request_id, Running{std::move(request), {}, sink, engine_index});
}

OutputSink* RunningRequests::Remove(Map::iterator position) {
  OutputSink* const sink = position->second.sink;
  --num_per_engine_[static_cast<size_t>(position->second.engine_index)];
  running_.erase(position);
  return sink;
}

void RunningRequests::Fail(Map::iterator position, const Status& status) {
  Remove(position)->OnError(status);
}

void RunningRequests::HandleOutput(const wire::EngineCoreOutput& output, double timestamp) {
  auto position = running_.find(output.request_id);
  if (position == running_.end()) return;  // aborted, or sent to an engine that has died since
  if (output.num_nans_in_logits > 0) {
    position->second.sink->OnNansInLogits();
    position = running_.find(output.request_id);
    if (position == running_.end()) return;
  }
  if (output.error) return Fail(position, ToStatus(*output.error));
  if (output.finish_reason == wire::FinishReason::kError) {
    return Fail(position, InternalError("the engine failed on this request"));
  }
  if (output.finished()) return Remove(position)->OnOutput(output, timestamp);
  Running& running = position->second;
  running.emitted.insert(running.emitted.end(), output.new_token_ids.begin(),
                         output.new_token_ids.end());
  running.sink->OnOutput(output, timestamp);
}

void RunningRequests::HandleFinished(const RequestId& request_id) {
  const auto position = running_.find(request_id);
  if (position == running_.end()) return;  // finished or aborted, as it should be
  Fail(position, InternalError("the engine dropped request " + request_id));
}

size_t RunningRequests::FailAllOf(int engine_index, const Status& why) {
  std::vector<RequestId> ids;
  for (const auto& [request_id, running] : running_) {
    if (running.engine_index == engine_index) ids.push_back(request_id);
  }
  for (const RequestId& request_id : ids) {
    const auto position = running_.find(request_id);
    if (position != running_.end()) Fail(position, why);
  }
  return ids.size();
}

void RunningRequests::Abort(const RequestId& request_id) {
  const auto position = running_.find(request_id);
  if (position == running_.end()) return;
  aborts_[static_cast<size_t>(position->second.engine_index)].push_back(request_id);
  Remove(position);
}

size_t RunningRequests::AbortNamed(const std::vector<std::string>& names) {
  std::vector<RequestId> ids;
  for (const auto& [request_id, running] : running_) {
    if (names.empty() || IsNamed(running.request, names)) ids.push_back(request_id);
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
  for (const auto& [request_id, running] : running_) ids.push_back(request_id);
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
    text << "  " << id << " engine " << running.engine_index << " prompt "
         << running.request.prompt_token_ids.size() << " emitted " << running.emitted.size()
         << "\n";
  }
  return text.str();
}

}  // namespace tandem
