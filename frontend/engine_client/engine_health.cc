#include "frontend/engine_client/engine_health.h"

#include <algorithm>
#include <string>
#include <utility>

namespace tandem {

EngineHealth::EngineHealth(int num_engines, EngineHealthLimits limits)
    : limits_(limits), engines_(static_cast<size_t>(num_engines)) {
  for (size_t i = 0; i < engines_.size(); ++i) {
    engines_[i].why_not = UnavailableError("engine " + std::to_string(i) + " is starting");
  }
}

void EngineHealth::OnReady(int engine_index, const wire::EngineCoreReadyResponse& response) {
  Engine& ready = engine(engine_index);
  ready.connected = true;
  ready.hung = false;
  ready.was_ready = true;
  ready.response = response;
  ready.unanswered_bytes = 0;
  UpdateEngineInfo();
}

void EngineHealth::OnLost(int engine_index, const Status& why) {
  engine(engine_index).connected = false;
  engine(engine_index).hung = false;
  engine(engine_index).why_not = why;
}

void EngineHealth::OnHung(int engine_index, const Status& why) {
  engine(engine_index).hung = true;
  engine(engine_index).why_not = why;
}

bool EngineHealth::OnMessage(int engine_index) {
  engine(engine_index).unanswered_bytes = 0;
  return std::exchange(engine(engine_index).hung, false);
}

bool EngineHealth::OnSent(int engine_index, size_t num_bytes) {
  size_t& unanswered = engine(engine_index).unanswered_bytes;
  const size_t half = limits_.max_unanswered_bytes / 2;
  const bool was_below = unanswered <= half;
  unanswered += num_bytes;
  return was_below && unanswered > half;
}

void EngineHealth::OnProbeReply(int engine_index) { engine(engine_index).probed_at.reset(); }

Status EngineHealth::CheckReady(int engine_index) const {
  return ready(engine_index) ? OkStatus() : engine(engine_index).why_not;
}

Status EngineHealth::CheckServing() const {
  const Engine* first_lost = nullptr;
  for (const Engine& each : engines_) {
    if (!each.was_ready) return each.why_not;
    if (!each.is_ready() && first_lost == nullptr) first_lost = &each;
  }
  const bool one_is_ready = std::any_of(engines_.begin(), engines_.end(),
                                        [](const Engine& each) { return each.is_ready(); });
  return one_is_ready ? OkStatus() : first_lost->why_not;
}

Status EngineHealth::CheckTakesRequests(int engine_index) const {
  RETURN_IF_ERROR(CheckReady(engine_index));
  if (engine(engine_index).reserved) {
    return UnavailableError("engine " + std::to_string(engine_index) +
                            " runs a request alone that may have ended it before");
  }
  const size_t unanswered = engine(engine_index).unanswered_bytes;
  if (unanswered <= limits_.max_unanswered_bytes) return OkStatus();
  return UnavailableError("engine " + std::to_string(engine_index) +
                          " is silent and has not read " + std::to_string(unanswered) +
                          " bytes of earlier requests");
}

Status EngineHealth::CheckAlive(double now, const Probe& send_probe) {
  RETURN_IF_ERROR(CheckServing());
  if (limits_.hang_timeout_s <= 0) return OkStatus();
  bool one_is_alive = false;
  Status why_not;
  for (int i = 0; i < static_cast<int>(engines_.size()); ++i) {
    if (!ready(i)) continue;
    const bool was_open = OpenProbe(i, now, send_probe);
    const bool is_alive = !was_open || now - *engine(i).probed_at < limits_.hang_timeout_s;
    one_is_alive |= is_alive;
    if (!is_alive && why_not.ok()) why_not = Overdue(i, now);
  }
  return one_is_alive ? OkStatus() : why_not;
}

Status EngineHealth::Look(int engine_index, double now, const Probe& send_probe) {
  if (!OpenProbe(engine_index, now, send_probe)) return OkStatus();
  const bool is_hung = ++engine(engine_index).num_looks >= kLooksPerTimeout;
  return is_hung ? Overdue(engine_index, now) : OkStatus();
}

bool EngineHealth::OpenProbe(int engine_index, double now, const Probe& send_probe) {
  Engine& probed = engine(engine_index);
  if (probed.probed_at) return true;
  probed.probed_at = now;
  probed.num_looks = 0;
  send_probe(engine_index);
  return false;
}

Status EngineHealth::Overdue(int engine_index, double now) const {
  const double open_s = now - *engine(engine_index).probed_at;
  return UnavailableError("engine " + std::to_string(engine_index) + " has not answered for " +
                          std::to_string(static_cast<int64_t>(open_s)) + " s");
}

void EngineHealth::UpdateEngineInfo() {
  for (const Engine& each : engines_) {
    if (!each.was_ready) return;
  }
  engine_info_ = engines_[0].response;
  engine_info_->num_gpu_blocks = 0;
  for (const Engine& each : engines_) {
    engine_info_->num_gpu_blocks += each.response.num_gpu_blocks;
    engine_info_->max_model_len =
        std::min(engine_info_->max_model_len, each.response.max_model_len);
    if (!each.response.batch_invariant.value_or(false)) engine_info_->batch_invariant = false;
  }
}

const wire::EngineCoreReadyResponse* EngineHealth::engine_info() const {
  return engine_info_ ? &*engine_info_ : nullptr;
}

}  // namespace tandem
