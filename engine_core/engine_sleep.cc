// Pauses of the engine, and what follows them in a sleep: memory is released when nothing runs and
// no request has blocks any more, and restored before anything may run again.

#include <algorithm>
#include <string>
#include <utility>

#include "common/log.h"
#include "engine_core/engine_core.h"

namespace tandem {

void EngineCore::Pause(PauseMode mode, bool clear_cache, const wire::UtilityRequest& call) {
  BeginPause(mode, clear_cache, /*sleep_level=*/0, call);
}

void EngineCore::Sleep(int64_t level, PauseMode mode, const wire::UtilityRequest& call) {
  BeginPause(mode, /*clear_cache=*/level > 0, level, call);
}

void EngineCore::BeginPause(PauseMode mode, bool clear_cache, int64_t sleep_level,
                            const wire::UtilityRequest& call) {
  if (pending_pause_) {
    Reply(pending_pause_->client_index, pending_pause_->call_id,
          AbortedError("another pause took its place"));
  }
  refuses_new_ = mode == PauseMode::kWait;
  scheduler_.SetPauseState(mode == PauseMode::kKeep ? PauseState::kPausedAll
                                                    : PauseState::kPausedNew);
  if (mode == PauseMode::kAbort) AbortAllWithOutputs();
  // A sleep waits for the steps in flight first: after it nothing may have blocks.
  const bool clears_now = mode == PauseMode::kKeep && clear_cache && sleep_level == 0;
  if (clears_now) ResetPrefixCache(/*preempt_running=*/true);
  pending_pause_ = {call.client_index, call.call_id, clear_cache && !clears_now, sleep_level};
}

void EngineCore::FinishPause() {
  if (!pending_pause_ || scheduler_.pending_work() == Work::kRequests || !in_flight_.empty())
    return;
  // What a connector stores of ended requests, or holds for other engines, is read first.
  if (pending_pause_->sleep_level > 0 && scheduler_.transfers().keeps_any()) return;
  const PendingPause pause = *std::exchange(pending_pause_, std::nullopt);
  Status done = OkStatus();
  if (pause.sleep_level > 0) {
    done = ReleaseMemory({.weights = true, .kv_cache = true}, pause.sleep_level);
  } else if (pause.clear_cache) {
    ResetPrefixCache(/*preempt_running=*/false);
  }
  if (!done.ok()) return Reply(pause.client_index, pause.call_id, std::move(done));
  Reply(pause.client_index, pause.call_id, wire::RawValue());
}

Status EngineCore::ReleaseMemory(const MemoryParts& parts, int64_t level) {
  if (parts.kv_cache && !released_.kv_cache && !ResetPrefixCache(/*preempt_running=*/true)) {
    return FailedPreconditionError(
        "the KV cache is in use by a transfer: the engine is paused and keeps its memory; "
        "resume it, and let requests end first (mode=wait or abort)");
  }
  if (parts.weights) ResetEncoderCache();
  RETURN_IF_ERROR(executor_->Release(parts, /*rereads=*/level > 1));
  sleep_level_ = released_.any() ? std::max(sleep_level_, level) : level;
  released_.weights |= parts.weights;
  released_.kv_cache |= parts.kv_cache;
  LOG_INFO << "[sleep] memory is given back: "
           << (parts.weights ? "weights and KV cache" : "KV cache");
  return OkStatus();
}

Status EngineCore::ReleaseKvCache() {
  if (!is_paused() || pending_pause_ || scheduler_.pending_work() == Work::kRequests ||
      !in_flight_.empty()) {
    return FailedPreconditionError("the KV cache is released in a pause: POST /pause first");
  }
  return ReleaseMemory({.kv_cache = true}, /*level=*/0);
}

StatusOr<bool> EngineCore::WakeUp(const MemoryParts& parts) {
  const MemoryParts wanted = {.weights = parts.weights && released_.weights,
                              .kv_cache = parts.kv_cache && released_.kv_cache};
  if (wanted.any()) {
    RETURN_IF_ERROR(executor_->Restore(wanted));
    released_.weights &= !wanted.weights;
    released_.kv_cache &= !wanted.kv_cache;
    LOG_INFO << "[sleep] memory is taken again: "
             << (wanted.weights && wanted.kv_cache ? "weights and KV cache"
                 : wanted.weights                  ? "weights"
                                                   : "KV cache");
  }
  if (released_.any()) return false;
  RETURN_IF_ERROR(Resume());
  return true;
}

Status EngineCore::Resume() {
  if (released_.any()) {
    return FailedPreconditionError("the engine sleeps without " +
                                   std::string(released_.weights ? "weights" : "a KV cache") +
                                   ": POST /wake_up ends that");
  }
  if (pending_pause_) {
    Reply(pending_pause_->client_index, pending_pause_->call_id,
          AbortedError("resumed before the running requests had finished"));
    pending_pause_.reset();
  }
  refuses_new_ = false;
  scheduler_.SetPauseState(PauseState::kUnpaused);
  return OkStatus();
}

}  // namespace tandem
