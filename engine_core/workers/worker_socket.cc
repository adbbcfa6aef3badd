#include "engine_core/workers/worker_socket.h"

#include <algorithm>
#include <cstring>

#include "common/packets.h"

namespace tandem {
namespace {

struct ReadyHeader {
  int32_t status_code = 0;
  int64_t resident_bytes = 0;
  int64_t memory_end = 0;
};

}  // namespace

std::string PackReady(const WorkerReady& ready) {
  const ReadyHeader header = {.status_code = static_cast<int32_t>(ready.status.code()),
                              .resident_bytes = ready.resident_bytes,
                              .memory_end = ready.memory_end};
  std::string bytes(sizeof header, '\0');
  std::memcpy(bytes.data(), &header, sizeof header);
  return bytes + ready.status.message().substr(0, kMaxPacketBytes - sizeof header);
}

StatusOr<WorkerReady> UnpackReady(const std::string& bytes) {
  ReadyHeader header;
  if (bytes.size() < sizeof header) return InternalError("a worker's message is too short");
  std::memcpy(&header, bytes.data(), sizeof header);
  return WorkerReady{
      .status = Status(static_cast<StatusCode>(header.status_code), bytes.substr(sizeof header)),
      .resident_bytes = header.resident_bytes,
      .memory_end = header.memory_end};
}

}  // namespace tandem
