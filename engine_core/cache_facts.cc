#include "engine_core/cache_facts.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "engine_core/load_runner.h"
#include "proto_msgpack/offload_series.h"

namespace tandem {
namespace {

std::string Python(bool value) { return value ? "True" : "False"; }
std::string Python(int64_t value) { return std::to_string(value); }
std::string Python(double value) { return nlohmann::json(value).dump(); }
std::string Python(const std::string& value) { return value; }
template <class T>
std::string Python(const std::optional<T>& value) {
  return value ? Python(*value) : "None";
}

bool HasFileTier(const KvTransferConfig& config) {
  return config.file_tier.has_value() || std::ranges::any_of(config.connectors, HasFileTier);
}

bool Loads(const KvTransferConfig& config) {
  using Kind = KvTransferConfig::Connector;
  if (config.connector == Kind::kMulti) return std::ranges::any_of(config.connectors, Loads);
  return config.connector != Kind::kNone && config.loads;
}

std::string OffloadTiers(const KvTransferConfig& config) {
  std::string tiers(wire::offload::kPrimaryTier);
  if (HasFileTier(config)) tiers += "," + std::string(wire::offload::kFileTier);
  return tiers;
}

bool HasAttention(const ModelConfig& model) {
  for (int64_t i = 0; i < model.num_layers; ++i) {
    if (model.recurrent.HasKv(i)) return true;
  }
  return false;
}

}  // namespace

std::vector<std::string> CacheFacts(const EngineConfig& config, const ModelConfig& model,
                                    const EngineSetup& setup) {
  const ExecutorLimits& limits = setup.runner.limits;
  const CacheSize cache = SizeOf(limits);
  std::vector<std::string> facts;
  const auto add = [&facts](const char* name, const auto& value) {
    facts.emplace_back(name);
    facts.push_back(Python(value));
  };
  const int32_t keys_seen = limits.groups.sliding_window();
  const auto window = keys_seen > 0 ? std::optional<int64_t>(keys_seen) : std::optional<int64_t>();
  const int64_t num_drafts = limits.drafts.num_speculative_tokens;
  if (num_drafts > 0) add("tandem_num_speculative_tokens", num_drafts);
  if (Loads(setup.kv_transfer)) add("tandem_loads_kv", true);
  if (setup.kv_transfer.Has(KvTransferConfig::Connector::kOffloading)) {
    add(std::string(wire::offload::kTiersFact).c_str(), OffloadTiers(setup.kv_transfer));
  }
  add("block_size", int64_t{limits.block_size});
  add("user_specified_block_size", config.block_size.has_value());
  add("_block_size_resolved", true);
  add("num_gpu_blocks", int64_t{limits.num_blocks});
  add("num_gpu_blocks_override", config.num_gpu_blocks_override);
  add("kv_cache_size_tokens", cache.tokens);
  add("kv_cache_max_concurrency", cache.max_concurrency);
  add("kv_cache_memory_bytes", config.kv_cache_memory_bytes);
  add("gpu_memory_utilization", setup.kv_cache.utilization.value_or(kDefaultUtilization));
  add("cache_dtype", config.kv_cache_dtype);
  add("sliding_window", window);
  const bool caches_prefixes = setup.engine.kv_cache.enable_prefix_caching;
  const bool has_states = model.recurrent.num_layers() > 0;
  add("enable_prefix_caching", caches_prefixes);
  add("prefix_caching_hash_algo", config.prefix_caching_hash_algo);
  add("hash_block_size", int64_t{limits.block_size});
  add("cache_hit_alignment_tokens", int64_t{limits.block_size});
  add("effective_attention_block_size", int64_t{limits.block_size});
  add("kv_offloading_size", config.kv_offloading_size > 0
                                ? std::optional<double>(config.kv_offloading_size)
                                : std::nullopt);
  add("kv_offloading_backend", config.kv_offloading_backend);
  add("is_attention_free", !HasAttention(model));
  // A state is kept in float32, at the end of each block.
  add("mamba_block_size", has_states ? std::optional<int64_t>(limits.block_size) : std::nullopt);
  add("mamba_cache_mode", std::string(has_states && caches_prefixes ? "align" : "none"));
  add("mamba_cache_dtype", std::string(has_states ? "float32" : "auto"));
  add("mamba_ssm_cache_dtype", std::string(has_states ? "float32" : "auto"));
  for (const auto& [name, value] : std::initializer_list<std::pair<const char*, const char*>>{
           {"enable_mamba_shared_prefix_checkpoint", "False"},
           {"kv_cache_dtype_skip_layers", "[]"},
           {"kv_cache_layout", "None"},
           {"kv_sharing_fast_prefill", "False"},
           {"mamba_page_size_padded", "None"},
           {"num_cpu_blocks", "None"},
           {"prefix_cache_retention_interval", "0"},
           {"prefix_match_unit", "None"},
           {"replayssm_buffer_len", "16"},
           {"simple_cpu_offload_num_blocks", "None"},
           {"skip_page_size_padded", "None"},
           {"swa_bounded_replay", "True"},
           {"use_kda_recoverssm", "False"},
           {"use_replayssm", "False"}}) {
    add(name, std::string(value));
  }
  return facts;
}

}  // namespace tandem
