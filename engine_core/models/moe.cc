#include "engine_core/models/moe.h"

#include <utility>
#include <vector>

#include "engine_core/models/llama.h"

namespace tandem {
namespace {

// Llama's layer with a mixture for its MLP.
struct MixtureLayer final : Layer {
  NormLayer input_norm;
  AttentionLayer attention;
  NormLayer post_attention_norm;
  MoeLayer moe;

  void Run(Decoder* decoder, const LayerKv& kv, const AttentionPlan& plan) const override {
    decoder->Norm(input_norm);
    decoder->Attend(attention, kv, plan);
    decoder->Norm(post_attention_norm);
    decoder->RunMixture(moe);
  }
};

StatusOr<MoeLayer> LoadMoe(const LoadContext& context, const LayerPlace& place,
                           const MoeNames& names, const MoeShape& shape) {
  const int64_t hidden = context.config.hidden_size, inner = shape.intermediate_size;
  const std::string stack = place.prefix + ".mlp.experts";
  const bool is_stacked = context.weights.Has(stack + ".gate_up_proj");
  const std::string block = place.prefix + (is_stacked ? ".mlp" : "." + names.block);
  MoeLayer layer;
  const RowBlock router[] = {{block + ".gate", shape.num_experts}};
  ASSIGN_OR_RETURN(layer.router,
                   LoadLinear(context, router, hidden, {.format = WeightFormat::kCompute}));
  std::vector<std::unique_ptr<PackedMatrix>> gate_ups, downs;
  for (int64_t e = 0; e < shape.num_experts; ++e) {
    const std::string name = block + ".experts." + std::to_string(e) + ".";
    const RowBlock stacked[] = {{stack + ".gate_up_proj", 2 * inner, e, shape.num_experts}};
    const RowBlock apart[] = {{name + names.gate, inner}, {name + names.up, inner}};
    const RowBlock down = is_stacked ? RowBlock{stack + ".down_proj", hidden, e, shape.num_experts}
                                     : RowBlock{name + names.down, hidden};
    LinearLayer linear;
    ASSIGN_OR_RETURN(
        linear, LoadLinear(context, is_stacked ? std::span<const RowBlock>(stacked) : apart, hidden,
                           {.is_gated = true}));
    gate_ups.push_back(std::move(linear.weight));
    ASSIGN_OR_RETURN(linear, LoadLinear(context, {&down, 1}, inner));
    downs.push_back(std::move(linear.weight));
  }
  ASSIGN_OR_RETURN(layer.gate_up, context.backend.PackExperts(std::move(gate_ups)));
  ASSIGN_OR_RETURN(layer.down, context.backend.PackExperts(std::move(downs)));
  return layer;
}

StatusOr<std::unique_ptr<Layer>> LoadLayer(const LoadContext& context, const MoeFamily& family,
                                           const LayerPlace& place) {
  LlamaLayer dense;
  RETURN_IF_ERROR(LoadLlamaNorms(context, place, &dense));
  ASSIGN_OR_RETURN(dense.attention, family.load_attention(context, place));
  if (!context.config.IsMixture(place.idx)) {
    ASSIGN_OR_RETURN(dense.mlp, LoadGatedMlp(context, place));
    return std::unique_ptr<Layer>(std::make_unique<LlamaLayer>(std::move(dense)));
  }
  auto layer = std::make_unique<MixtureLayer>();
  layer->input_norm = std::move(dense.input_norm);
  layer->attention = std::move(dense.attention);
  layer->post_attention_norm = std::move(dense.post_attention_norm);
  ASSIGN_OR_RETURN(layer->moe, LoadMoe(context, place, family.names, family.shape));
  return std::unique_ptr<Layer>(std::move(layer));
}

}  // namespace

StatusOr<std::unique_ptr<Stage>> LoadMoeLike(const LoadContext& context, const MoeFamily& family) {
  DecoderOptions options;
  options.mixture = family.shape;
  return Stage::Load(context, std::move(options),
                     [&](const LayerPlace& place) { return LoadLayer(context, family, place); });
}

}  // namespace tandem
