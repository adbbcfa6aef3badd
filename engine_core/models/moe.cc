#include "engine_core/models/moe.h"

#include <array>
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

// What the rank has of one expert.
struct ExpertBlocks {
  std::array<StoredMatrix, 2> gate_up;
  std::array<StoredMatrix, 1> down;
};

// Of an expert that the rank has something of.
Slice OwnRows(const LoadContext& context, int64_t rows) {
  return context.splits_experts ? Slice{0, rows} : context.share.Of(rows);
}

// An expert with matrices of its own, "<prefix><gate>" and so on.
ExpertBlocks ExpertApart(const LoadContext& context, const MoeNames& names, const MoeShape& shape,
                         const std::string& prefix) {
  const int64_t hidden = context.config.hidden_size, inner = shape.intermediate_size;
  const auto matrix = [&](const std::string& part, int64_t rows, int64_t columns) {
    return StoredMatrix{.name = prefix + part,
                        .rows = rows,
                        .columns = columns,
                        .row_slice = OwnRows(context, rows)};
  };
  return {.gate_up = {matrix(names.gate, inner, hidden), matrix(names.up, inner, hidden)},
          .down = {matrix(names.down, hidden, inner)}};
}

// Expert e of "<stack>.gate_up_proj" [E, 2 I, H] and "<stack>.down_proj" [E, H, I].
ExpertBlocks ExpertOfStack(const LoadContext& context, const MoeShape& shape,
                           const std::string& stack, int64_t e) {
  const int64_t hidden = context.config.hidden_size, inner = shape.intermediate_size;
  const Slice slice = OwnRows(context, inner);
  const auto rows = [&](Slice part) {
    return StoredMatrix{.name = stack + ".gate_up_proj",
                        .rows = 2 * inner,
                        .columns = hidden,
                        .row_slice = part,
                        .stack_idx = e,
                        .stack_size = shape.num_experts};
  };
  return {.gate_up = {rows(slice), rows(slice.Shifted(inner))},
          .down = {{{.name = stack + ".down_proj",
                     .rows = hidden,
                     .columns = inner,
                     .row_slice = OwnRows(context, hidden),
                     .stack_idx = e,
                     .stack_size = shape.num_experts}}}};
}

}  // namespace

StatusOr<MoeLayer> LoadMoe(const LoadContext& context, const LayerPlace& place,
                           const MoeNames& names, const MoeShape& shape) {
  const std::string stack = place.prefix + ".mlp.experts";
  const bool is_stacked = context.weights.Has(stack + ".gate_up_proj");
  const std::string block = place.prefix + (is_stacked ? ".mlp" : "." + names.block);
  MoeLayer layer;
  const StoredMatrix router[] = {
      {.name = block + ".gate", .rows = shape.num_experts, .columns = context.config.hidden_size}};
  ASSIGN_OR_RETURN(layer.router, LoadLinear(context, router, {.format = WeightFormat::kCompute}));
  if (!names.router_bias.empty()) {
    ASSIGN_OR_RETURN(layer.router_bias,
                     LoadVector(context, block + "." + names.router_bias, shape.num_experts));
  }
  if (shape.shared_intermediate_size > 0) {
    ASSIGN_OR_RETURN(layer.shared, LoadGatedMlp(context, block + "." + names.shared,
                                                shape.shared_intermediate_size));
  }
  if (layer.shared && !names.shared_gate.empty()) {
    const StoredMatrix gate[] = {{.name = block + "." + names.shared_gate,
                                  .rows = 1,
                                  .columns = context.config.hidden_size}};
    ASSIGN_OR_RETURN(layer.shared_gate,
                     LoadLinear(context, gate, {.format = WeightFormat::kCompute}));
  }
  std::vector<std::unique_ptr<PackedMatrix>> gate_ups, downs;
  const Slice experts = OwnExperts(context, shape);
  for (int64_t e = experts.begin; e < experts.end(); ++e) {
    const ExpertBlocks expert =
        is_stacked
            ? ExpertOfStack(context, shape, stack, e)
            : ExpertApart(context, names, shape, block + ".experts." + std::to_string(e) + ".");
    // Adapters name the matrices of an expert apart, also where they are stored in a stack.
    const std::string apart =
        place.prefix + "." + names.block + ".experts." + std::to_string(e) + ".";
    LinearLayer linear;
    ASSIGN_OR_RETURN(
        linear, LoadLinear(context, expert.gate_up,
                           {.is_gated = true, .modules = {apart + names.gate, apart + names.up}}));
    gate_ups.push_back(std::move(linear.weight));
    layer.gate_up_sites.push_back(linear.adapter_site);
    ASSIGN_OR_RETURN(linear, LoadLinear(context, expert.down, {.modules = {apart + names.down}}));
    downs.push_back(std::move(linear.weight));
    layer.down_sites.push_back(linear.adapter_site);
  }
  ASSIGN_OR_RETURN(layer.gate_up, context.backend.PackExperts(std::move(gate_ups)));
  ASSIGN_OR_RETURN(layer.down, context.backend.PackExperts(std::move(downs)));
  return layer;
}

namespace {

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
