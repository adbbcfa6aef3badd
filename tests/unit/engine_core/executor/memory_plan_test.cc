#include "engine_core/executor/memory_plan.h"

#include <cmath>
#include <random>

#include "engine_core/models/registry.h"

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
  config.head_dim = config.rotary_dim = 64;
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

TEST_CASE("memory plan: weights follow the config's shapes and their formats") {
  const int64_t layers = int64_t{22} * 2048 * (2 * 2048 + 2 * 256 + 3 * 5632);
  const int64_t tables = int64_t{2} * 32000 * 2048;
  CHECK(Plan(Llama()).weights == 2 * (layers + tables));
  CHECK(Plan(Llama(), {.dtype = DType::kF32}).weights == 4 * (layers + tables));
  CHECK(Plan(Llama(), {.formats = WeightFormatsOf("int8")}).weights == layers + tables);
  CHECK(Plan(Llama(), {.formats = WeightFormatsOf("int4")}).weights == layers * 17 / 32 + tables);
  ModelConfig stored = Llama();
  stored.quantization.layer_bits = 4.5;
  stored.quantization.table_bits = 8.5;
  const MemoryPlanInput as_stored = {.formats = WeightFormatsOf("auto")};
  CHECK(Plan(stored, as_stored).weights == layers * 9 / 16 + tables * 17 / 16);
  CHECK(Plan(stored).weights == 2 * (layers + tables));
  CHECK(Plan(Llama(), as_stored).weights == 2 * (layers + tables));
  ModelConfig tied = Llama();
  tied.tie_word_embeddings = true;
  CHECK(Plan(tied).weights == 2 * (layers + tables / 2));
}

TEST_CASE("memory plan: a mixture counts all experts in the layers that have them") {
  ModelConfig mixture = Llama();
  mixture.num_experts = 8;
  mixture.num_experts_per_tok = 3;
  mixture.moe_intermediate_size = 1000;
  mixture.mixture_layers.assign(22, false);
  for (const size_t i : {1, 2, 21}) mixture.mixture_layers[i] = true;
  const int64_t more = int64_t{3} * 2048 * 3 * (8 * 1000 - 5632);
  CHECK(Plan(mixture).weights == Plan(Llama()).weights + 2 * more);
  CHECK(Plan(mixture).activations ==
        Plan(Llama()).activations + int64_t{2048} * 3 * (2048 + 1000) * 2);
  // Experts on a latent are as narrow as it is, and have a projection to it and one from it.
  const int64_t before = Plan(mixture).weights;
  mixture.moe_latent_size = 512;
  const int64_t narrower = int64_t{3} * 3 * 8 * 1000 * (2048 - 512) - int64_t{3} * 2 * 2048 * 512;
  CHECK(Plan(mixture).weights == before - 2 * narrower);
}

TEST_CASE(
    "memory plan: layers that differ count their own heads, and what a token brings to them") {
  ModelConfig uneven = Llama();
  uneven.sliding_window = 512;
  uneven.sliding_layers.assign(22, true);
  for (const size_t i : {20, 21}) uneven.sliding_layers[i] = false;
  uneven.uneven = {.global_head_dim = 128, .num_global_kv_heads = 2};
  // Twice as wide a head for q and o; k and v as large as before.
  const int64_t wider = int64_t{2} * 2048 * 2 * 2048;
  CHECK(Plan(uneven).weights == Plan(Llama()).weights + 2 * wider);
  uneven.uneven.num_sharing_layers = 1;
  CHECK(Plan(uneven).weights == Plan(Llama()).weights + 2 * (wider - 2048 * 2 * 256));
  uneven.uneven.has_wide_mlps = true;
  CHECK(Plan(uneven).weights ==
        Plan(Llama()).weights + 2 * (wider - 2048 * 2 * 256 + int64_t{2048} * 3 * 5632));
  const int64_t before = Plan(uneven).weights;
  uneven.uneven.input_size = 64;
  uneven.uneven.num_inputs = 32000;
  CHECK(Plan(uneven).weights == before + 2 * int64_t{22} * 64 * (32000 + 3 * 2048));
}

TEST_CASE("memory plan: keys of a mixture in a dense model's config are ignored") {
  const std::string shape = R"("architectures": ["LlamaForCausalLM"], "vocab_size": 1000,
      "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
      "num_attention_heads": 4)";
  const auto dense = ParseModelConfig("{" + shape + "}", "");
  const auto stray = ParseModelConfig(
      "{" + shape +
          R"(, "num_experts": 64, "num_experts_per_tok": 8, "moe_intermediate_size": 99})",
      "");
  REQUIRE(dense.ok());
  REQUIRE(stray.ok());
  CHECK(Plan(*stray).weights == Plan(*dense).weights);
  CHECK(Plan(*stray).activations == Plan(*dense).activations);
}

TEST_CASE("memory plan: learned positions are weights, angles are tables of their own") {
  CHECK(Plan(Llama()).rope == int64_t{4096} * 64 * 4);
  ModelConfig learned = Llama();
  learned.rotary_dim = 0;
  learned.max_position_embeddings = 1024;
  CHECK(Plan(learned).rope == 0);
  CHECK(Plan(learned).weights == Plan(Llama()).weights + 1024 * 2048 * 2);
}

TEST_CASE("memory plan: the largest sizes that a config may have do not overflow") {
  ModelConfig config = Llama();
  config.hidden_size = config.intermediate_size = config.moe_intermediate_size = 1 << 24;
  config.num_experts = config.num_experts_per_tok = 1 << 16;
  config.num_layers = 10000;
  config.mixture_layers.assign(10000, true);
  const HostMemory memory = {.total_bytes = int64_t{1} << 50};
  CHECK(CheckFits(Plan(config), memory).code() == StatusCode::kResourceExhausted);
}

// Each size is a power of two up to the largest that a config or a flag may have.
TEST_CASE("memory plan: for any sizes, bytes are those of exact arithmetic, or too many") {
  const uint64_t seed = GENERATE(range(0, 200));
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  const auto draw = [&](uint64_t most) { return int64_t{1} << random() % (most + 1); };
  ModelConfig config;
  config.vocab_size = draw(24);
  config.hidden_size = draw(24);
  config.intermediate_size = draw(24);
  config.num_layers = draw(13);
  config.head_dim = config.rotary_dim = 2 * draw(11);
  config.num_heads = config.num_kv_heads = draw(12);
  config.num_experts = draw(16);
  config.num_experts_per_tok = config.num_experts;
  config.moe_intermediate_size = draw(24);
  config.mixture_layers.assign(static_cast<size_t>(config.num_layers), true);
  const ExecutorLimits limits = {.block_size = 32,
                                 .max_num_seqs = static_cast<int32_t>(draw(16)),
                                 .max_num_batched_tokens = static_cast<int32_t>(draw(30)),
                                 .max_model_len = static_cast<int32_t>(draw(30))};
  const int64_t per_block = draw(53);
  const MemoryPlan plan = PlanMemory(config, limits, {.kv_bytes_per_block = per_block});
  // A double is exact to 2^-52 of these.
  const double q = static_cast<double>(config.num_heads * config.head_dim);
  const double hidden = static_cast<double>(config.hidden_size);
  const double inner = static_cast<double>(config.moe_intermediate_size);
  const double experts = static_cast<double>(config.num_experts);
  const double layers =
      static_cast<double>(config.num_layers) * hidden * (4 * q + 3 * experts * inner);
  const double tables = 2.0 * static_cast<double>(config.vocab_size) * hidden;
  const double row = 2 * hidden + 5 * q + 2.0 * static_cast<double>(config.intermediate_size) +
                     experts * (hidden + inner);
  const auto capped = [](double bytes) { return Approx(std::min(bytes, 0x1p60)).epsilon(1e-9); };
  CHECK(static_cast<double>(plan.weights) == capped(2 * (layers + tables)));
  CHECK(static_cast<double>(plan.activations) == capped(2.0 * limits.max_num_batched_tokens * row));
  CHECK(static_cast<double>(plan.rope) ==
        capped(4.0 * limits.max_model_len * static_cast<double>(config.rotary_dim)));
  CHECK(static_cast<double>(plan.kv_of_a_request) ==
        capped(std::ceil(limits.max_model_len / 32.0) * static_cast<double>(per_block)));
  CHECK(plan.step_bytes() > 0);
  const HostMemory memory = {.total_bytes = int64_t{1} << 45, .available_bytes = int64_t{1} << 44};
  const double least = static_cast<double>(plan.weights) + static_cast<double>(plan.rope) +
                       static_cast<double>(plan.activations) + static_cast<double>(plan.logits);
  CHECK(CheckFits(plan, memory).ok() == (least <= 0x1p45));
  CHECK(LessStep(memory, plan).available_bytes < memory.available_bytes);
}

TEST_CASE("memory plan: a step and a request follow the limits") {
  const MemoryPlan plan = Plan(Llama());
  CHECK(plan.activations == int64_t{2048} * (2 * 2048 + (2048 + 512) + 2 * 2048 + 2 * 5632) * 2);
  CHECK(plan.logits == int64_t{128} * 32000 * 4);
  CHECK(plan.token_counts == plan.logits);
  CHECK(plan.kv_of_a_request == 128 * kBytesPerBlock);
  CHECK(plan.step_bytes() == plan.activations + 2 * plan.logits);
}

TEST_CASE("memory plan: a KV cache leaves the memory that steps will touch") {
  const MemoryPlan plan = Plan(Llama());
  const HostMemory memory = {
      .total_bytes = 8000 * kMiB, .available_bytes = 4000 * kMiB, .resident_bytes = 2200 * kMiB};
  const HostMemory left = LessStep(memory, plan);
  CHECK(left.resident_bytes == memory.resident_bytes + plan.step_bytes());
  CHECK(left.available_bytes == memory.available_bytes - plan.step_bytes());
  CHECK(*ChooseNumBlocks({.utilization = 0.5}, kMiB, Limits(), left) ==
        4000 - 2200 - (plan.step_bytes() + kMiB - 1) / kMiB);
}

TEST_CASE("memory plan: weights and a step that cannot fit are refused before loading") {
  const MemoryPlan plan = Plan(Llama());
  // Penalty counts are allocated when a request has penalties. Memory that is free now does not
  // matter: the page cache, which may contain this model's file, makes room.
  HostMemory memory = {.total_bytes = plan.weights + plan.rope + plan.activations + plan.logits,
                       .available_bytes = 0};
  CHECK(CheckFits(plan, memory).ok());
  --memory.total_bytes;
  CHECK(CheckFits(plan, memory).code() == StatusCode::kResourceExhausted);
}

TEST_CASE("memory plan: positions whose angles do not fit are refused") {
  const HostMemory memory = {.total_bytes = 8000 * kMiB};
  ModelConfig config = Llama();
  ExecutorLimits limits = Limits();
  limits.max_model_len = 1 << 30;
  limits.groups = LayerGroups::OfWindow(128);  // so that the KV cache is small
  const MemoryPlan plan = PlanMemory(config, limits, {.kv_bytes_per_block = kBytesPerBlock});
  CHECK(plan.rope == int64_t{1} << 38);
  CHECK(CheckFits(plan, memory).code() == StatusCode::kResourceExhausted);
  CHECK_THAT(MemoryAdvice(plan, memory), Contains("262,144 MiB for the angles of positions"));
}

TEST_CASE("memory plan: the advice names the memory, each need and the flag that changes it") {
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

TEST_CASE("memory plan: only errors of memory get advice") {
  const MemoryPlan plan = Plan(Llama());
  CHECK(WithMemoryAdvice(InvalidArgumentError("x"), plan, {}).message() == "x");
  CHECK(WithMemoryAdvice(OkStatus(), plan, {}).ok());
  CHECK_THAT(WithMemoryAdvice(ResourceExhaustedError("x"), plan, {}).message(),
             Contains("x\n") && Contains("--max-model-len"));
}

TEST_CASE("memory plan: a model that takes images needs its tower and their rows") {
  ModelConfig model = Llama();
  VisionConfig& vision = model.vision;
  vision.family = VisionFamily::kQwen3;
  vision.num_layers = 10;
  vision.hidden_size = 100;
  vision.intermediate_size = 400;
  vision.patch_size = 16;
  vision.temporal_patch_size = 2;
  vision.merge_size = 2;
  vision.out_size = 2048;
  vision.num_positions = 64;
  vision.deepstack_layers = {2, 4};
  const MemoryPlan text = PlanMemory(model, Limits(), {});
  CHECK(text.tower + text.image_rows + text.image_activations == 0);
  ExecutorLimits limits = Limits();
  limits.images = ImageLimitsOf(model.vision);
  const MemoryPlan plan = PlanMemory(model, limits, {});
  const int64_t layers = int64_t{10} * 100 * (400 + 800);
  const int64_t mergers = int64_t{3} * 400 * (400 + 2048);
  CHECK(plan.tower == 2 * (layers + 100 * (1536 + 64) + mergers));
  CHECK(plan.image_rows == int64_t{2048} * 3 * 2048 * 4);
  CHECK(plan.image_activations == int64_t{2048} * 4 * (600 + 800) * 4);
  CHECK(plan.step_bytes() == text.step_bytes() + plan.image_rows + plan.image_activations);
  const HostMemory memory = {.total_bytes = int64_t{1} << 33, .available_bytes = int64_t{1} << 32};
  CHECK(LessStep(memory, plan).resident_bytes == plan.step_bytes());
  // A device's first steps have no images.
  const MemoryPlan of_device = PlanMemory(model, limits, {.is_device = true});
  const int64_t of_images = plan.image_rows + plan.image_activations;
  CHECK(LessStep(memory, of_device).resident_bytes == of_images);
  CHECK(LessStep(memory, of_device).available_bytes == memory.available_bytes - of_images);
  CHECK_THAT(MemoryAdvice(plan, {}), Contains("--language-model-only"));
  CHECK_THAT(MemoryAdvice(text, {}), !Contains("--language-model-only"));
}

}  // namespace
}  // namespace tandem
