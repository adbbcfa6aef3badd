#include "tests/bench/step_bench.h"

#include <chrono>

#include "common/random.h"
#include "engine_core/models/registry.h"
#include "engine_core/weights/dummy_weights.h"
#include "tests/bench/machine_ceilings.h"

namespace tandem {

namespace {

constexpr int32_t kBlockSize = 32;
constexpr int32_t kMaxSeqs = 32;
constexpr int32_t kBlocksEach = StepBench::kMaxModelLen / kBlockSize;

}  // namespace

double WallSeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

StepBench::StepBench(const ModelShape& shape, int num_threads, WeightFormats formats) {
  config_ = ParseModelConfig(shape.config, "").value();
  ModelRunnerOptions options;
  options.limits = {.num_blocks = kMaxSeqs * kBlocksEach + 1,
                    .block_size = kBlockSize,
                    .max_num_seqs = kMaxSeqs,
                    .max_num_batched_tokens = 2048,
                    .max_model_len = kMaxModelLen,
                    .vocab_size = static_cast<int32_t>(config_.vocab_size)};
  auto backend = std::make_unique<TimedBackend>(
      MakeCpuBackend({.dtype = DType::kBf16, .num_threads = num_threads, .isa = BenchIsa()})
          .value());
  backend_ = backend.get();
  const auto weights = MakeDummyWeights(1);
  auto model =
      LoadModel({config_, ModelLimitsOf(options.limits), *weights, *backend, formats}).value();
  runner_ = ModelRunner::Create(std::move(backend), std::move(model), config_, options).value();
  params_.temperature = 0;
  params_.max_tokens = kMaxModelLen;
}

StepTime StepBench::Admit(int32_t num_requests, int32_t context, int32_t new_tokens) {
  for (int32_t r = 0; r < num_running_; ++r) step_.freed_slots.push_back(RequestSlot{r});
  num_running_ = num_requests;
  prompts_.clear();
  for (int32_t r = 0; r < num_requests; ++r) {
    std::vector<TokenId>& prompt = prompts_.emplace_back();
    for (int32_t t = 0; t < context; ++t) {
      const double draw = UniformAt(1, static_cast<uint64_t>(t), static_cast<uint64_t>(r));
      prompt.push_back(static_cast<TokenId>(draw * static_cast<double>(config_.vocab_size)));
    }
  }
  for (int32_t r = 0; r < num_requests; ++r) {
    step_.admitted.push_back({.request_idx = r,
                              .request_id = &id_,
                              .sampling_params = &params_,
                              .token_ids = prompts_[static_cast<size_t>(r)],
                              .num_prompt_tokens = context});
    step_.requests.push_back({.slot = RequestSlot{r},
                              .num_computed_tokens = context - new_tokens,
                              .num_scheduled_tokens = new_tokens,
                              .new_blocks_begin = r * kBlocksEach,
                              .num_new_blocks = kBlocksEach,
                              .kind = ScheduledKind::kNew,
                              .needs_sample = true});
    for (int32_t b = 0; b < kBlocksEach; ++b) {
      step_.new_block_ids.push_back(BlockId{1 + r * kBlocksEach + b});
    }
  }
  context_ = context;
  return Run();
}

StepTime StepBench::Decode() {
  for (int32_t r = 0; r < num_running_; ++r) {
    step_.requests.push_back({.slot = RequestSlot{r},
                              .num_computed_tokens = context_,
                              .num_scheduled_tokens = 1,
                              .needs_sample = true});
  }
  ++context_;
  return Run();
}

double StepBench::StepBytes(int32_t num_requests, int32_t context) const {
  const int64_t embedding = config_.tie_word_embeddings ? 0 : backend_->largest_packed_bytes();
  const double kv = static_cast<double>(2 * config_.num_layers * config_.num_kv_heads *
                                        config_.head_dim * SizeOf(backend_->activation_dtype()));
  return static_cast<double>(backend_->packed_bytes() - embedding) + kv * num_requests * context;
}

double StepBench::StepFlops(int32_t num_requests, int32_t context, int32_t new_tokens) const {
  const auto head = static_cast<double>(config_.vocab_size * config_.hidden_size);
  const double q_size = static_cast<double>(config_.num_heads * config_.head_dim);
  const double kv_size = static_cast<double>(config_.num_kv_heads * config_.head_dim);
  const auto hidden = static_cast<double>(config_.hidden_size);
  const double layer =
      hidden * (2 * q_size + 2 * kv_size + 3 * static_cast<double>(config_.intermediate_size));
  const double keys = context - (new_tokens - 1) / 2.0;
  const auto layers = static_cast<double>(config_.num_layers);
  return num_requests * (2 * head + new_tokens * layers * (2 * layer + 4 * q_size * keys));
}

StepTime StepBench::Run() {
  step_.num_scheduled_tokens = 0;
  for (const ScheduledRequest& request : step_.requests) {
    step_.num_scheduled_tokens += request.num_scheduled_tokens;
  }
  backend_->ResetTimes();
  StepTime time;
  const double wall = WallSeconds(), cpu = ProcessCpuSeconds();
  const Status status = runner_->Execute(step_, &output_);
  time.wall = WallSeconds() - wall;
  time.cpu = ProcessCpuSeconds() - cpu;
  time.ops = backend_->times();
  for (const OpTime& op : time.ops) time.cpu -= op.seconds;
  CHECK(status.ok() && output_.results.empty()) << status.ToString();
  step_.Clear();
  return time;
}

}  // namespace tandem
