// BLOOM: scores that fall with the distance in place of positions (ALiBi), a LayerNorm of the
// embeddings, LayerNorms, biases, an MLP without a gate; q, k and v of a head are stored one after
// another.
// Source: BigScience 2022; Press et al. 2021 (ALiBi); HF's BloomForCausalLM.

#include <bit>
#include <cmath>
#include <vector>

#include "engine_core/models/llama.h"

namespace tandem {
namespace {

// For a power of two a geometric sequence; otherwise that of the power below, then every second
// number of that of the power above.
std::vector<float> AlibiSlopes(int64_t num_heads) {
  const auto power = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(num_heads)));
  std::vector<float> slopes;
  for (int64_t i = 0; i < num_heads; ++i) {
    const double exponent = i < power ? 8.0 * static_cast<double>(i + 1)
                                      : 4.0 * static_cast<double>(2 * (i - power) + 1);
    slopes.push_back(static_cast<float>(std::exp2(-exponent / static_cast<double>(power))));
  }
  return slopes;
}

StatusOr<LlamaLayer> LoadBloomLayer(const LoadContext& context, const LayerPlace& place) {
  const ModelConfig& config = context.config;
  const std::string attention = place.prefix + ".self_attention", mlp = place.prefix + ".mlp";
  LlamaLayer layer;
  RETURN_IF_ERROR(LoadLayerNorms(context, place, &layer));
  ASSIGN_OR_RETURN(layer.attention.qkv, LoadMergedQkv(context, attention + ".query_key_value",
                                                      /*has_bias=*/true, RunsByKvHead(context)));
  ASSIGN_OR_RETURN(layer.attention.out, LoadRows(context, attention + ".dense", config.hidden_size,
                                                 HeadsOf(config).q_size(), /*has_bias=*/true));
  layer.attention.options = AttentionOptionsOf(config, place.idx);
  const Slice heads = context.heads().heads;
  std::vector<float> slopes = AlibiSlopes(config.num_heads);
  ASSIGN_OR_RETURN(
      layer.attention.slopes,
      context.backend.device().Upload(
          Tensor(slopes.data() + heads.begin, DType::kF32, {heads.count}), DType::kF32));
  ASSIGN_OR_RETURN(layer.mlp, LoadPlainMlp(context, mlp + ".dense_h_to_4h", mlp + ".dense_4h_to_h",
                                           /*has_bias=*/true));
  return layer;
}

}  // namespace

StatusOr<std::unique_ptr<Stage>> LoadBloom(const LoadContext& context) {
  DecoderOptions options;
  options.embedding = "transformer.word_embeddings";
  options.embedding_norm = "transformer.word_embeddings_layernorm";
  options.layers = "transformer.h";
  options.final_norm = "transformer.ln_f";
  options.has_layer_norm = true;
  return LoadLlamaLike(context, std::move(options), LoadBloomLayer);
}

}  // namespace tandem
