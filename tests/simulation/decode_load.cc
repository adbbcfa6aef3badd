#include "tests/simulation/decode_load.h"

#include <utility>

#include "common/check.h"

namespace tandem {
namespace {

constexpr int32_t kMaxModelLen = 1 << 15;  // not reached by any request, and all fit

}  // namespace

DecodeLoad::NullExecutor::NullExecutor(const DecodeLoadOptions& options) {
  limits_.block_size = options.block_size;
  limits_.num_blocks = options.num_requests * (kMaxModelLen / options.block_size) + 1;
  limits_.max_num_seqs = options.num_requests;
  limits_.max_num_batched_tokens = 8192;
  limits_.max_model_len = kMaxModelLen;
  limits_.vocab_size = 1000;
}

Status DecodeLoad::NullExecutor::Submit(const SchedulerOutput& step) {
  ModelOutput* result = results_.Push();
  for (const ScheduledRequest& request : step.requests) {
    result->sampled_token_ids.push_back(request.needs_sample ? 7 : kNoToken);
  }
  return OkStatus();
}

Status DecodeLoad::NullExecutor::Collect(ModelOutput* result) {
  results_.Pop(result);
  return OkStatus();
}

DecodeLoad::DecodeLoad(const DecodeLoadOptions& options) : executor_(options) {
  EngineCoreOptions engine_options;
  engine_options.async_scheduling = options.async_scheduling;
  engine_options.kv_cache.enable_prefix_caching = options.enable_prefix_caching;
  auto engine = EngineCore::Create(engine_options, &executor_, &clock_);
  CHECK(engine.ok()) << engine.status().ToString();
  engine_ = std::move(*engine);
  for (int32_t i = 0; i < options.num_requests; ++i) {
    wire::EngineCoreRequest request;
    request.request_id = "chatcmpl-0123456789abcdef-" + std::to_string(10000000 + i);
    // Lengths differ, so that blocks do not all fill in the same step.
    const int32_t prompt_tokens = options.prompt_tokens + i % options.block_size;
    for (int32_t t = 0; t < prompt_tokens; ++t) {
      request.prompt_token_ids.push_back((i * 31 + t * 7) % 1000);
    }
    request.sampling_params.max_tokens = 100000;
    request.sampling_params.eos_token_id = 2;
    request.sampling_params.stop_token_ids = {3, 4};
    engine_->Handle(std::move(request));
  }
}

void DecodeLoad::Prefill() {
  int64_t before;
  do {
    before = num_output_tokens_;
    Step();
  } while (num_output_tokens_ - before < executor_.limits().max_num_seqs);
}

void DecodeLoad::Step() {
  clock_.Advance(0.001);
  CHECK(engine_->Step().ok());
  engine_->TakeMessages(&messages_);
  for (ClientMessage& message : messages_) {
    num_output_tokens_ += static_cast<int64_t>(message.outputs.outputs.size());
    engine_->Recycle(std::move(message.outputs));
  }
}

}  // namespace tandem
