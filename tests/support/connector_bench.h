#pragma once

// A scheduler with a KV connector and a cache of real bytes: what a block holds is a function of
// its hash, written when a step computes it and compared when a request is admitted with it.
// Thread: the test's.

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine_core/kv_transfer/transferring_executor.h"
#include "engine_core/scheduler/scheduler.h"
#include "proto_msgpack/prefix_cache_stats.h"
#include "tests/support/kv_remote/small_kv_cache.h"
#include "tests/support/small_scheduler.h"

#include <catch2/catch.hpp>

namespace tandem {

// Its only work is the content of blocks.
class ContentExecutor final : public Executor {
 public:
  explicit ContentExecutor(KvCache* cache) : cache_(cache) { limits_.block_size = 4; }
  const ExecutorLimits& limits() const override { return limits_; }
  Status Submit(const SchedulerOutput& step) override {
    num_sampled_ = step.requests.size();
    return OkStatus();
  }
  Status Collect(ModelOutput* result) override {
    result->sampled_token_ids.assign(num_sampled_, 9);
    return OkStatus();
  }

  void Fill(BlockId block, const BlockHash& hash) { Visit(block, hash, /*writes=*/true); }
  bool Holds(BlockId block, const BlockHash& hash) { return Visit(block, hash, /*writes=*/false); }

 private:
  bool Visit(BlockId block, const BlockHash& hash, bool writes) {
    bool equal = true;
    for (int layer = 0; layer < kSmallKvLayers; ++layer) {
      const LayerKv kv = cache_->layer(layer);
      for (void* part : {kv.k, kv.v}) {
        auto* bytes = static_cast<uint8_t*>(part) + 32 * Index(block);
        for (size_t i = 0; i < 32; ++i) {
          const auto value = static_cast<uint8_t>(hash.bytes[i] + layer + (part == kv.v ? 100 : 0));
          if (writes) bytes[i] = value;
          equal = equal && bytes[i] == value;
        }
      }
    }
    return equal;
  }

  KvCache* cache_;
  ExecutorLimits limits_;
  size_t num_sampled_ = 0;
};

class ConnectorBench {
 public:
  using Maker = std::function<std::unique_ptr<InProcessConnector>(const KvCache* cache)>;
  struct Options {
    int32_t num_blocks = 12;
    KvLoadFailurePolicy policy = KvLoadFailurePolicy::kFail;
  };

  explicit ConnectorBench(const Maker& maker) : ConnectorBench(maker, Options()) {}
  ConnectorBench(const Maker& maker, const Options& options)
      : cache_(MakeSmallKvCache(options.num_blocks)),
        content_(cache_.get()),
        connector_(maker(cache_.get())),
        executor_(&content_, connector_.get()),
        kv_(SmallCache(options.num_blocks)),
        scheduler_(ConfigWith(options.policy), &kv_, connector_.get()) {}

  // Runs one request to its end; returns the tokens that the connector loaded.
  int64_t Ask(int32_t num_prompt_tokens, TokenId first_token, int32_t max_tokens = 1) {
    const RequestId id = std::to_string(++num_asked_);
    return Run(CountingRequest(id, num_prompt_tokens, max_tokens, first_token));
  }
  // -1: it ended without a first output. Its last record is in last().
  int64_t Run(wire::EngineCoreRequest request, const RequestNeeds& needs = {}) {
    REQUIRE(scheduler_.Add(std::move(request), ++now_, needs).ok());
    int64_t num_external = -1;
    for (int i = 0; i < 20000 && scheduler_.pending_work() != Work::kNone; ++i) {
      Step();
      for (auto& record : TakeRecords(&outputs_, now_)) {
        if (record.prefill_stats) num_external = record.prefill_stats->num_external_cached_tokens;
        last_ = std::move(record);
      }
    }
    CHECK(scheduler_.pending_work() == Work::kNone);
    return num_external;
  }
  void Step() {
    const SchedulerOutput& step = scheduler_.Schedule(++now_);
    CheckContent();
    ModelOutput result;
    REQUIRE(executor_.Submit(step).ok());
    REQUIRE(executor_.Collect(&result).ok());
    scheduler_.Update(step, &result, &outputs_);
  }
  const wire::EngineCoreOutput& last() const { return last_; }
  // Where the tokens that were loaded since the last call had been.
  wire::CountsByName TakeSources() {
    const auto stats =
        wire::UnpackPrefixCacheStats(scheduler_.TakeStats().connector_prefix_cache_stats);
    REQUIRE(stats.ok());
    return stats->hits_by_source;
  }
  bool Reset() { return scheduler_.ResetPrefixCache(false, ++now_, /*reset_connector=*/true); }
  Scheduler& scheduler() { return scheduler_; }
  InProcessConnector& connector() { return *connector_; }
  ClientOutputs& outputs() { return outputs_; }
  double now() { return ++now_; }

 private:
  static SchedulerConfig ConfigWith(KvLoadFailurePolicy policy) {
    SchedulerConfig config = SmallConfig();
    config.kv_load_failure_policy = policy;
    config.max_loras = 1;
    return config;
  }

  // Blocks that a request has been admitted with hold what they should; those that the step
  // computes are filled.
  void CheckContent() {
    for (const Request* request : scheduler_.running()) {
      const std::span<const BlockId> table = kv_.BlockTable(request->slot);
      for (size_t i = 0; i < std::min(table.size(), request->block_hashes.size()); ++i) {
        const bool is_known = static_cast<int32_t>(4 * (i + 1)) <= request->known.total();
        if (is_known) CHECK(content_.Holds(table[i], request->block_hashes[i]));
        content_.Fill(table[i], request->block_hashes[i]);
      }
    }
  }

  std::unique_ptr<KvCache> cache_;
  ContentExecutor content_;
  std::unique_ptr<InProcessConnector> connector_;
  TransferringExecutor executor_;
  KvCacheManager kv_;
  Scheduler scheduler_;
  ClientOutputs outputs_;
  wire::EngineCoreOutput last_;
  double now_ = 0;
  int num_asked_ = 0;
};

}  // namespace tandem
