#pragma once

// The engine without its process: a real scheduler, cache and model runner over a model folder,
// stepped by hand on the test's thread. Time is a counter of steps.
// Failure: what must not happen ends the test program (CHECK).

#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "engine_core/executor/model_runner.h"
#include "engine_core/executor/rank_adapters.h"
#include "engine_core/executor/rank_group.h"
#include "engine_core/scheduler/scheduler.h"
#include "proto_msgpack/pooling_params.h"

namespace tandem {

struct EngineDriverOptions {
  std::string model_dir;           // or a GGUF file
  Weights* weights = nullptr;      // in place of the folder's; ranks read them at once
  bool reference_backend = false;  // else cpu
  std::function<std::unique_ptr<Backend>()> make_backend = {};               // in place of either
  std::function<std::unique_ptr<Backend>(int rank)> make_rank_backend = {};  // with ranks
  DType dtype = DType::kF32;
  WeightFormats formats = {};
  KvFormat kv_format = KvFormat::kCompute;
  int num_threads = 1;
  int32_t num_blocks = 64;  // for each group of layers, if there are several
  int32_t block_size = 32;
  int32_t max_num_seqs = 8;
  int32_t max_num_batched_tokens = 256;
  int32_t max_model_len = 256;
  bool enable_prefix_caching = true;
  std::vector<int64_t> graph_sizes = {};  // of a backend that can capture
  bool async_scheduling = false;          // the next step is scheduled while one executes
  LogprobsMode logprobs_mode = LogprobsMode::kRawLogprobs;
  bool gives_back_blocks = true;  // those before a window
  SpeculativeConfig speculation = {};
  RankCounts ranks = {};  // those besides the driver's own are threads
  bool splits_experts = false;
  AdapterSites* adapter_sites = nullptr;  // filled; outlives the driver. Null: no adapters
  int32_t max_loras = 8;
  int64_t max_lora_rank = 16;
  bool can_sleep = false;
  PoolingFlags pooling = {};  // with files of a pooler the model pools
  std::string hf_overrides = {};
  bool takes_images = true;  // of a model that has a vision tower
  bool needs_whole_images = false;
  bool slices_images = false;  // a slice in each step
};

// All that a client would have received for one request.
struct Transcript {
  std::vector<TokenId> token_ids;
  std::vector<float> logprobs;           // of the sampled tokens, when asked for
  std::vector<wire::LogprobsRows> rows;  // one of each token
  wire::LogprobsRows prompt_logprobs;
  std::string error;
  int64_t num_cached_tokens = 0;
  bool has_prefill_stats = false;
  bool finished = false;
  std::optional<wire::FinishReason> finish_reason;
  wire::StopReason stop_reason;
  int32_t num_preemptions = 0;
  std::vector<float> pooled;  // of a request that is pooled
};

class EngineDriver {
 public:
  explicit EngineDriver(const EngineDriverOptions& options);
  ~EngineDriver();

  // The last num_prior_outputs of the prompt: see wire::OwnRequestFields.
  void Add(const std::string& id, std::vector<TokenId> prompt, const wire::SamplingParams& params,
           int32_t num_prior_outputs = 0, const Adapter& adapter = {},
           std::shared_ptr<const RequestImages> images = {});
  // Of a model that pools.
  void AddPooled(const std::string& id, std::vector<TokenId> prompt,
                 const wire::PoolingParams& params);
  void Abort(const std::string& id) { scheduler_->Abort(id); }
  // Begins a step and takes the result of the oldest; false when nothing was left to do.
  bool Step();
  void RunAll();

  // Starts new transcripts; the cache stays as it is.
  void Forget() { transcripts_.clear(); }
  const Transcript& transcript(const std::string& id) { return transcripts_[id]; }
  Scheduler& scheduler() { return *scheduler_; }
  ModelRunner& runner() { return *runner_; }
  RankGroup* group() { return group_.get(); }  // null: one rank
  // What the other ranks have of adapters, where there are any
  // (EngineDriverOptions::adapter_sites).
  struct OtherRank {
    AdapterSites sites;
    const Backend* backend = nullptr;
    RankAdapters adapters;
  };
  const std::vector<std::unique_ptr<OtherRank>>& other_ranks() { return rank_parts_; }

 private:
  void TakeResult();
  void StartRanks(const EngineDriverOptions& options, const ModelConfig& config,
                  const ModelRunnerOptions& runner_options);

  std::unique_ptr<RankGroup> group_;
  std::vector<std::unique_ptr<OtherRank>> rank_parts_;
  std::vector<std::future<void>> is_loaded_;
  std::vector<std::thread> other_ranks_;
  std::unique_ptr<ModelRunner> runner_;
  std::unique_ptr<KvCacheManager> kv_cache_;
  std::unique_ptr<Scheduler> scheduler_;
  ModelOutput result_;
  ClientOutputs outputs_;
  std::map<std::string, Transcript> transcripts_;
  double now_ = 0;
  bool async_scheduling_ = false;
  std::vector<const SchedulerOutput*> in_flight_;
};

std::unique_ptr<Backend> MakeTestBackend(bool reference, DType dtype, int num_threads);

// Greedy, ends by length only.
wire::SamplingParams GreedyParams(int32_t max_tokens);

struct TestRequest {
  std::string id;
  std::vector<TokenId> prompt;
  wire::SamplingParams params;
  int32_t arrival_step = 0;  // at most kLastArrivalStep
};

inline constexpr int32_t kLastArrivalStep = 12;

// Adds each request at its step and runs until all are finished.
void RunTogether(EngineDriver* engine, const std::vector<TestRequest>& requests);

}  // namespace tandem
