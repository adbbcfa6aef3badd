#include "frontend/engine_client/engine_client.h"

#include <numeric>
#include <random>
#include <utility>

#include "common/check.h"
#include "common/log.h"
#include "proto_msgpack/codec.h"
#include "proto_msgpack/wire_endpoint.h"

namespace tandem {
namespace {

// A utility that engines of other programs run in their loop and that changes nothing.
constexpr std::string_view kProbeMethod = "is_sleeping";

uint64_t RandomWord() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

}  // namespace

class EngineClient::Batch {
 public:
  explicit Batch(EngineClient* client) : client_(client) { ++client_->num_batches_; }
  Batch(const Batch&) = delete;
  ~Batch() {
    if (client_->num_batches_ == 1) {
      client_->ResumeWaiting();
      client_->SendAborts();  // they make the room for what is sent next
      client_->prefills_.SendWaiting();
    }
    if (--client_->num_batches_ == 0) client_->SendAborts();
  }

 private:
  EngineClient* const client_;
};

EngineClient::EngineClient(EngineClientOptions options, wire::FrontendEndpoint* endpoint,
                           Thread thread)
    : options_(options),
      endpoint_(endpoint),
      thread_(std::move(thread)),
      alive_(std::make_shared<char>()),
      next_seed_(RandomWord()),
      events_([this] { RunOnShard([this] { DrainEvents(); }); }),
      seats_(static_cast<size_t>(options.num_engines)),
      health_(options.num_engines, options.health),
      balancer_(options.num_engines, options.num_clients, options.client_index,
                options.num_prefill_engines),
      prefixes_(options.num_engines),
      running_(options.num_engines, options.resume.max_kept_bytes),
      prefills_(&running_, options.num_clients, PrefillCalls()),
      resumption_(options.resume, &running_, &health_, ResumptionCalls()) {
  std::iota(seats_.begin(), seats_.end(), 0);
  Register();
}

EngineClient::~EngineClient() = default;

void EngineClient::Register() {
  wire::FrontendClientCallbacks callbacks;
  callbacks.on_outputs = [this](wire::EngineCoreOutputs outputs) {
    Event event;
    event.outputs = std::move(outputs);
    events_.Push(std::move(event));
  };
  callbacks.on_engine_ready = [this](int seat, const wire::EngineCoreReadyResponse& response) {
    Event event;
    event.kind = Event::Kind::kReady;
    event.seat = seat;
    event.response = response;
    events_.Push(std::move(event));
  };
  callbacks.on_engine_lost = [this](int seat, const Status& why) {
    Event event;
    event.kind = Event::Kind::kLost;
    event.seat = seat;
    event.why = why;
    events_.Push(std::move(event));
  };
  endpoint_->SetClient(options_.client_index, std::move(callbacks));
}

void EngineClient::RunOnShard(std::function<void()> function) {
  thread_.post([function = std::move(function), alive = std::weak_ptr<char>(alive_)] {
    if (!alive.expired()) function();
  });
}

// ---- To the engines ----

void EngineClient::Abort(const RequestId& request_id) {
  const Batch batch(this);
  running_.Abort(request_id);
  prefills_.ForgetEnded();
}

void EngineClient::Abort(const std::vector<RequestId>& request_ids) {
  const Batch batch(this);
  for (const RequestId& request_id : request_ids) running_.Abort(request_id);
  prefills_.ForgetEnded();
}

size_t EngineClient::AbortNamed(const std::vector<std::string>& names) {
  const Batch batch(this);
  const size_t num_ended = running_.AbortNamed(names);
  prefills_.ForgetEnded();
  return num_ended;
}

void EngineClient::OnAdapterLoaded(const std::string& name, const std::string& path) {
  const Batch batch(this);
  running_.OnAdapterLoaded(name, path);
}

Status EngineClient::health() const {
  const Status engines = health_.CheckServing();
  return engines.ok() ? held_ : engines;
}

void EngineClient::Release() {
  held_ = OkStatus();
  if (on_health_change_) on_health_change_();
}

void EngineClient::EndAll(const Status& why) {
  ended_ = why;
  const Batch batch(this);
  running_.AbortAll(why);
  prefills_.ForgetEnded();
}

void EngineClient::SendAborts() {
  for (int i = 0; i < 2 * options_.num_engines; ++i) SendAborts(i);
}

void EngineClient::SendAborts(int engine_index) {
  const wire::AbortRequest aborts = running_.TakeAborts(engine_index);
  // An engine that died forgot its requests.
  const bool is_predecessor = engine_index >= options_.num_engines;
  if (aborts.empty() || (!is_predecessor && !health_.connected(engine_index))) return;
  wire::EncodedMessage message;
  wire::Encode(aborts, &message);
  Send(engine_index, wire::RequestType::kAbort, std::move(message));
}

void EngineClient::CallUtility(int engine_index, std::string_view method, wire::RawValue args,
                               UtilityCalls::Callback callback) {
  CHECK(engine_index >= 0 && engine_index < options_.num_engines) << engine_index;
  const Status ready = health_.CheckReady(engine_index);
  if (!ready.ok()) return callback(ready);
  wire::UtilityRequest request;
  request.client_index = options_.client_index;
  request.call_id = calls_.Add(engine_index, std::move(callback));
  request.method = method;
  request.args = std::move(args);
  wire::EncodedMessage message;
  wire::Encode(request, &message);
  Send(engine_index, wire::RequestType::kUtility, std::move(message));
}

void EngineClient::Send(int engine_index, wire::RequestType type, wire::EncodedMessage message) {
  size_t num_bytes = message.body.size();
  for (const std::string& frame : message.aux) num_bytes += frame.size();
  endpoint_->Send(options_.client_index, SeatOf(engine_index), type, std::move(message));
  const bool is_predecessor = engine_index >= options_.num_engines;
  if (!is_predecessor && health_.OnSent(engine_index, num_bytes)) {
    CallUtility(engine_index, kProbeMethod, {}, [](const auto&) {});
  }
}

void EngineClient::SendProbe(int engine_index) {
  CallUtility(engine_index, health_.is_ours(engine_index) ? wire::kPingMethod : kProbeMethod, {},
              [this, engine_index](const auto&) { health_.OnProbeReply(engine_index); });
}

Status EngineClient::CheckAlive(double now) {
  const Status engines =
      health_.CheckAlive(now, [this](int engine_index) { SendProbe(engine_index); });
  return engines.ok() ? held_ : engines;
}

// ---- From the engines ----

void EngineClient::DrainEvents() {
  if (!events_.Drain(&drained_)) return;
  const Batch batch(this);
  for (Event& event : drained_) {
    switch (event.kind) {
      case Event::Kind::kOutputs:
        HandleOutputs(event.outputs);
        endpoint_->Recycle(std::move(event.outputs));
        break;
      case Event::Kind::kReady:
        HandleReady(event.seat, event.response);
        break;
      case Event::Kind::kLost:
        HandleLost(event.seat, event.why);
        break;
    }
  }
  drained_.clear();
}

int EngineClient::IndexOf(int seat) const {
  const int engine_index = seat % options_.num_engines;
  const bool is_current = seats_[static_cast<size_t>(engine_index)] == seat;
  return is_current ? engine_index : Predecessor(engine_index, options_.num_engines);
}

int EngineClient::SeatOf(int engine_index) const {
  if (engine_index < options_.num_engines) return seats_[static_cast<size_t>(engine_index)];
  const int current = seats_[static_cast<size_t>(engine_index - options_.num_engines)];
  return (current + options_.num_engines) % (2 * options_.num_engines);
}

void EngineClient::HandleOutputs(const wire::EngineCoreOutputs& outputs) {
  const int engine_index = IndexOf(outputs.engine_index);
  const bool is_predecessor = engine_index >= options_.num_engines;
  if (!is_predecessor && health_.OnMessage(engine_index) && on_health_change_) on_health_change_();
  for (const wire::EngineCoreOutput& output : outputs.outputs) {
    prefills_.OnOutput(output.request_id);
    running_.HandleOutput(output, outputs.timestamp);
  }
  if (outputs.utility_output) calls_.HandleReply(*outputs.utility_output);
  for (const RequestId& request_id : outputs.finished_requests) {
    prefills_.OnOutput(request_id);
    running_.HandleFinished(request_id);
  }
  if (outputs.scheduler_stats && !is_predecessor) {
    TakeLoad(engine_index, *outputs.scheduler_stats);
    if (on_stats_) on_stats_(engine_index, *outputs.scheduler_stats, outputs.timestamp);
  }
}

void EngineClient::TakeLoad(int engine_index, const wire::SchedulerStats& stats) {
  balancer_.OnStats(engine_index, stats);
}

void EngineClient::TakePrefix(int engine_index, const std::vector<uint64_t>& hashes) {
  prefixes_.Add(engine_index, hashes);
}

void EngineClient::HandleReady(int seat, const wire::EngineCoreReadyResponse& response) {
  const int engine_index = seat % options_.num_engines;
  if (IndexOf(seat) != engine_index && health_.connected(engine_index)) {
    return HandleTakeOver(engine_index, seat, response);
  }
  seats_[static_cast<size_t>(engine_index)] = seat;
  health_.OnReady(engine_index, response);
  balancer_.OnReady(engine_index);
  prefixes_.Reset(engine_index, response.num_gpu_blocks);
  prefills_.OnReady(engine_index, response.num_gpu_blocks, response.block_size);
  if (on_engine_ready_) on_engine_ready_(engine_index);
  if (on_health_change_) on_health_change_();
  ResumeWaiting();  // before requests that are newer
}

void EngineClient::HandleTakeOver(int engine_index, int seat,
                                  const wire::EngineCoreReadyResponse& response) {
  const int predecessor = Predecessor(engine_index, options_.num_engines);
  seats_[static_cast<size_t>(engine_index)] = seat;
  running_.MakePredecessor(engine_index);
  prefills_.OnTakenOver(engine_index);
  calls_.Rename(engine_index, predecessor);
  health_.OnReady(engine_index, response);
  health_.OnProbeReply(engine_index);  // the one that is open went to the predecessor
  balancer_.OnReady(engine_index);
  prefixes_.Reset(engine_index, response.num_gpu_blocks);
  prefills_.OnReady(engine_index, response.num_gpu_blocks, response.block_size);
  const int64_t num_moved =
      resumption_.OnTakenOver(engine_index, response.max_model_len, thread_.clock->Monotonic());
  const int64_t num_left = running_.num_per_engine()[static_cast<size_t>(predecessor)];
  LOG_INFO << "engine " << engine_index << " was replaced: " << num_moved << " requests move, "
           << num_left << " end where they run";
  SendAborts(predecessor);
  SendLeave(predecessor);
  if (on_engine_ready_) on_engine_ready_(engine_index);
  ResumeWaiting();
  if (on_take_over_) on_take_over_(engine_index, num_moved);
  if (on_health_change_) on_health_change_();  // one that had hung is ready again
}

void EngineClient::SendLeave(int engine_index) {
  wire::UtilityRequest call;
  call.client_index = options_.client_index;
  call.method = wire::kLeaveMethod;
  wire::EncodedMessage message;
  wire::Encode(call, &message);
  Send(engine_index, wire::RequestType::kUtility, std::move(message));
}

void EngineClient::HandleLost(int seat, const Status& why) {
  const int engine_index = IndexOf(seat);
  const bool is_predecessor = engine_index >= options_.num_engines;
  if (!is_predecessor) {
    health_.OnLost(engine_index, why);
    if (on_health_change_) on_health_change_();
  }
  (void)running_.TakeAborts(engine_index);  // it forgot its requests
  prefills_.OnLost(engine_index, why);
  resumption_.OnLost(engine_index, why, thread_.clock->Monotonic());
  calls_.FailAllOf(engine_index, why);
}

// ---- Engines that hang ----

void EngineClient::WatchEngines() {
  if (are_engines_watched_ || options_.health.hang_timeout_s <= 0) return;
  bool one_has_requests = false;
  for (int i = 0; i < options_.num_engines; ++i) {
    one_has_requests |= health_.is_ours(i) && running_.num_per_engine()[static_cast<size_t>(i)] > 0;
  }
  if (!one_has_requests) return;
  are_engines_watched_ = true;
  const double look_s = options_.health.hang_timeout_s / EngineHealth::kLooksPerTimeout;
  thread_.at(thread_.clock->Monotonic() + look_s, [this, alive = std::weak_ptr<char>(alive_)] {
    if (alive.expired()) return;
    are_engines_watched_ = false;
    LookAtEngines();
    WatchEngines();
  });
}

void EngineClient::LookAtEngines() {
  const Batch batch(this);
  for (int i = 0; i < options_.num_engines; ++i) {
    if (!health_.is_ours(i) || running_.num_per_engine()[static_cast<size_t>(i)] == 0) continue;
    const Status alive =
        health_.Look(i, thread_.clock->Monotonic(), [this](int index) { SendProbe(index); });
    if (!alive.ok()) HandleHung(i, alive);
  }
}

// It is alive one day, or killed and lost: either way its requests have left it.
void EngineClient::HandleHung(int engine_index, const Status& why) {
  health_.OnHung(engine_index, why);
  if (on_health_change_) on_health_change_();
  running_.QueueAborts(engine_index);
  SendAborts(engine_index);
  prefills_.OnLost(engine_index, why);
  resumption_.OnLost(engine_index, why, thread_.clock->Monotonic());
}

// ---- After a death ----

void EngineClient::ResumeWaiting() {
  if (resumption_.idle()) return;
  resumption_.SendWaiting(thread_.clock->Monotonic());
  WatchDeadline();
}

void EngineClient::OnReserved() {
  const Batch batch(this);
  resumption_.OnReserved(thread_.clock->Monotonic());
}

void EngineClient::LeaveEngine(int engine_index) {
  const Batch batch(this);
  resumption_.Leave(engine_index, thread_.clock->Monotonic());
}

void EngineClient::ComeBack(int engine_index, bool has_ended) {
  const Batch batch(this);
  resumption_.ComeBack(engine_index, has_ended);
}

void EngineClient::WatchDeadline() {
  const std::optional<double> deadline = resumption_.next_deadline();
  if (!deadline || is_deadline_watched_) return;
  is_deadline_watched_ = true;
  thread_.at(*deadline, [this, alive = std::weak_ptr<char>(alive_)] {
    if (alive.expired()) return;
    is_deadline_watched_ = false;
    const Batch batch(this);
    resumption_.Expire(thread_.clock->Monotonic());
  });
}

std::string EngineClient::DebugString() const {
  std::string text = "client " + std::to_string(options_.client_index) + ": " +
                     std::to_string(running_.size()) + " running, " +
                     std::to_string(prefills_.num_waiting()) + " prompts wait\n";
  for (int i = 0; i < options_.num_engines; ++i) {
    const Status ready = health_.CheckReady(i);
    text += "  engine " + std::to_string(i) +
            (ready.ok() ? " ready" : " not ready: " + ready.message()) + ", " +
            std::to_string(running_.num_per_engine()[static_cast<size_t>(i)]) + " in flight\n";
  }
  return text + running_.DebugString();
}

}  // namespace tandem
