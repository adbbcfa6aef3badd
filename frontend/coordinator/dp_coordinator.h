#pragma once

// The rules of vLLM's data-parallel coordinator, without its sockets and its clock: it tells a
// frontend's clients what each engine runs and has waiting, and the engines of a mixture when to
// step together (a wave). Nothing turns it on: our clients learn the counts from the engines'
// outputs, and our engines have no waves. It is what engines of vLLM that share experts need.
// Thread: one. Units: milliseconds of any one clock. What cannot be understood is logged and
// dropped, where vLLM's ends.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "proto_msgpack/schema.h"

namespace tandem {

class DpCoordinator {
 public:
  enum class Receiver { kFrontends, kEngines };
  struct Message {
    Receiver to = Receiver::kFrontends;
    std::vector<std::string> frames;
  };
  using Messages = std::vector<Message>;

  // waves: the engines step together. interval_ms: between publications while counts change.
  DpCoordinator(int num_engines, bool waves, int64_t interval_ms = 100);

  // How long to wait for messages. A turn takes at most one of each kind, in this order: OnTimeout
  // when there was none; else OnSubscription, OnFrontend, OnEngine.
  int64_t WaitMs(int64_t now_ms) const;
  void OnTimeout(int64_t now_ms, Messages* sends);
  // From an engine. Each subscribes once before the first turn, and is sent READY.
  static void OnSubscription(std::string_view message, Messages* sends);
  // True: the turn ends here.
  [[nodiscard]] bool OnFrontend(std::string_view message);
  void OnEngine(const wire::EngineCoreOutputs& message, Messages* sends);

 private:
  struct Counts {
    int64_t waiting = 0;
    int64_t running = 0;
    double kv_cache_usage = 0;
  };

  void TakeStats(size_t engine, const wire::SchedulerStats& stats);
  bool TakeWave(const wire::EngineCoreOutputs& message, Messages* sends);
  void Publish(const std::vector<Counts>* counts, Messages* sends) const;

  const bool waves_;
  const int64_t interval_ms_;
  std::vector<Counts> counts_;
  bool changed_ = false;                        // since they were published
  std::optional<std::vector<Counts>> at_step_;  // the counts before the newest step's first report
  std::pair<int64_t, int64_t> newest_step_ = {-1, -1};  // wave and step
  int64_t wave_ = 0;
  bool running_ = false;
  std::optional<int64_t> published_at_ms_;
};

}  // namespace tandem
