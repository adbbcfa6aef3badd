#pragma once

// Names of an OffloadingConnector's series, as engine and frontend know them:
// vLLM 0.33's. Names of counters get their _total in the exposition. `tier` is a label,
// "0:primary" for host memory and "1:fs" for files.

#include <string_view>

namespace tandem::wire::offload {

constexpr std::string_view kLoadBytes = "vllm:kv_offload_load_bytes";
constexpr std::string_view kLoadTime = "vllm:kv_offload_load_time";
constexpr std::string_view kLoadSize = "vllm:kv_offload_load_size";
constexpr std::string_view kStoreBytes = "vllm:kv_offload_store_bytes";
constexpr std::string_view kStoreTime = "vllm:kv_offload_store_time";
constexpr std::string_view kStoreSize = "vllm:kv_offload_store_size";
constexpr std::string_view kLookupSyncDelay = "vllm:kv_offload_lookup_sync_delay_seconds";
constexpr std::string_view kLookupAsyncDelay = "vllm:kv_offload_lookup_async_delay_seconds";
constexpr std::string_view kAllocationFailure = "vllm:kv_offload_allocation_failure";
constexpr std::string_view kStoresSkipped = "vllm:kv_offload_stores_skipped";
constexpr std::string_view kCpuUsage = "vllm:kv_offload_cpu_cache_usage_perc";
constexpr std::string_view kCpuWriteUsage = "vllm:kv_offload_cpu_cache_write_usage_perc";
constexpr std::string_view kCpuReadUsage = "vllm:kv_offload_cpu_cache_read_usage_perc";
constexpr std::string_view kCpuAllocationSize = "vllm:kv_offload_cpu_allocation_size";
constexpr std::string_view kConfigInfo = "vllm:kv_offload_config_info";
// Older, by transfer_type: of loads (CPU_to_GPU) and stores (GPU_to_CPU).
constexpr std::string_view kTotalBytes = "vllm:kv_offload_total_bytes";
constexpr std::string_view kTotalTime = "vllm:kv_offload_total_time";
constexpr std::string_view kSize = "vllm:kv_offload_size";

// Of several tiers; with label tier unless said.
constexpr std::string_view kTieringPrefix = "vllm:kv_offload_tiering_";
constexpr std::string_view kTierLookupSyncDelay =
    "vllm:kv_offload_tiering_lookup_sync_delay_seconds";
constexpr std::string_view kTierLookupAsyncDelay =
    "vllm:kv_offload_tiering_lookup_async_delay_seconds";
constexpr std::string_view kTierReadBytes = "vllm:kv_offload_tiering_read_bytes";
constexpr std::string_view kTierReadTime = "vllm:kv_offload_tiering_read_time";
constexpr std::string_view kTierWriteBytes = "vllm:kv_offload_tiering_write_bytes";
constexpr std::string_view kTierWriteTime = "vllm:kv_offload_tiering_write_time";
constexpr std::string_view kPromotionFailures = "vllm:kv_offload_tiering_promotion_job_failures";
constexpr std::string_view kCascadeFailures = "vllm:kv_offload_tiering_cascade_job_failures";
constexpr std::string_view kChunkQueries = "vllm:kv_offload_tiering_chunk_queries";
constexpr std::string_view kChunkHits = "vllm:kv_offload_tiering_chunk_hits";
constexpr std::string_view kPromotionAllocationFailures =
    "vllm:kv_offload_tiering_promotion_allocation_failures";  // no label
constexpr std::string_view kPrimaryWriteUsage = "vllm:kv_offload_tiering_primary_write_usage_perc";
constexpr std::string_view kPrimaryReadUsage = "vllm:kv_offload_tiering_primary_read_usage_perc";
constexpr std::string_view kActivePromotions = "vllm:kv_offload_tiering_active_promotion_jobs";
constexpr std::string_view kActiveCascades = "vllm:kv_offload_tiering_active_cascade_jobs";
constexpr std::string_view kStoreLatency = "vllm:kv_offload_tiering_backpressure_store_latency_ema";
constexpr std::string_view kStoresDropped = "vllm:kv_offload_tiering_backpressure_stores_dropped";
constexpr std::string_view kBlocksDropped = "vllm:kv_offload_tiering_backpressure_blocks_dropped";
constexpr std::string_view kPromotionLatency =
    "vllm:kv_offload_tiering_promotion_latency_seconds";  // and label result: success, failure

constexpr std::string_view kPrimaryTier = "0:primary";
constexpr std::string_view kFileTier = "1:fs";

// The fact among an engine's cache facts that lists its tiers, between commas; frontends that know
// it show the series before anything is counted.
constexpr std::string_view kTiersFact = "tandem_kv_offload_tiers";

}  // namespace tandem::wire::offload
