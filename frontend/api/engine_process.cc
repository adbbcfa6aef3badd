#include "frontend/api/engine_process.h"

#include <map>
#include <string>
#include <utility>

#include "proto_msgpack/msgpack_reader.h"
#include "proto_msgpack/wire_endpoint.h"

namespace tandem {
namespace {

constexpr double kLeastSeconds = 1;

struct Reply {
  ProcessStats stats;
  std::map<std::string, double> startup_s;  // by phase
};

// The reply of wire::kProcessMethod.
std::optional<Reply> ReadReply(const wire::RawValue& packed) {
  wire::MsgpackReader reader(packed.packed);
  const uint32_t size = reader.ArraySize();
  if (size < 5) return std::nullopt;
  Reply reply;
  ProcessStats& stats = reply.stats;
  stats.virtual_bytes = reader.Int();
  stats.resident_bytes = reader.Int();
  stats.cpu_s = static_cast<double>(reader.Int()) * 1e-3;
  stats.started_at = static_cast<double>(reader.Int()) * 1e-3;
  stats.open_files = reader.Int();
  const uint32_t num_phases = size > 5 ? reader.ArraySize() / 2 : 0;
  for (uint32_t i = 0; i < num_phases && reader.ok(); ++i) {
    const std::string phase(reader.String());
    reply.startup_s[phase] += static_cast<double>(reader.Int()) * 1e-6;
  }
  return reader.status().ok() ? std::optional(std::move(reply)) : std::nullopt;
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
        i, wire::kProcessMethod, {}, [metrics = context->metrics, i](const auto& result) {
          const auto reply = result.ok() ? ReadReply(*result) : std::optional<Reply>();
          if (reply) metrics->RecordProcess(i, reply->stats, reply->startup_s);
        });
  }
}

}  // namespace tandem
