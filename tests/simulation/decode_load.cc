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
  Executor* executor = &executor_;
  const Clock* clock = &clock_;
  if (options.flight_recorder_bytes > 0) {
    auto ring = FlightRing::Create(options.flight_recorder_bytes, "");
    CHECK(ring.ok()) << ring.status().ToString();
    ring_.emplace(*std::move(ring));
    recorder_ = std::make_unique<FlightRecorder>(&*ring_);
    recorded_clock_ = std::make_unique<RecordedClock>(clock, recorder_.get());
    recorded_executor_ = std::make_unique<RecordedExecutor>(executor, recorder_.get());
    clock = recorded_clock_.get();
    executor = recorded_executor_.get();
  }
  auto engine = EngineCore::Create(engine_options, executor, clock);
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
  const bool wants_checkpoint = recorder_ != nullptr && recorder_->is_checkpoint_due();
  std::vector<EngineEvent> none;
  if (wants_checkpoint) recorder_->Checkpoint(*engine_, &none);
  const bool may_schedule = !wants_checkpoint || !engine_->has_steps_in_flight();
  if (recorder_ != nullptr) recorder_->BeginTurn(may_schedule);
  CHECK(engine_->BeginStep(may_schedule).ok());
  if (recorder_ != nullptr) recorder_->EndStep();
  engine_->EndStep();
  engine_->TakeMessages(&messages_);
  for (ClientMessage& message : messages_) {
    num_output_tokens_ += static_cast<int64_t>(message.outputs.outputs.size());
    engine_->Recycle(std::move(message.outputs));
  }
}

}  // namespace tandem
