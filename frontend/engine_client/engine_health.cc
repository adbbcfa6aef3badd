#include "frontend/engine_client/engine_health.h"

#include <algorithm>
#include <string>

namespace tandem {

EngineHealth::EngineHealth(int num_engines, EngineHealthLimits limits)
    : limits_(limits), engines_(static_cast<size_t>(num_engines)) {
  for (size_t i = 0; i < engines_.size(); ++i) {
    engines_[i].why_not = UnavailableError("engine " + std::to_string(i) + " is starting");
  }
}

void EngineHealth::OnReady(int engine_index, const wire::EngineCoreReadyResponse& response) {
  Engine& ready = engine(engine_index);
  ready.ready = true;
  ready.was_ready = true;
  ready.response = response;
  ready.unanswered_bytes = 0;
  UpdateEngineInfo();
}

void EngineHealth::OnLost(int engine_index, const Status& why) {
  engine(engine_index).ready = false;
  engine(engine_index).why_not = why;
}

void EngineHealth::OnMessage(int engine_index) { engine(engine_index).unanswered_bytes = 0; }

bool EngineHealth::OnSent(int engine_index, size_t num_bytes) {
  size_t& unanswered = engine(engine_index).unanswered_bytes;
  const size_t half = limits_.max_unanswered_bytes / 2;
  const bool was_below = unanswered <= half;
  unanswered += num_bytes;
  return was_below && unanswered > half;
}

void EngineHealth::OnProbeReply(int engine_index) { engine(engine_index).probed_at.reset(); }

Status EngineHealth::CheckReady(int engine_index) const {
  return engine(engine_index).ready ? OkStatus() : engine(engine_index).why_not;
}

Status EngineHealth::CheckReady() const {
  for (const Engine& each : engines_) {
    if (!each.ready) return each.why_not;
  }
  return OkStatus();
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
  RETURN_IF_ERROR(CheckReady());
  if (limits_.hang_timeout_s <= 0) return OkStatus();
  for (size_t i = 0; i < engines_.size(); ++i) {
    std::optional<double>& probed_at = engines_[i].probed_at;
    if (!probed_at) {
      probed_at = now;
      send_probe(static_cast<int>(i));
    } else if (now - *probed_at >= limits_.hang_timeout_s) {
      return UnavailableError("engine " + std::to_string(i) + " has not answered for " +
                              std::to_string(static_cast<int64_t>(now - *probed_at)) + " s");
    }
  }
  return OkStatus();
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
  }
}

const wire::EngineCoreReadyResponse* EngineHealth::engine_info() const {
  return engine_info_ ? &*engine_info_ : nullptr;
}

}  // namespace tandem
