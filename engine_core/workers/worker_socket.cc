#include "engine_core/workers/worker_socket.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "common/check.h"
#include "common/packed_bytes.h"
#include "common/packets.h"

namespace tandem {
namespace {

// Each message: a header, and text after it.
template <class Header>
std::string Pack(const Header& header, std::string_view text) {
  std::string bytes(sizeof header, '\0');
  std::memcpy(bytes.data(), &header, sizeof header);
  return bytes.append(text.substr(0, kMaxPacketBytes - sizeof header));
}

// The text.
template <class Header>
StatusOr<std::string> Unpack(const std::string& bytes, Header* header) {
  if (bytes.size() < sizeof *header) {
    return InternalError("a message between ranks is too short");
  }
  std::memcpy(header, bytes.data(), sizeof *header);
  return bytes.substr(sizeof *header);
}

struct ReadyHeader {
  int32_t status_code = 0;
  int64_t resident_bytes = 0;
  int64_t memory_end = 0;
};

struct OrderHeader {
  char kind = 0;
  int64_t adapter = 0;
  int32_t name_size = 0;
};

struct AdapterHeader {
  int32_t status_code = 0;
  uint64_t digest = 0;
};

}  // namespace

std::string PackReady(const WorkerReady& ready) {
  return Pack(ReadyHeader{.status_code = static_cast<int32_t>(ready.status.code()),
                          .resident_bytes = ready.resident_bytes,
                          .memory_end = ready.memory_end},
              ready.status.message());
}

StatusOr<WorkerReady> UnpackReady(const std::string& bytes) {
  ReadyHeader header;
  ASSIGN_OR_RETURN(std::string message, Unpack(bytes, &header));
  return WorkerReady{
      .status = Status(static_cast<StatusCode>(header.status_code), std::move(message)),
      .resident_bytes = header.resident_bytes,
      .memory_end = header.memory_end};
}

std::string PackOrder(const WorkerOrder& order) {
  constexpr size_t kMost = kMaxPacketBytes / 2 - sizeof(OrderHeader);
  const std::string name = order.name.substr(0, kMost);
  return Pack(OrderHeader{.kind = static_cast<char>(order.kind),
                          .adapter = order.adapter,
                          .name_size = static_cast<int32_t>(name.size())},
              name + order.folder.substr(0, kMost));
}

StatusOr<WorkerOrder> UnpackOrder(const std::string& bytes) {
  OrderHeader header;
  ASSIGN_OR_RETURN(const std::string text, Unpack(bytes, &header));
  const auto name_size = static_cast<size_t>(header.name_size);
  if (header.name_size < 0 || name_size > text.size()) {
    return InternalError("a message between ranks is cut");
  }
  return WorkerOrder{.kind = static_cast<WorkerOrder::Kind>(header.kind),
                     .adapter = header.adapter,
                     .name = text.substr(0, name_size),
                     .folder = text.substr(name_size)};
}

std::string PackAdapter(const WorkerAdapter& adapter) {
  return Pack(AdapterHeader{.status_code = static_cast<int32_t>(adapter.status.code()),
                            .digest = adapter.digest},
              adapter.status.message());
}

StatusOr<WorkerAdapter> UnpackAdapter(const std::string& bytes) {
  AdapterHeader header;
  ASSIGN_OR_RETURN(std::string message, Unpack(bytes, &header));
  return WorkerAdapter{
      .status = Status(static_cast<StatusCode>(header.status_code), std::move(message)),
      .digest = header.digest};
}

StatusOr<UniqueFd> PackModules(const AdaptableModules& modules) {
  constexpr size_t kMostOfNumbers = 32;  // bytes of a module beside its name
  size_t size = kMostOfNumbers;
  for (const auto& [name, module] : modules) size += name.size() + kMostOfNumbers;
  std::string bytes(size, '\0');
  ByteWriter writer(bytes);
  writer.Varint(modules.size());
  for (const auto& [name, module] : modules) {
    writer.Bytes(name);
    writer.Signed(module.rows);
    writer.Signed(module.columns);
    writer.Varint(module.is_embedding ? 1 : 0);
  }
  CHECK(writer.fits());
  return MakeMemoryFile("tandem-adapter-modules", {bytes.data(), writer.size()});
}

StatusOr<AdaptableModules> UnpackModules(int file) {
  ASSIGN_OR_RETURN(const std::string bytes, ReadMemoryFile(file));
  ByteReader reader(bytes);
  AdaptableModules modules;
  for (uint64_t left = reader.Varint(); left > 0 && reader.ok(); --left) {
    AdaptableModule& module = modules[std::string(reader.Bytes())];
    module.rows = reader.Signed();
    module.columns = reader.Signed();
    module.is_embedding = reader.Varint() != 0;
  }
  if (!reader.ok()) return InternalError("a list of modules between ranks is cut");
  return modules;
}

}  // namespace tandem
