#include "engine_core/executor/memory_plan.h"

#include <algorithm>
#include <sstream>

#include "common/strings.h"
#include "engine_core/executor/model_runner.h"
#include "engine_core/models/moe.h"

namespace tandem {
namespace {

double BitsOf(WeightFormat format, DType dtype) {
  switch (format) {
    case WeightFormat::kInt8:
      return 8;
    case WeightFormat::kInt4Group32:
      return 4.25;
    case WeightFormat::kInt4Group128:
      return 4.0625;
    case WeightFormat::kCompute:
      break;
  }
  return 8.0 * static_cast<double>(SizeOf(dtype));
}

// Sizes of a config may have any product: beyond this one does not matter, nor does a rounding.
int64_t ToBytes(double bytes) { return static_cast<int64_t>(std::min(bytes, 0x1p60)); }

double NumLayerWeights(const ModelConfig& config) {
  const auto q = static_cast<double>(config.num_heads * config.head_dim);
  const auto kv = static_cast<double>(config.num_kv_heads) * static_cast<double>(config.head_dim);
  const double num_mlp_matrices = config.model_type == "gpt2" ? 2 : 3;
  const int64_t expert_size =
      config.moe_intermediate_size > 0 ? config.moe_intermediate_size : config.intermediate_size;
  double weights = 0;
  for (int64_t i = 0; i < config.num_layers; ++i) {
    const int64_t inner = config.num_experts > 0 && IsMixtureLayer(config, i)
                              ? config.num_experts * expert_size
                              : config.intermediate_size;
    weights += static_cast<double>(config.hidden_size) *
               (2 * q + 2 * kv + num_mlp_matrices * static_cast<double>(inner));
  }
  return weights;
}

int64_t WeightBytes(const ModelConfig& config, const MemoryPlanInput& input) {
  const int64_t embedding = config.vocab_size * config.hidden_size;
  const double num_tables = config.tie_word_embeddings ? 1 : 2;
  const double bits =
      NumLayerWeights(config) * BitsOf(input.formats.layers, input.dtype) +
      num_tables * static_cast<double>(embedding) * BitsOf(input.formats.embedding, input.dtype);
  return ToBytes(bits / 8);
}

// Of one layer; the next one uses the same memory.
int64_t ActivationBytes(const ModelConfig& config, int64_t num_tokens, DType dtype) {
  const int64_t q = config.num_heads * config.head_dim;
  const int64_t qkv = q + 2 * config.num_kv_heads * config.head_dim;
  const int64_t row = 2 * config.hidden_size + qkv + 2 * q + 2 * config.intermediate_size;
  return num_tokens * row * static_cast<int64_t>(SizeOf(dtype));
}

int64_t SamplingBytes(const ModelConfig& config, const ExecutorLimits& limits) {
  const int64_t logits_rows = ModelLimitsOf(limits).max_logits_rows;
  const int64_t row_bytes = config.vocab_size * int64_t{sizeof(float)};
  return (logits_rows + limits.max_num_seqs) * row_bytes;
}

std::string Mib(int64_t bytes) { return WithCommas((bytes + (1 << 20) - 1) >> 20) + " MiB"; }

}  // namespace

MemoryPlan PlanMemory(const ModelConfig& config, const ExecutorLimits& limits,
                      const MemoryPlanInput& input) {
  ExecutorLimits known = limits;
  known.vocab_size = static_cast<int32_t>(config.vocab_size);
  return {
      .is_device = input.is_device,
      .limits = known,
      .weights = WeightBytes(config, input),
      .activations = ActivationBytes(config, limits.max_num_batched_tokens, input.dtype),
      .sampling = SamplingBytes(config, known),
      .kv_of_a_request = ToBytes(static_cast<double>(MaxHeldBlocks(CacheWithLimits({}, limits))) *
                                 static_cast<double>(input.kv_bytes_per_block))};
}

HostMemory LessStep(HostMemory memory, const MemoryPlan& plan) {
  memory.resident_bytes += plan.step_bytes();
  memory.available_bytes -= plan.step_bytes();
  return memory;
}

Status CheckFits(const MemoryPlan& plan, const HostMemory& memory) {
  if (plan.weights + plan.step_bytes() <= memory.total_bytes) return OkStatus();
  return ResourceExhaustedError("the model does not fit: weights and a step take " +
                                Mib(plan.weights + plan.step_bytes()));
}

std::string MemoryAdvice(const MemoryPlan& plan, const HostMemory& memory) {
  const ExecutorLimits& limits = plan.limits;
  std::ostringstream text;
  text << (plan.is_device ? "the device has " : "this process may use ") << Mib(memory.total_bytes)
       << ", " << Mib(std::max<int64_t>(0, memory.available_bytes)) << " of it free; needed are\n"
       << "  " << Mib(plan.weights) << " for weights";
  if (!plan.is_device) text << ": --quantization int8 or int4 takes less";
  text << "\n  " << Mib(plan.activations) << " for activations: lower --max-num-batched-tokens "
       << limits.max_num_batched_tokens << "\n  " << Mib(plan.sampling)
       << " for logits and token counts: lower --max-num-seqs " << limits.max_num_seqs << "\n  "
       << Mib(plan.kv_of_a_request) << " for the KV cache of one request: lower --max-model-len "
       << limits.max_model_len;
  if (!plan.is_device) text << ", or --kv-cache-dtype int8";
  text << "\nthe KV cache gets what --gpu-memory-utilization or --kv-cache-memory-bytes give it";
  return text.str();
}

Status WithMemoryAdvice(const Status& status, const MemoryPlan& plan, const HostMemory& memory) {
  if (status.code() != StatusCode::kResourceExhausted) return status;
  return ResourceExhaustedError(status.message() + "\n" + MemoryAdvice(plan, memory));
}

}  // namespace tandem
