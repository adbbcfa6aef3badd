#include "frontend/engine_client/engine_client.h"

#include <algorithm>
#include <limits>
#include <sstream>
#include <utility>

#include "common/check.h"
#include "common/log.h"
#include "proto_msgpack/codec.h"
#include "proto_msgpack/wire_endpoint.h"

namespace tandem {
namespace {

// "cmpl-x-0" → "cmpl-x", others as they are.
std::string_view AnswerId(std::string_view external_id) {
  if (!external_id.starts_with("cmpl-")) return external_id;
  return external_id.substr(0, external_id.rfind('-'));
}

}  // namespace

EngineClient::EngineClient(EngineClientOptions options, wire::FrontendEndpoint* endpoint, Post post)
    : options_(options),
      endpoint_(endpoint),
      post_(std::move(post)),
      alive_(std::make_shared<char>()),
      events_([this] { RunOnShard([this] { DrainEvents(); }); }),
      engines_(static_cast<size_t>(options.num_engines)) {
  for (size_t i = 0; i < engines_.size(); ++i) {
    engines_[i].why_not = UnavailableError("engine " + std::to_string(i) + " is starting");
  }
  endpoint_->SetClient(
      options_.client_index,
      {.on_outputs =
           [this](wire::EngineCoreOutputs outputs) {
             Event event;
             event.outputs = std::move(outputs);
             events_.Push(std::move(event));
           },
       .on_engine_ready =
           [this](int engine_index, const wire::EngineCoreReadyResponse& response) {
             Event event;
             event.kind = Event::Kind::kReady;
             event.engine_index = engine_index;
             event.response = response;
             events_.Push(std::move(event));
           },
       .on_engine_lost =
           [this](int engine_index, const Status& why) {
             Event event;
             event.kind = Event::Kind::kLost;
             event.engine_index = engine_index;
             event.why = why;
             events_.Push(std::move(event));
           }});
}

EngineClient::~EngineClient() = default;

// ---- To the engines ----

Status EngineClient::CheckTakesRequests(int engine_index) const {
  const Engine& engine = engines_[static_cast<size_t>(engine_index)];
  if (!engine.ready) return engine.why_not;
  if (engine.unheard_bytes <= options_.max_unheard_bytes) return OkStatus();
  return UnavailableError("engine " + std::to_string(engine_index) +
                          " says nothing and has not taken " +
                          std::to_string(engine.unheard_bytes) + " bytes of earlier requests");
}

// vLLM's load score: what is known to be there, and a penalty for waiting behind a full cache. Ties
// go around.
StatusOr<int> EngineClient::ChooseEngine(const wire::EngineCoreRequest& request) {
  if (request.data_parallel_rank) {
    const int rank = *request.data_parallel_rank;
    if (rank < 0 || rank >= options_.num_engines) {
      return InvalidArgumentError("data_parallel_rank is " + std::to_string(rank) + ", there are " +
                                  std::to_string(options_.num_engines) + " engines");
    }
    RETURN_IF_ERROR(CheckTakesRequests(rank));
    return rank;
  }
  double best_score = std::numeric_limits<double>::infinity();
  size_t best = engines_.size();
  for (size_t i = 0; i < engines_.size(); ++i) {
    const size_t index = (next_scan_start_ + i) % engines_.size();
    const Engine& engine = engines_[index];
    if (!CheckTakesRequests(static_cast<int>(index)).ok()) continue;
    const double own =
        static_cast<double>(options_.num_clients) * static_cast<double>(engine.num_inflight);
    const double score = std::max(own, engine.num_waiting + engine.num_running) +
                         engine.num_waiting * 6 * std::max(0.0, engine.kv_cache_usage - 0.5);
    if (score < best_score) {
      best_score = score;
      best = index;
    }
  }
  next_scan_start_ = (next_scan_start_ + 1) % engines_.size();
  if (best == engines_.size()) return CheckTakesRequests(0);
  return static_cast<int>(best);
}

Status EngineClient::Submit(wire::EngineCoreRequest request, OutputSink* sink) {
  RETURN_IF_ERROR(ended_);
  if (running_.size() >= options_.max_inflight) {
    return ResourceExhaustedError("too many requests: " + std::to_string(running_.size()) +
                                  " are running or waiting, the limit is " +
                                  std::to_string(options_.max_inflight));
  }
  if (running_.contains(request.request_id)) {
    return AlreadyExistsError("request id " + request.request_id + " is in use");
  }
  ASSIGN_OR_RETURN(const int engine_index, ChooseEngine(request));
  Engine& engine = engines_[static_cast<size_t>(engine_index)];
  ++engine.num_inflight;
  engine.num_waiting += options_.num_clients;  // until its next stats say better
  request.client_index = options_.client_index;
  wire::EncodedMessage message;
  wire::Encode(request, &message);
  Send(engine_index, wire::RequestType::kAdd, std::move(message));
  const RequestId request_id = request.request_id;
  running_.emplace(request_id, Running{std::move(request), {}, sink, engine_index});
  return OkStatus();
}

void EngineClient::Abort(const RequestId& request_id) {
  const auto position = running_.find(request_id);
  if (position == running_.end()) return;
  Engine& engine = engines_[static_cast<size_t>(position->second.engine_index)];
  --engine.num_inflight;
  engine.aborts.push_back(request_id);
  running_.erase(position);
  if (!is_draining_) SendAborts();
}

void EngineClient::Abort(const std::vector<RequestId>& request_ids) {
  EndEach(request_ids, [](const RequestId&, OutputSink*) {});
}

size_t EngineClient::EndAborted(const std::vector<std::string>& names) {
  std::vector<RequestId> ids;
  for (const auto& [request_id, running] : running_) {
    const std::optional<std::string>& external = running.request.external_req_id;
    const std::string_view external_id = external ? std::string_view(*external) : request_id;
    const std::string_view answer_id = AnswerId(external_id);
    const bool is_named = std::any_of(names.begin(), names.end(), [&](const std::string& name) {
      return name == request_id || name == external_id || name == answer_id;
    });
    if (names.empty() || is_named) ids.push_back(request_id);
  }
  return EndEach(ids, [](const RequestId& request_id, OutputSink* sink) {
    wire::EngineCoreOutput output;
    output.request_id = request_id;
    output.finish_reason = wire::FinishReason::kAbort;
    sink->OnOutput(output, /*timestamp=*/0);  // no tokens: nothing is timed by it
  });
}

void EngineClient::EndAll(const Status& why) {
  ended_ = why;
  std::vector<RequestId> ids;
  for (const auto& [request_id, running] : running_) ids.push_back(request_id);
  EndEach(ids, [&why](const RequestId&, OutputSink* sink) { sink->OnError(why); });
}

size_t EngineClient::EndEach(
    const std::vector<RequestId>& request_ids,
    const std::function<void(const RequestId& request_id, OutputSink* sink)>& last_call) {
  const bool was_draining = std::exchange(is_draining_, true);
  size_t num_ended = 0;
  for (const RequestId& request_id : request_ids) {
    const auto position = running_.find(request_id);
    if (position == running_.end()) continue;  // ended from another's last call
    OutputSink* const sink = position->second.sink;
    Abort(request_id);
    last_call(request_id, sink);
    ++num_ended;
  }
  is_draining_ = was_draining;
  if (!is_draining_) SendAborts();
  return num_ended;
}

void EngineClient::RunOnShard(std::function<void()> function) {
  post_([function = std::move(function), alive = std::weak_ptr<char>(alive_)] {
    if (!alive.expired()) function();
  });
}

void EngineClient::SendAborts() {
  for (size_t i = 0; i < engines_.size(); ++i) {
    wire::AbortRequest& aborts = engines_[i].aborts;
    if (aborts.empty()) continue;
    wire::EncodedMessage message;
    wire::Encode(aborts, &message);
    aborts.clear();
    if (!engines_[i].ready) continue;  // it forgot them when it died
    Send(static_cast<int>(i), wire::RequestType::kAbort, std::move(message));
  }
}

// What an engine that stands still does not take waits in our memory, even when its clients have
// left. Half-way to the limit the engine is asked a question: requests that all end in aborts are
// taken without a word.
void EngineClient::Send(int engine_index, wire::RequestType type, wire::EncodedMessage message) {
  size_t num_bytes = message.body.size();
  for (const std::string& frame : message.aux) num_bytes += frame.size();
  endpoint_->Send(options_.client_index, engine_index, type, std::move(message));
  size_t& unheard = engines_[static_cast<size_t>(engine_index)].unheard_bytes;
  const size_t half = options_.max_unheard_bytes / 2;
  const bool was_below = unheard <= half;
  unheard += num_bytes;
  if (was_below && unheard > half) CallUtility(engine_index, "is_sleeping", {}, [](const auto&) {});
}

void EngineClient::CallUtility(int engine_index, std::string_view method, wire::RawValue args,
                               UtilityCallback callback) {
  CHECK(engine_index >= 0 && engine_index < options_.num_engines) << engine_index;
  const Engine& engine = engines_[static_cast<size_t>(engine_index)];
  if (!engine.ready) return callback(engine.why_not);
  const uint64_t call_id = next_call_id_++;
  calls_.emplace(call_id, PendingCall{engine_index, std::move(callback)});
  wire::EncodedMessage message;
  wire::Encode(
      wire::UtilityRequest{options_.client_index, call_id, std::string(method), std::move(args)},
      &message);
  Send(engine_index, wire::RequestType::kUtility, std::move(message));
}

// ---- From the engines ----

void EngineClient::DrainEvents() {
  if (!events_.Drain(&drained_)) return;
  is_draining_ = true;
  for (Event& event : drained_) {
    switch (event.kind) {
      case Event::Kind::kOutputs:
        HandleOutputs(event.outputs);
        endpoint_->Recycle(std::move(event.outputs));
        break;
      case Event::Kind::kReady:
        HandleReady(event.engine_index, event.response);
        break;
      case Event::Kind::kLost:
        HandleLost(event.engine_index, event.why);
        break;
    }
  }
  drained_.clear();
  is_draining_ = false;
  SendAborts();
}

void EngineClient::HandleOutputs(const wire::EngineCoreOutputs& outputs) {
  engines_[static_cast<size_t>(outputs.engine_index)].unheard_bytes = 0;
  for (const wire::EngineCoreOutput& output : outputs.outputs) {
    HandleOutput(output, outputs.timestamp);
  }
  if (outputs.utility_output) HandleUtility(*outputs.utility_output);
  for (const RequestId& request_id : outputs.finished_requests) {
    // Ordinary finishes and our own aborts are forgotten by now.
    const auto position = running_.find(request_id);
    if (position == running_.end()) continue;
    EndWithError(position, InternalError("the engine dropped request " + request_id));
  }
  if (outputs.scheduler_stats) {
    HandleStats(outputs.engine_index, *outputs.scheduler_stats, outputs.timestamp);
  }
}

void EngineClient::HandleOutput(const wire::EngineCoreOutput& output, double timestamp) {
  const auto position = running_.find(output.request_id);
  if (position == running_.end()) return;  // aborted, or of an engine's former life
  if (output.num_nans_in_logits > 0) position->second.sink->OnNansInLogits();
  if (output.error) return EndWithError(position, ToStatus(*output.error));
  if (output.finish_reason == wire::FinishReason::kError) {
    return EndWithError(position, InternalError("the engine failed on this request"));
  }
  Running& running = position->second;
  OutputSink* const sink = running.sink;
  if (output.finished()) {
    --engines_[static_cast<size_t>(running.engine_index)].num_inflight;
    running_.erase(position);
  } else {
    running.emitted.insert(running.emitted.end(), output.new_token_ids.begin(),
                           output.new_token_ids.end());
  }
  sink->OnOutput(output, timestamp);
}

void EngineClient::EndWithError(RunningMap::iterator position, const Status& status) {
  OutputSink* const sink = position->second.sink;
  --engines_[static_cast<size_t>(position->second.engine_index)].num_inflight;
  running_.erase(position);
  sink->OnError(status);
}

void EngineClient::HandleUtility(const wire::UtilityOutput& reply) {
  auto call = calls_.extract(reply.call_id);
  if (call.empty()) return;
  if (reply.failure_message) {
    call.mapped().callback(InternalError(*reply.failure_message));
  } else {
    call.mapped().callback(reply.result);
  }
}

void EngineClient::HandleStats(int engine_index, const wire::SchedulerStats& stats,
                               double timestamp) {
  Engine& engine = engines_[static_cast<size_t>(engine_index)];
  engine.num_waiting = static_cast<double>(stats.num_waiting_reqs);
  engine.num_running = static_cast<double>(stats.num_running_reqs);
  engine.kv_cache_usage = stats.kv_cache_usage;
  if (on_stats_) on_stats_(engine_index, stats, timestamp);
}

void EngineClient::HandleReady(int engine_index, const wire::EngineCoreReadyResponse& response) {
  Engine& engine = engines_[static_cast<size_t>(engine_index)];
  engine.ready = true;
  engine.was_ready = true;
  engine.response = response;
  engine.num_waiting = engine.num_running = engine.kv_cache_usage = 0;
  engine.unheard_bytes = 0;
  UpdateEngineInfo();
  if (on_health_change_) on_health_change_();
}

void EngineClient::HandleLost(int engine_index, const Status& why) {
  Engine& engine = engines_[static_cast<size_t>(engine_index)];
  engine.ready = false;
  engine.why_not = why;
  if (on_health_change_) on_health_change_();
  // A sink may submit or abort from its last call, so each step looks the request up again.
  std::vector<RequestId> lost;
  for (const auto& [request_id, running] : running_) {
    if (running.engine_index == engine_index) lost.push_back(request_id);
  }
  for (const RequestId& request_id : lost) {
    const auto position = running_.find(request_id);
    if (position != running_.end()) EndWithError(position, why);
  }
  std::vector<UtilityCallback> callbacks;
  for (auto call = calls_.begin(); call != calls_.end();) {
    if (call->second.engine_index != engine_index) {
      ++call;
      continue;
    }
    callbacks.push_back(std::move(call->second.callback));
    call = calls_.erase(call);
  }
  for (const UtilityCallback& callback : callbacks) callback(why);
  if (!lost.empty()) {
    LOG_ERROR << "engine " << engine_index << " took " << lost.size() << " requests with it";
  }
}

Status EngineClient::health() const {
  for (const Engine& engine : engines_) {
    if (!engine.ready) return engine.why_not;
  }
  return OkStatus();
}

Status EngineClient::CheckAlive(double now) {
  RETURN_IF_ERROR(health());
  if (options_.hang_timeout_s <= 0) return OkStatus();
  for (int i = 0; i < options_.num_engines; ++i) {
    Engine& engine = engines_[static_cast<size_t>(i)];
    if (!engine.asked_at) {
      engine.asked_at = now;
      CallUtility(i, "is_sleeping", {}, [&engine](const auto&) { engine.asked_at.reset(); });
    } else if (now - *engine.asked_at >= options_.hang_timeout_s) {
      return UnavailableError("engine " + std::to_string(i) + " has not answered for " +
                              std::to_string(static_cast<int64_t>(now - *engine.asked_at)) + " s");
    }
  }
  return OkStatus();
}

void EngineClient::UpdateEngineInfo() {
  for (const Engine& engine : engines_) {
    if (!engine.was_ready) return;
  }
  engine_info_ = engines_[0].response;
  engine_info_.num_gpu_blocks = 0;
  for (const Engine& engine : engines_) {
    engine_info_.num_gpu_blocks += engine.response.num_gpu_blocks;
    engine_info_.max_model_len =
        std::min(engine_info_.max_model_len, engine.response.max_model_len);
  }
  has_engine_info_ = true;
}

int EngineClient::EngineOf(const RequestId& request_id) const {
  const auto it = running_.find(request_id);
  return it == running_.end() ? 0 : it->second.engine_index;
}

const wire::EngineCoreReadyResponse* EngineClient::engine_info() const {
  return has_engine_info_ ? &engine_info_ : nullptr;
}

std::string EngineClient::DebugString() const {
  std::ostringstream text;
  text << "client " << options_.client_index << ": " << running_.size() << " running\n";
  for (size_t i = 0; i < engines_.size(); ++i) {
    const Engine& engine = engines_[i];
    text << "  engine " << i
         << (engine.ready ? " ready" : " not ready: " + engine.why_not.message()) << ", "
         << engine.num_inflight << " in flight\n";
  }
  for (const auto& [id, running] : running_) {
    text << "  " << id << " engine " << running.engine_index << " prompt "
         << running.request.prompt_token_ids.size() << " emitted " << running.emitted.size()
         << "\n";
  }
  return text.str();
}

Status ToStatus(const wire::EngineCoreError& error) {
  if (error.code == wire::kErrorValidation) return InvalidArgumentError(error.message);
  if (error.retryable) return UnavailableError(error.message);
  return InternalError(error.message);
}

}  // namespace tandem
