#include "engine_core/executor/memory_plan.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Catch::Matchers::Contains;

constexpr int64_t kMiB = 1 << 20;

// A Llama of 1.1 billion weights.
ModelConfig Llama() {
  ModelConfig config;
  config.vocab_size = 32000;
  config.hidden_size = 2048;
  config.intermediate_size = 5632;
  config.num_layers = 22;
  config.num_heads = 32;
  config.num_kv_heads = 4;
  config.head_dim = 64;
  return config;
}

ExecutorLimits Limits() {
  return {
      .block_size = 32, .max_num_seqs = 128, .max_num_batched_tokens = 2048, .max_model_len = 4096};
}

constexpr int64_t kBytesPerBlock = 32 * 22 * 2 * 4 * 64 * 2;

MemoryPlan Plan(const ModelConfig& config, MemoryPlanInput input = {}) {
  input.kv_bytes_per_block = kBytesPerBlock;
  return PlanMemory(config, Limits(), input);
}

TEST_CASE("memory plan: weights by the config's shapes and by what they are kept in") {
  const int64_t layers = int64_t{22} * 2048 * (2 * 2048 + 2 * 256 + 3 * 5632);
  const int64_t tables = int64_t{2} * 32000 * 2048;
  CHECK(Plan(Llama()).weights == 2 * (layers + tables));
  CHECK(Plan(Llama(), {.dtype = DType::kF32}).weights == 4 * (layers + tables));
  CHECK(Plan(Llama(), {.formats = WeightFormatsOf("int8")}).weights == layers + tables);
  CHECK(Plan(Llama(), {.formats = WeightFormatsOf("int4")}).weights == layers * 17 / 32 + tables);
  ModelConfig tied = Llama();
  tied.tie_word_embeddings = true;
  CHECK(Plan(tied).weights == 2 * (layers + tables / 2));
}

TEST_CASE("memory plan: a mixture has all its experts in the layers that are one") {
  ModelConfig mixture = Llama();
  mixture.num_experts = 8;
  mixture.moe_intermediate_size = 1000;
  mixture.decoder_sparse_step = 2;  // layers 1, 3, ...
  mixture.mlp_only_layers = {3};
  const int64_t more = int64_t{10} * 2048 * 3 * (8 * 1000 - 5632);
  CHECK(Plan(mixture).weights == Plan(Llama()).weights + 2 * more);
}

TEST_CASE("memory plan: the largest sizes that a config may have are too much, not undefined") {
  ModelConfig config = Llama();
  config.hidden_size = config.intermediate_size = config.moe_intermediate_size = 1 << 24;
  config.num_experts = 1 << 16;
  config.num_layers = 10000;
  const HostMemory memory = {.total_bytes = int64_t{1} << 50};
  CHECK(CheckFits(Plan(config), memory).code() == StatusCode::kResourceExhausted);
}

TEST_CASE("memory plan: a step and a request by their limits") {
  const MemoryPlan plan = Plan(Llama());
  CHECK(plan.activations == int64_t{2048} * (2 * 2048 + (2048 + 512) + 2 * 2048 + 2 * 5632) * 2);
  CHECK(plan.sampling == int64_t{2} * 128 * 32000 * 4);  // logits, and counts
  CHECK(plan.kv_of_a_request == 128 * kBytesPerBlock);
  CHECK(plan.step_bytes() == plan.activations + plan.sampling);
}

TEST_CASE("memory plan: a KV cache leaves what steps will touch") {
  const MemoryPlan plan = Plan(Llama());
  const HostMemory memory = {
      .total_bytes = 8000 * kMiB, .available_bytes = 4000 * kMiB, .resident_bytes = 2200 * kMiB};
  const HostMemory left = LessStep(memory, plan);
  CHECK(left.resident_bytes == memory.resident_bytes + plan.step_bytes());
  CHECK(left.available_bytes == memory.available_bytes - plan.step_bytes());
  CHECK(*ChooseNumBlocks({.utilization = 0.5}, kMiB, Limits(), left) ==
        4000 - 2200 - (plan.step_bytes() + kMiB - 1) / kMiB);
}

TEST_CASE("memory plan: weights and a step that cannot fit are refused before they are loaded") {
  const MemoryPlan plan = Plan(Llama());
  HostMemory memory = {.total_bytes = plan.weights + plan.step_bytes()};
  CHECK(CheckFits(plan, memory).ok());
  --memory.total_bytes;
  CHECK(CheckFits(plan, memory).code() == StatusCode::kResourceExhausted);
}

TEST_CASE("memory plan: the advice names what there is, each need and the flag that changes it") {
  const HostMemory memory = {.total_bytes = 8000 * kMiB, .available_bytes = 1234 * kMiB};
  const std::string host = MemoryAdvice(Plan(Llama()), memory);
  CHECK_THAT(host, Contains("may use 8,000 MiB, 1,234 MiB of it free"));
  CHECK_THAT(host, Contains("2,098 MiB for weights: --quantization int8"));
  CHECK_THAT(host, Contains("activations: lower --max-num-batched-tokens 2048"));
  CHECK_THAT(host, Contains("logits and token counts: lower --max-num-seqs 128"));
  CHECK_THAT(host, Contains("lower --max-model-len 4096, or --kv-cache-dtype int8"));
  CHECK_THAT(host, Contains("--gpu-memory-utilization or --kv-cache-memory-bytes"));
  const std::string device = MemoryAdvice(Plan(Llama(), {.is_device = true}), memory);
  CHECK_THAT(device, Contains("the device has 8,000 MiB") && !Contains("int8"));
}

TEST_CASE("memory plan: advice goes with errors of memory only") {
  const MemoryPlan plan = Plan(Llama());
  CHECK(WithMemoryAdvice(InvalidArgumentError("x"), plan, {}).message() == "x");
  CHECK(WithMemoryAdvice(OkStatus(), plan, {}).ok());
  CHECK_THAT(WithMemoryAdvice(ResourceExhaustedError("x"), plan, {}).message(),
             Contains("x\n") && Contains("--max-model-len"));
}

}  // namespace
}  // namespace tandem
