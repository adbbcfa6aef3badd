#pragma once

// The engine core's settings, from its flags and the model's configuration.
// Thread: main, before others start; const afterwards.
// Failure: a bad value is INVALID_ARGUMENT naming flag, value and what is allowed.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "common/status.h"
#include "engine_core/engine_core.h"
#include "engine_core/executor/kv_cache_size.h"
#include "engine_core/executor/memory_plan.h"
#include "engine_core/executor/model_runner.h"
#include "engine_core/executor/rank_group.h"
#include "engine_core/flags/engine_config.h"
#include "engine_core/grammar/grammar_config.h"
#include "engine_core/kv_transfer/kv_transfer_config.h"
#include "engine_core/models/model.h"
#include "engine_core/weights/model_config.h"
#include "kernels/backend.h"
#include "proto_msgpack/kv_events.h"

namespace tandem {

// What main builds its objects from. SizeKvCache fills in what depends on memory: num_blocks, and
// max_model_len when it is auto.
struct EngineSetup {
  std::string device;  // "cpu", "cuda" or "reference"
  CpuBackendOptions backend;
  AttentionBackend attention = AttentionBackend::kAuto;  // of cuda; chosen by MakeSetup
  std::string attention_reason;
  bool uses_peers = true;  // CudaBackendOptions
  WeightFormats formats;
  RankCounts ranks;
  int num_engines_of_host = 1;  // that share its CPUs and memory
  bool splits_experts = false;
  ModelRunnerOptions runner;
  EngineCoreOptions engine;
  KvCacheWish kv_cache;
  std::optional<MemoryPlan> memory_plan;  // once the device is known
  wire::KvEventsConfig kv_events;
  KvTransferConfig kv_transfer;
  // Why requests hold all blocks of layers that need recent ones alone; empty: they do not.
  std::string why_one_group;
  GrammarConfig grammars;
  int64_t max_lora_rank = 0;  // 0: there are no adapters
  bool auto_max_model_len = false;
  double step_timeout_s = 0;  // 0: none
};

// --max-step-ms, or its default on this device ("cpu", "cuda" or "reference").
std::string MaxStepMsOf(const EngineConfig& config, std::string_view device);

// Checks flags against the model and each other, and fills in defaults.
StatusOr<EngineSetup> MakeSetup(const EngineConfig& config, const ModelConfig& model);

// What the ranks of the engine share.
RankGroupShape GroupShapeOf(const EngineSetup& setup, const ModelConfig& model,
                            std::span<const int> state_layers);

RankCounts RankCountsOf(const EngineConfig& config);

// Chooses the number of KV blocks. On a host no step has run by then, so room is left for the step
// of the memory plan.
Status SizeKvCache(int64_t bytes_per_block, const HostMemory& memory, EngineSetup* setup);

}  // namespace tandem
