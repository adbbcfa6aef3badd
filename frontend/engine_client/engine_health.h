#pragma once

// Which engines can serve: each one's connection, its facts from READY, and whether it still reads
// and replies. Thread: the shard's. Knows no sockets: the caller reports what was sent and received
// and sends the probes. Units: bytes, seconds of any one monotonic clock.
// Failure: a Status that names the engine, UNAVAILABLE.

#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

#include "common/status.h"
#include "proto_msgpack/schema.h"

namespace tandem {

struct EngineHealthLimits {
  // Sent to an engine since its last message; above it the engine takes no requests.
  size_t max_unanswered_bytes = 256u << 20;
  double hang_timeout_s = 0;  // for CheckAlive; 0: a connected engine is alive
};

class EngineHealth {
 public:
  using Probe = std::function<void(int engine_index)>;

  EngineHealth(int num_engines, EngineHealthLimits limits);

  // What happened to an engine.
  void OnReady(int engine_index, const wire::EngineCoreReadyResponse& response);
  void OnLost(int engine_index, const Status& why);
  // Any message from it. Returns whether it had been taken for hung, and is ready again.
  [[nodiscard]] bool OnMessage(int engine_index);
  // What it does not read waits in our memory, even after its clients have left. Returns whether to
  // send a probe: at half the limit, because requests that all end in aborts get no other reply.
  [[nodiscard]] bool OnSent(int engine_index, size_t num_bytes);
  void OnProbeReply(int engine_index);  // to a probe, or its engine is lost
  // It is connected, but it is not ready until its next message.
  void OnHung(int engine_index, const Status& why);

  // While reserved it takes no requests but those of the caller that reserved it.
  void SetReserved(int engine_index, bool reserved) { engine(engine_index).reserved = reserved; }

  // Messages reach it, if only later.
  bool connected(int engine_index) const { return engine(engine_index).connected; }
  bool ready(int engine_index) const { return engine(engine_index).is_ready(); }
  // Ready, and Tandem's: only such an engine can go on with another one's requests.
  bool is_ours(int engine_index) const {
    return ready(engine_index) && engine(engine_index).response.peer() == wire::Peer::kTandem;
  }
  // OK, or why the engine is not ready.
  Status CheckReady(int engine_index) const;
  // OK while requests can be served: each engine has been ready once, and one of them is. Otherwise
  // why the first of the others is not.
  Status CheckServing() const;
  // OK, or why the engine is given no request now.
  Status CheckTakesRequests(int engine_index) const;
  // CheckServing(), and a ready engine replies to probes: sends one to each unless one is open, and
  // is UNAVAILABLE once all have been open for hang_timeout_s. Never waits.
  Status CheckAlive(double now, const Probe& send_probe);
  // For a caller that looks kLooksPerTimeout times in hang_timeout_s: sends a probe unless one is
  // open, and returns why the engine hangs once it has left one open for that many looks. Time in
  // which the caller itself was stopped has no looks. REQUIRES: ready, a timeout.
  static constexpr int kLooksPerTimeout = 4;
  Status Look(int engine_index, double now, const Probe& send_probe);

  // The engines' READY in one: the smallest max_model_len, the sum of num_gpu_blocks. Nullptr until
  // each engine has been ready once.
  const wire::EngineCoreReadyResponse* engine_info() const;
  // One engine's READY; its defaults before it has been ready once.
  const wire::EngineCoreReadyResponse& engine_info(int engine_index) const {
    return engine(engine_index).response;
  }

 private:
  // Returns whether one was open.
  bool OpenProbe(int engine_index, double now, const Probe& send_probe);
  Status Overdue(int engine_index, double now) const;

  struct Engine {
    bool is_ready() const { return connected && !hung; }

    bool connected = false;
    bool hung = false;
    bool was_ready = false;
    bool reserved = false;
    Status why_not;
    wire::EngineCoreReadyResponse response;
    size_t unanswered_bytes = 0;
    std::optional<double> probed_at;  // an open probe
    int num_looks = 0;                // since then
  };

  Engine& engine(int index) { return engines_[static_cast<size_t>(index)]; }
  const Engine& engine(int index) const { return engines_[static_cast<size_t>(index)]; }
  void UpdateEngineInfo();

  const EngineHealthLimits limits_;
  std::vector<Engine> engines_;
  std::optional<wire::EngineCoreReadyResponse> engine_info_;
};

}  // namespace tandem
