#pragma once

// What an engine core and one of its workers send each other over a packet socket (packets.h).
// First the worker: one message, WorkerReady, with adapters beside it a file of the modules that
// the rank has. Then the engine core sends orders: with a file of all ranks' modules, once; pings,
// which a thread of the worker notes in its RankLine; and adapters to read, for each of which the
// worker sends a WorkerAdapter, or to drop. An end of the socket is the end of the other process.

#include <cstdint>
#include <string>

#include "common/status.h"
#include "common/unique_fd.h"
#include "engine_core/models/adaptable_modules.h"

namespace tandem {

// The descriptors of a worker, in the order of Spawn.
constexpr int kWorkerSocket = 3;
constexpr int kWorkerMemory = 4;

// The first argument of a worker, followed by the number of its rank.
constexpr char kWorkerRankArgument[] = "--worker-rank=";

struct WorkerReady {
  Status status;               // not OK: it cannot load its part
  int64_t resident_bytes = 0;  // of its process
  int64_t memory_end = 0;      // SharedCommunicator::end
};

std::string PackReady(const WorkerReady& ready);
StatusOr<WorkerReady> UnpackReady(const std::string& bytes);

struct WorkerOrder {
  enum class Kind : char { kPing = 'p', kModules = 'm', kReadAdapter = 'r', kDropAdapter = 'd' };
  Kind kind = Kind::kPing;
  int64_t adapter = 0;       // AdapterWeights::number
  std::string name, folder;  // of one to read
};

// A name or folder of more than half of kMaxPacketBytes is cut.
std::string PackOrder(const WorkerOrder& order);
StatusOr<WorkerOrder> UnpackOrder(const std::string& bytes);

struct WorkerAdapter {
  Status status;
  uint64_t digest = 0;
};

std::string PackAdapter(const WorkerAdapter& adapter);
StatusOr<WorkerAdapter> UnpackAdapter(const std::string& bytes);

// A file in memory: a model has more modules than a packet holds.
StatusOr<UniqueFd> PackModules(const AdaptableModules& modules);
StatusOr<AdaptableModules> UnpackModules(int file);

}  // namespace tandem
