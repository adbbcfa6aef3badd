#include "engine_core/executor/memory_plan.h"

#include <algorithm>
#include <sstream>

#include "common/strings.h"
#include "engine_core/executor/model_sizes.h"
#include "engine_core/models/rank_share.h"

namespace tandem {
namespace {

// stored_bits: of matrices that are kept as the checkpoint has them; 0: not known.
double BitsOf(WeightFormat format, DType dtype, double stored_bits = 0) {
  switch (format) {
    case WeightFormat::kInt8:
      return 8;
    case WeightFormat::kInt4Group32:
      return 4.25;
    case WeightFormat::kInt4Group128:
      return 4.0625;
    case WeightFormat::kStored:
      if (stored_bits > 0) return stored_bits;
      break;
    case WeightFormat::kCompute:
      break;
  }
  return 8.0 * static_cast<double>(SizeOf(dtype));
}

// Sizes of a config may have any product; beyond 2^60 neither its value nor rounding matters.
int64_t ToBytes(double bytes) { return static_cast<int64_t>(std::min(bytes, 0x1p60)); }

// Of what a recurrent layer has in the place of attention.
double NumRecurrentWeights(const ModelConfig& config) {
  const RecurrentConfig& shape = config.recurrent;
  if (shape.kind == RecurrentKind::kSelective) {
    return static_cast<double>(shape.value_size()) *
           static_cast<double>(3 * config.hidden_size + 2 * shape.step_rank + 2 * shape.key_dim);
  }
  const int64_t values =
      shape.kind == RecurrentKind::kShortConv ? config.hidden_size : shape.value_size();
  return static_cast<double>(config.hidden_size) *
         static_cast<double>(shape.channels() + 2 * values + 2 * shape.num_value_heads);
}

// Of attention in a layer of a model whose layers differ.
double NumUnevenWeights(const ModelConfig& config, int64_t layer) {
  const HeadShare heads = HeadsOfLayer(config, layer);
  const bool is_kept = config.KvLayerOf(layer) == layer;
  const bool is_once = config.uneven.keys_are_values && config.IsGlobal(layer);
  const int64_t num_kv = !is_kept ? 0 : is_once ? 1 : 2;
  return static_cast<double>(config.hidden_size) *
         static_cast<double>(2 * heads.q_size() + num_kv * heads.kv_size());
}

// Of one layer's attention.
double NumAttentionWeights(const ModelConfig& config, int64_t layer) {
  if (config.is_uneven()) return NumUnevenWeights(config, layer);
  const HeadShare heads = HeadsOf(config);
  const LatentConfig& latent = config.latent;
  const auto hidden = static_cast<double>(config.hidden_size);
  if (latent.kv_rank == 0) {
    return 2 * hidden * static_cast<double>(heads.q_size() + heads.kv_size());
  }
  const auto num_heads = static_cast<double>(config.num_heads);
  const auto q = num_heads * static_cast<double>(latent.nope_dim + latent.pe_dim);
  const auto q_rank = static_cast<double>(latent.q_rank);
  const auto index_heads = static_cast<double>(config.index.num_heads);
  const auto index_dim = static_cast<double>(config.index.IsShared(layer) ? 0 : config.index.dim);
  return (latent.q_rank == 0 ? hidden * q : q_rank * (hidden + q)) +
         hidden * static_cast<double>(latent.kv_rank + latent.pe_dim) +
         num_heads * static_cast<double>(latent.kv_rank * (latent.nope_dim + latent.value_dim)) +
         num_heads * static_cast<double>(latent.value_dim) * hidden +
         index_dim * (hidden + q_rank * index_heads);
}

// Of a layer's experts that read a latent, and of the projections to and from it.
double NumLatentExpertWeights(const ModelConfig& config, double num_matrices) {
  const auto experts = static_cast<double>(config.num_experts * config.moe_intermediate_size);
  return static_cast<double>(config.moe_latent_size) *
         (num_matrices * experts + 2 * static_cast<double>(config.hidden_size));
}

double NumLayerWeights(const ModelConfig& config) {
  const double num_mlp_matrices = config.has_gated_mlp ? 3 : 2;
  double weights = 0;
  for (int64_t i = 0; i < config.num_layers; ++i) {
    int64_t inner = config.IsMixture(i) ? config.num_experts * config.moe_intermediate_size +
                                              config.shared_intermediate_size
                                        : config.InnerSizeOf(i);
    if (config.IsMixture(i) && config.is_uneven()) inner += config.InnerSizeOf(i);  // beside it
    if (config.recurrent.HasState(i)) weights += NumRecurrentWeights(config);
    if (config.recurrent.HasKv(i)) weights += NumAttentionWeights(config, i);
    if (!config.recurrent.HasMlp(i)) continue;
    if (config.IsMixture(i) && config.moe_latent_size > 0) {
      inner = config.shared_intermediate_size;
      weights += NumLatentExpertWeights(config, num_mlp_matrices);
    }
    weights +=
        static_cast<double>(config.hidden_size) * num_mlp_matrices * static_cast<double>(inner);
  }
  // A layer's input: its gate, and its parts of two projections.
  return weights + 3 * static_cast<double>(config.hidden_size) *
                       static_cast<double>(config.num_layer_inputs());
}

bool LearnsPositions(const ModelConfig& config) {
  return config.rotary_dim == 0 && config.recurrent.num_layers() == 0;
}

int64_t WeightBytes(const ModelConfig& config, const MemoryPlanInput& input) {
  const auto hidden = static_cast<double>(config.hidden_size);
  const double num_tables = config.tie_word_embeddings ? 1 : 2;
  const double num_embedded = num_tables * static_cast<double>(config.vocab_size) * hidden +
                              static_cast<double>(config.uneven.num_inputs) *
                                  static_cast<double>(config.num_layer_inputs());
  const CheckpointQuantization& stored = config.quantization;
  double bits =
      NumLayerWeights(config) * BitsOf(input.formats.layers, input.dtype, stored.layer_bits) +
      num_embedded * BitsOf(input.formats.embedding, input.dtype, stored.table_bits);
  if (LearnsPositions(config)) {
    bits += static_cast<double>(config.max_position_embeddings) * hidden *
            BitsOf(WeightFormat::kCompute, input.dtype);
  }
  return ToBytes(bits / 8);
}

// Sines and cosines of positions.
int64_t RopeBytes(const ModelConfig& config, int64_t max_model_len) {
  return ToBytes(static_cast<double>(max_model_len) * static_cast<double>(config.rotary_dim) *
                 sizeof(float));
}

// Of one layer; the next layer uses the same memory. In a mixture each token has a row per expert.
int64_t ActivationBytes(const ModelConfig& config, int64_t num_tokens, DType dtype) {
  const HeadShare heads =
      config.is_uneven() ? HeadsOfLayer(config, config.num_layers - 1) : HeadsOf(config);
  double row = static_cast<double>(2 * config.hidden_size + heads.qkv_size() + 2 * heads.q_size() +
                                   2 * config.InnerSizeOf(config.num_layers - 1));
  row += 3 * static_cast<double>(config.num_layer_inputs());  // also in the type of residuals
  row += static_cast<double>(2 * config.index.num_heads * config.index.dim +
                             2 * config.index.num_keys);
  if (!config.mixture_layers.empty()) {
    row += static_cast<double>(config.num_experts_per_tok) *
           static_cast<double>(config.hidden_size + config.moe_intermediate_size);
  }
  return ToBytes(static_cast<double>(num_tokens) * row * static_cast<double>(SizeOf(dtype)));
}

// Blocks with attention and an MLP, the patches' projection and the mergers of a tower.
double NumTowerWeights(const VisionConfig& vision) {
  const auto hidden = static_cast<double>(vision.hidden_size);
  const auto merged = hidden * static_cast<double>(vision.merge_size * vision.merge_size);
  const double num_mlp_matrices = vision.family == VisionFamily::kQwen25 ? 3 : 2;
  const double layer =
      hidden * (4 * hidden + num_mlp_matrices * static_cast<double>(vision.intermediate_size));
  const double merger = vision.family == VisionFamily::kSiglip
                            ? hidden * static_cast<double>(vision.out_size)
                            : merged * (merged + static_cast<double>(vision.out_size));
  return static_cast<double>(vision.num_layers) * layer +
         hidden * static_cast<double>(vision.patch_numbers() + vision.num_positions) +
         merger * static_cast<double>(1 + vision.deepstack_layers.size());
}

// Of a model that takes images; of others nothing.
void PlanImages(const VisionConfig& vision, const MemoryPlanInput& input, MemoryPlan* plan) {
  if (!plan->limits.images) return;
  const auto num_rows = static_cast<double>(plan->limits.max_num_batched_tokens);
  const auto num_levels = static_cast<double>(1 + vision.deepstack_layers.size());
  const auto patches_per_row = static_cast<double>(vision.merge_size * vision.merge_size);
  const auto patch = static_cast<double>(6 * vision.hidden_size + 2 * vision.intermediate_size);
  plan->tower = ToBytes(NumTowerWeights(vision) * static_cast<double>(SizeOf(input.dtype)));
  plan->image_rows =
      ToBytes(num_rows * num_levels * static_cast<double>(vision.out_size) * sizeof(float));
  plan->image_activations = ToBytes(num_rows * patches_per_row * patch * sizeof(float));
}

std::string Mib(int64_t bytes) { return WithCommas((bytes + (1 << 20) - 1) >> 20) + " MiB"; }

}  // namespace

MemoryPlan PlanMemory(const ModelConfig& config, const ExecutorLimits& limits,
                      const MemoryPlanInput& input) {
  ExecutorLimits known = limits;
  known.vocab_size = static_cast<int32_t>(config.vocab_size);
  const int64_t logits_row = config.vocab_size * int64_t{sizeof(float)};
  MemoryPlan plan = {
      .is_device = input.is_device,
      .limits = known,
      .weights = WeightBytes(config, input) / input.num_shares,
      .rope = RopeBytes(config, limits.max_model_len),
      .activations = ActivationBytes(config, limits.max_num_batched_tokens, input.dtype),
      .logits = ModelLimitsOf(known).max_logits_rows * logits_row,
      .token_counts = limits.max_num_seqs * logits_row,
      .kv_of_a_request = ToBytes(static_cast<double>(MaxHeldBlocks(CacheWithLimits({}, limits))) *
                                 static_cast<double>(input.kv_bytes_per_block))};
  PlanImages(config.vision, input, &plan);
  return plan;
}

HostMemory LessStep(HostMemory memory, const MemoryPlan& plan) {
  memory.resident_bytes += plan.later_bytes();
  memory.available_bytes -= plan.later_bytes();
  return memory;
}

Status CheckFits(const MemoryPlan& plan, const HostMemory& memory) {
  const int64_t least =
      plan.weights + plan.rope + plan.activations + plan.logits + plan.tower + plan.image_rows;
  if (least <= memory.total_bytes) return OkStatus();
  return ResourceExhaustedError("the model does not fit: weights and a step take " + Mib(least));
}

std::string MemoryAdvice(const MemoryPlan& plan, const HostMemory& memory) {
  const ExecutorLimits& limits = plan.limits;
  std::ostringstream text;
  text << (plan.is_device ? "the device has " : "this process may use ") << Mib(memory.total_bytes)
       << ", " << Mib(std::max<int64_t>(0, memory.available_bytes)) << " of it free; needed are\n"
       << "  " << Mib(plan.weights) << " for weights";
  if (!plan.is_device) text << ": --quantization int8 or int4 takes less";
  text << "\n  " << Mib(plan.activations) << " for activations: lower --max-num-batched-tokens "
       << limits.max_num_batched_tokens << "\n  " << Mib(plan.logits + plan.token_counts)
       << " for logits and token counts: lower --max-num-seqs " << limits.max_num_seqs << "\n  "
       << Mib(plan.rope) << " for the angles of positions, " << Mib(plan.kv_of_a_request)
       << " for the KV cache of one request: lower --max-model-len " << limits.max_model_len;
  if (!plan.is_device) text << ", or --kv-cache-dtype int8";
  if (plan.tower > 0) {
    text << "\n  " << Mib(plan.tower) << " for the vision tower, " << Mib(plan.image_rows)
         << " for rows of images and " << Mib(plan.image_activations)
         << " to compute one: --language-model-only takes none of it";
  }
  text << "\nthe KV cache gets what --gpu-memory-utilization or --kv-cache-memory-bytes give it";
  return text.str();
}

Status WithMemoryAdvice(const Status& status, const MemoryPlan& plan, const HostMemory& memory) {
  if (status.code() != StatusCode::kResourceExhausted) return status;
  return ResourceExhaustedError(status.message() + "\n" + MemoryAdvice(plan, memory));
}

}  // namespace tandem
