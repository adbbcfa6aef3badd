#pragma once

// What follows from the engine core's flags once the model is known.
// Thread: main, before others start; const afterwards.
// Failure: a bad value is INVALID_ARGUMENT naming flag, value and what is allowed.

#include <cstdint>
#include <optional>
#include <string>

#include "common/status.h"
#include "engine_core/engine_core.h"
#include "engine_core/executor/kv_cache_size.h"
#include "engine_core/executor/memory_plan.h"
#include "engine_core/executor/model_runner.h"
#include "engine_core/flags/engine_config.h"
#include "engine_core/models/model.h"
#include "engine_core/weights/model_config.h"
#include "kernels/backend.h"
#include "proto_msgpack/kv_events.h"

namespace tandem {

// All that main builds its objects from. Sizes that depend on memory are still open: num_blocks is
// set, and max_model_len cut when it is auto, by SizeKvCache.
struct EngineSetup {
  std::string device;  // "cpu", "cuda" or "reference"
  CpuBackendOptions backend;
  AttentionBackend attention = AttentionBackend::kAuto;  // of cuda, where it is chosen
  std::string attention_reason;
  WeightFormats formats;
  ModelRunnerOptions runner;
  EngineCoreOptions engine;
  KvCacheWish kv_cache;
  std::optional<MemoryPlan> memory_plan;  // once the device is known
  wire::KvEventsConfig kv_events;
  bool auto_max_model_len = false;
  double step_timeout_s = 0;  // 0: none
};

// Joins flags and model: lengths, device defaults (CPU: 2048 tokens and 128 requests a step), and
// limits that must fit each other.
StatusOr<EngineSetup> MakeSetup(const EngineConfig& config, const ModelConfig& model);

// Chooses the number of KV blocks for a cache with `bytes_per_block`. On a host, where no step has
// run by then, the plan's step is left room for.
Status SizeKvCache(int64_t bytes_per_block, const HostMemory& memory, EngineSetup* setup);

}  // namespace tandem
