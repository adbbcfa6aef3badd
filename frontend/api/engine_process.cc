#include "frontend/api/engine_process.h"

#include "proto_msgpack/msgpack_reader.h"
#include "proto_msgpack/wire_endpoint.h"

namespace tandem {
namespace {

constexpr double kLeastSeconds = 1;

// The reply of wire::kProcessMethod.
std::optional<ProcessStats> ReadReply(const wire::RawValue& packed) {
  wire::MsgpackReader reader(packed.packed);
  if (reader.ArraySize() < 5) return std::nullopt;
  ProcessStats stats;
  stats.virtual_bytes = reader.Int();
  stats.resident_bytes = reader.Int();
  stats.cpu_s = static_cast<double>(reader.Int()) * 1e-3;
  stats.started_at = static_cast<double>(reader.Int()) * 1e-3;
  stats.open_files = reader.Int();
  return reader.status().ok() ? std::optional(stats) : std::nullopt;
}

}  // namespace

void AskEngineProcesses(ApiContext* context) {
  EngineClient* const client = context->engine_client;
  const double now = context->clock->Monotonic();
  for (int i = 0; i < client->num_engines(); ++i) {
    if (!client->engine_ready(i) || client->engine_info(i).peer() != wire::Peer::kTandem) continue;
    std::atomic<double>& asked_at = context->metrics->engine(i).process_asked_at;
    double before = asked_at;
    if (now - before < kLeastSeconds || !asked_at.compare_exchange_strong(before, now)) continue;
    client->CallUtility(
        i, wire::kProcessMethod, {}, [metrics = context->metrics, i](const auto& reply) {
          const auto stats = reply.ok() ? ReadReply(*reply) : std::optional<ProcessStats>();
          if (stats) metrics->RecordProcess(i, *stats);
        });
  }
}

}  // namespace tandem
