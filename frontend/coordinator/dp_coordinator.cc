#include "frontend/coordinator/dp_coordinator.h"

#include <algorithm>
#include <bit>

#include "common/log.h"
#include "proto_msgpack/codec.h"
#include "proto_msgpack/msgpack_reader.h"

namespace tandem {
namespace {

using wire::PackedArray;
using wire::PackedInt;
using wire::RawValue;

constexpr int64_t kIdleIntervalMs = 5000;
// The reports of one step of all engines arrive together.
constexpr int64_t kGatherMs = 50;
constexpr int64_t kMaxEngines = 65536;
constexpr std::string_view kSubscribed("\x01", 1), kUnsubscribed("\x00", 1);

RawValue Packed(std::string_view bytes) {
  RawValue value;
  value.packed = bytes;
  return value;
}

RawValue PackedDouble(double value) {
  std::string bytes = "\xcb";
  const auto bits = std::bit_cast<uint64_t>(value);
  for (int shift = 56; shift >= 0; shift -= 8) bytes += static_cast<char>(bits >> shift & 0xff);
  return Packed(bytes);
}

}  // namespace

DpCoordinator::DpCoordinator(int num_engines, bool waves, int64_t interval_ms)
    : waves_(waves), interval_ms_(interval_ms), counts_(static_cast<size_t>(num_engines)) {}

int64_t DpCoordinator::WaitMs(int64_t now_ms) const {
  const int64_t least = waves_ && !at_step_ ? kGatherMs : 0;
  if (!published_at_ms_) return least;
  const int64_t interval = changed_ ? interval_ms_ : kIdleIntervalMs;
  return std::max(least, interval - (now_ms - *published_at_ms_));
}

void DpCoordinator::OnTimeout(int64_t now_ms, Messages* sends) {
  if (at_step_) {
    Publish(&*at_step_, sends);
    at_step_.reset();
  } else {
    Publish(&counts_, sends);
    changed_ = false;
  }
  published_at_ms_ = now_ms;
}

void DpCoordinator::OnSubscription(std::string_view message, Messages* sends) {
  if (message == kSubscribed) {
    sends->push_back({Receiver::kEngines, {"READY"}});
  } else if (message != kUnsubscribed) {
    LOG_WARNING << "an engine sent " << message.size() << " bytes that are no subscription";
  }
}

bool DpCoordinator::OnFrontend(std::string_view message) {
  if (message == kSubscribed || message == kUnsubscribed) return true;
  wire::MsgpackReader reader(message);
  const bool is_scale = reader.NextIsArray() && reader.ArraySize() == 2 && reader.NextIsString() &&
                        reader.String() == "SCALE_ELASTIC_EP";
  const int64_t num_engines = is_scale ? reader.IntIn(1, kMaxEngines) : 0;
  if (!is_scale || !reader.ok()) {
    LOG_WARNING << "a frontend's message of " << message.size() << " bytes says nothing";
    return false;
  }
  counts_.resize(static_cast<size_t>(num_engines));
  return true;
}

void DpCoordinator::OnEngine(const wire::EngineCoreOutputs& message, Messages* sends) {
  const auto engine = static_cast<size_t>(message.engine_index);
  if (message.scheduler_stats && message.engine_index >= 0 && engine < counts_.size()) {
    TakeStats(engine, *message.scheduler_stats);
  }
  if (waves_ && TakeWave(message, sends)) Publish(nullptr, sends);
}

void DpCoordinator::TakeStats(size_t engine, const wire::SchedulerStats& stats) {
  const std::pair<int64_t, int64_t> step = {stats.current_wave, stats.step_counter};
  if (waves_ && step > newest_step_) {
    if (changed_) at_step_ = counts_;
    newest_step_ = step;
  }
  counts_[engine] = {stats.num_waiting_reqs, stats.num_running_reqs, stats.kv_cache_usage};
  changed_ = true;
}

bool DpCoordinator::TakeWave(const wire::EngineCoreOutputs& message, Messages* sends) {
  if (message.wave_complete) {
    if (wave_ > *message.wave_complete) return false;
    wave_ = *message.wave_complete + 1;
    running_ = false;
    return true;
  }
  if (!message.start_wave) return false;
  const int64_t wave = *message.start_wave;
  if (wave < wave_ || (wave == wave_ && running_)) return false;
  wave_ = wave;
  running_ = true;
  const char type = static_cast<char>(wire::RequestType::kStartDpWave);
  sends->push_back({Receiver::kEngines,
                    {std::string(1, type),
                     PackedArray({PackedInt(wave), PackedInt(message.engine_index)}).packed}});
  return true;
}

void DpCoordinator::Publish(const std::vector<Counts>* counts, Messages* sends) const {
  RawValue list = Packed("\xc0");  // nil
  if (counts != nullptr) {
    std::vector<RawValue> engines;
    for (const Counts& each : *counts) {
      engines.push_back(PackedArray(
          {PackedInt(each.waiting), PackedInt(each.running), PackedDouble(each.kv_cache_usage)}));
    }
    list = PackedArray(engines);
  }
  const RawValue message = PackedArray({list, PackedInt(wave_), wire::PackedBool(running_)});
  sends->push_back({Receiver::kFrontends, {message.packed}});
}

}  // namespace tandem
