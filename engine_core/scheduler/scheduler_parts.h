#pragma once

// What the two passes and the update work on: one record of the scheduler's configuration, its
// requests and their blocks, KV transfers, images and drafts.
// Thread: engine loop. Owned by Scheduler at a fixed address, because its members point at each
// other. The KV cache and the connector (nullptr: none) must outlive it.

#include "engine_core/kv_cache/kv_cache_manager.h"
#include "engine_core/scheduler/draft_tokens.h"
#include "engine_core/scheduler/encoder_cache.h"
#include "engine_core/scheduler/kv_transfers.h"
#include "engine_core/scheduler/request_table.h"
#include "engine_core/scheduler/scheduler_config.h"
#include "engine_core/scheduler/thinking_budgets.h"

namespace tandem {

struct SchedulerParts {
  // REQUIRES: every limit of the configuration is set.
  SchedulerParts(const SchedulerConfig& scheduler_config, KvCacheManager* cache,
                 KvConnector* connector)
      : config(scheduler_config),
        kv_cache(*cache),
        transfers(connector, cache, config.overlaps_steps),
        encoder_cache(config.encoder_cache_rows, config.needs_whole_images),
        requests(config, cache, &transfers, &encoder_cache),
        drafts(config.drafts, config.max_model_len),
        thinking_budgets(config.vocab_size) {}
  SchedulerParts(const SchedulerParts&) = delete;
  SchedulerParts& operator=(const SchedulerParts&) = delete;

  const SchedulerConfig config;
  KvCacheManager& kv_cache;
  KvTransfers transfers;
  EncoderCache encoder_cache;
  RequestTable requests;
  DraftTokens drafts;
  ThinkingBudgets thinking_budgets;
};

}  // namespace tandem
