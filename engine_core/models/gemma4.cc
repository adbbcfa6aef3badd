// Gemma 4 (text): layers with a window and layers without, whose heads differ in size and number
// and whose values may be their keys; the last layers may read the keys and values of earlier ones.
// Each layer may take an input from the token itself, and have a mixture beside its MLP.
// Source: Google 2026; HF's Gemma4ForCausalLM.

#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "engine_core/models/moe.h"

namespace tandem {
namespace {

struct Gemma4Layer final : Layer {
  int64_t idx = 0;
  NormLayer input_norm;
  AttentionLayer attention;
  NormLayer mlp_norm;
  MlpLayer mlp;
  std::optional<MixtureBeside> mixture;
  std::optional<InputLayer> input;
  float scale = 1;  // of the residual that it leaves

  void Run(Decoder* decoder, const LayerKv& kv, const AttentionPlan& plan) const override {
    decoder->Norm(input_norm);
    decoder->Attend(attention, kv, plan);
    decoder->Norm(mlp_norm);
    if (mixture) {
      decoder->RunBeside(mlp, *mixture);
    } else {
      decoder->RunMlp(mlp);
    }
    if (input) decoder->AddInput(*input, idx);
    if (scale != 1) decoder->ScaleResidual(scale);
  }
};

StatusOr<OwnedTensor> Constants(const LoadContext& context, int64_t size, float value) {
  std::vector<float> values(static_cast<size_t>(size), value);
  return context.backend.device().Upload(Tensor(values.data(), DType::kF32, {size}), DType::kF32);
}

// The rank's rows of what the layer has of q, k and v.
std::vector<StoredMatrix> Projections(const LoadContext& context, const LayerPlace& place,
                                      const AttentionLayer& layer) {
  const HeadShare all = HeadsOfLayer(context.config, place.idx), &mine = *layer.heads;
  const auto block = [&](const char* name, int64_t rows, Slice slice) {
    return StoredMatrix{.name = place.prefix + ".self_attn." + name,
                        .rows = rows,
                        .columns = context.config.hidden_size,
                        .row_slice = slice};
  };
  std::vector<StoredMatrix> blocks = {block("q_proj", all.q_size(), mine.q_rows())};
  if (!layer.has_own_kv) return blocks;
  blocks.push_back(block("k_proj", all.kv_size(), mine.kv_rows()));
  if (!layer.keys_are_values) blocks.push_back(block("v_proj", all.kv_size(), mine.kv_rows()));
  return blocks;
}

StatusOr<AttentionLayer> LoadGemma4Attention(const LoadContext& context, const LayerPlace& place) {
  const ModelConfig& config = context.config;
  const bool has_bias = config.attention_bias;
  const std::string prefix = place.prefix + ".self_attn";
  AttentionLayer layer;
  layer.heads = HeadsOfLayer(config, place.idx, context.share);
  layer.has_own_kv = config.KvLayerOf(place.idx) == place.idx;
  layer.keys_are_values = config.uneven.keys_are_values && config.IsGlobal(place.idx);
  layer.use_local_rope = !config.IsGlobal(place.idx);
  layer.options = AttentionOptionsOf(config, place.idx);
  layer.options.scale = 1;
  const int64_t head_dim = layer.heads->head_dim;
  ASSIGN_OR_RETURN(layer.qkv,
                   LoadLinear(context, Projections(context, place, layer), {.has_bias = has_bias}));
  ASSIGN_OR_RETURN(layer.out, LoadRows(context, prefix + ".o_proj", config.hidden_size,
                                       HeadsOfLayer(config, place.idx).q_size(), has_bias));
  ASSIGN_OR_RETURN(layer.q_norm, LoadVector(context, prefix + ".q_norm.weight", head_dim));
  ASSIGN_OR_RETURN(layer.post_norm,
                   LoadRmsNorm(context, place.prefix + ".post_attention_layernorm"));
  if (!layer.has_own_kv) return layer;
  ASSIGN_OR_RETURN(layer.k_norm, LoadVector(context, prefix + ".k_norm.weight", head_dim));
  ASSIGN_OR_RETURN(layer.v_norm, Constants(context, head_dim, 1));
  return layer;
}

MoeShape Gemma4Mixture(const ModelConfig& config) {
  MoeShape shape = MixtureShape(config, {.renormalize = true});
  shape.has_gelu = true;
  return shape;
}

// The router sees an RMS norm times router.scale, over the root of the hidden size.
StatusOr<NormLayer> LoadRouterNorm(const LoadContext& context, const std::string& name) {
  const int64_t size = context.config.hidden_size;
  NormLayer norm;
  ASSIGN_OR_RETURN(norm.weight,
                   LoadScaledVector(context, name, size, 1 / std::sqrt(static_cast<double>(size))));
  return norm;
}

StatusOr<MixtureBeside> LoadMixture(const LoadContext& context, const LayerPlace& place) {
  const auto load_norm = [&](const char* name) {
    return LoadRmsNorm(context, place.prefix + "." + name);
  };
  MixtureBeside mixture;
  ASSIGN_OR_RETURN(mixture.router_norm, LoadRouterNorm(context, place.prefix + ".router.scale"));
  ASSIGN_OR_RETURN(mixture.norm, load_norm("pre_feedforward_layernorm_2"));
  ASSIGN_OR_RETURN(
      mixture.experts,
      LoadMoe(context, place,
              {.block = "", .router = "router.proj", .expert_scale = "router.per_expert_scale"},
              Gemma4Mixture(context.config)));
  ASSIGN_OR_RETURN(mixture.post_norm, load_norm("post_feedforward_layernorm_2"));
  ASSIGN_OR_RETURN(mixture.sum_norm, load_norm("post_feedforward_layernorm"));
  return mixture;
}

StatusOr<std::unique_ptr<Layer>> LoadGemma4Layer(const LoadContext& context,
                                                 const LayerPlace& place) {
  const ModelConfig& config = context.config;
  const auto load_norm = [&](const char* name) {
    return LoadRmsNorm(context, place.prefix + "." + name);
  };
  const bool is_mixture = config.IsMixture(place.idx);
  auto layer = std::make_unique<Gemma4Layer>();
  layer->idx = place.idx;
  ASSIGN_OR_RETURN(layer->input_norm, load_norm("input_layernorm"));
  ASSIGN_OR_RETURN(layer->attention, LoadGemma4Attention(context, place));
  ASSIGN_OR_RETURN(layer->mlp_norm, load_norm("pre_feedforward_layernorm"));
  ASSIGN_OR_RETURN(layer->mlp,
                   LoadGatedMlp(context, place.prefix + ".mlp", config.InnerSizeOf(place.idx)));
  ASSIGN_OR_RETURN(layer->mlp.post_norm, load_norm(is_mixture ? "post_feedforward_layernorm_1"
                                                              : "post_feedforward_layernorm"));
  if (is_mixture) {
    ASSIGN_OR_RETURN(layer->mixture, LoadMixture(context, place));
  }
  if (config.uneven.input_size > 0) {
    ASSIGN_OR_RETURN(layer->input, LoadInputLayer(context, place));
  }
  ASSIGN_OR_RETURN(const OwnedTensor scale, LoadVector(context, place.prefix + ".layer_scalar", 1));
  layer->scale = scale.view().Data<float>()[0];
  return std::unique_ptr<Layer>(std::move(layer));
}

}  // namespace

StatusOr<std::unique_ptr<Stage>> LoadGemma4(const LoadContext& context) {
  const ModelConfig& config = context.config;
  if (!context.backend.device().memory_is_host()) {
    return UnimplementedError(config.architecture + " is not built for devices");
  }
  DecoderOptions options;
  options.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(config.hidden_size)));
  options.logits_soft_cap = static_cast<float>(config.final_logit_softcapping);
  options.local_rope = config.local_rope;
  options.has_layer_inputs = config.uneven.input_size > 0;
  if (config.num_experts > 0) {
    options.mixture = Gemma4Mixture(config);
    options.has_mixture_beside = true;
  }
  return Stage::Load(context, std::move(options),
                     [&](const LayerPlace& place) { return LoadGemma4Layer(context, place); });
}

}  // namespace tandem
