#include "engine_core/models/moe.h"

#include <array>
#include <utility>
#include <vector>

#include "engine_core/models/llama.h"
#include "engine_core/models/load_packed.h"
#include "engine_core/models/mixed_layer.h"

namespace tandem {
namespace {

// What the rank has of one expert.
struct ExpertBlocks {
  std::vector<StoredMatrix> gate_up;  // without a gate: up
  std::array<StoredMatrix, 1> down;
};

// Of an expert that the rank has something of.
Slice OwnRows(const LoadContext& context, int64_t rows) {
  return context.splits_experts ? Slice{0, rows} : context.share.Of(rows);
}

// An expert with matrices of its own, "<prefix><gate>" and so on.
ExpertBlocks ExpertApart(const LoadContext& context, const MoeNames& names, const MoeShape& shape,
                         const std::string& prefix) {
  const int64_t hidden = ExpertWidth(context.config, shape), inner = shape.intermediate_size;
  const auto matrix = [&](const std::string& part, int64_t rows, int64_t columns) {
    return StoredMatrix{.name = prefix + part,
                        .rows = rows,
                        .columns = columns,
                        .row_slice = OwnRows(context, rows)};
  };
  ExpertBlocks blocks;
  if (shape.has_gate) blocks.gate_up.push_back(matrix(names.gate, inner, hidden));
  blocks.gate_up.push_back(matrix(names.up, inner, hidden));
  blocks.down = {matrix(names.down, hidden, inner)};
  return blocks;
}

// The rank's rows of gate and of up where they are rows of one matrix.
std::vector<StoredMatrix> GateUpRows(const StoredMatrix& whole, Slice slice, ExpertLayout layout) {
  StoredMatrix gate = whole, up = whole;
  if (layout == ExpertLayout::kTransposedPairs) {
    gate.row_step = up.row_step = 2;
    gate.row_slice = Slice{2 * slice.begin, slice.count};
    up.row_slice = Slice{2 * slice.begin + 1, slice.count};
  } else {
    gate.row_slice = slice;
    up.row_slice = slice.Shifted(whole.rows / 2);
  }
  return {std::move(gate), std::move(up)};
}

// Tensors of all experts.
struct StackNames {
  std::string gate_up, down;
};

// Expert e of gate_up [E, 2 I, H] and down [E, H, I], or of their transposes.
ExpertBlocks ExpertOfStack(const LoadContext& context, const MoeShape& shape,
                           const StackNames& stack, int64_t e, ExpertLayout layout) {
  const int64_t hidden = ExpertWidth(context.config, shape), inner = shape.intermediate_size;
  // Blocks of MXFP4 are along the inputs.
  const bool is_transposed = layout != ExpertLayout::kNamed && layout != ExpertLayout::kStacked &&
                             !context.weights.Has(stack.gate_up + "_blocks");
  const StoredMatrix gate_up = {.name = stack.gate_up,
                                .rows = 2 * inner,
                                .columns = hidden,
                                .is_transposed = is_transposed,
                                .stack_idx = e,
                                .stack_size = shape.num_experts};
  return {.gate_up = GateUpRows(gate_up, OwnRows(context, inner), layout),
          .down = {{{.name = stack.down,
                     .rows = hidden,
                     .columns = inner,
                     .row_slice = OwnRows(context, hidden),
                     .is_transposed = is_transposed,
                     .stack_idx = e,
                     .stack_size = shape.num_experts}}}};
}

// Some numbers of each expert's bias, which is a row of "<name>" [E, size]: begin, begin + step,
// ... of the slice.
struct BiasPart {
  std::string name;
  int64_t size;
  Slice slice;
  int64_t step = 1;
};

// The parts side by side, for the rank's experts.
StatusOr<OwnedTensor> LoadExpertBias(const LoadContext& context, const MoeShape& shape,
                                     std::span<const BiasPart> parts) {
  const Slice experts = OwnExperts(context, shape);
  int64_t columns = 0;
  for (const BiasPart& part : parts) columns += part.slice.count;
  return LoadNumbers(context, parts[0].name, experts.count, columns, [&](float* out) -> Status {
    int64_t first = 0;
    for (const BiasPart& part : parts) {
      ASSIGN_OR_RETURN(const WeightTensor stored,
                       context.weights.Get(part.name, shape.num_experts, part.size));
      std::vector<float> row(static_cast<size_t>(part.size));
      for (int64_t e = 0; e < experts.count; ++e) {
        ConvertTensor(Tensor(row.data(), DType::kF32, {1, part.size}),
                      stored.view().Rows(experts.begin + e, 1));
        for (int64_t i = 0; i < part.slice.count; ++i) {
          out[e * columns + first + i] = row[static_cast<size_t>(part.slice.begin + i * part.step)];
        }
      }
      first += part.slice.count;
    }
    return OkStatus();
  });
}

Status LoadExpertBiases(const LoadContext& context, const MoeShape& shape, const MoeNames& names,
                        const std::string& stack, bool is_stacked, MoeLayer* layer) {
  const int64_t inner = shape.intermediate_size, hidden = ExpertWidth(context.config, shape);
  const Slice own = OwnRows(context, inner);
  const std::string pairs = stack + ".gate_up_proj_bias", apart = stack + ".";
  const BiasPart of_pairs[] = {{pairs, 2 * inner, {2 * own.begin, own.count}, 2},
                               {pairs, 2 * inner, {2 * own.begin + 1, own.count}, 2}};
  const BiasPart of_both[] = {{apart + names.gate + ".bias", inner, own},
                              {apart + names.up + ".bias", inner, own}};
  const BiasPart down[] = {{is_stacked ? stack + ".down_proj_bias" : apart + names.down + ".bias",
                            hidden, OwnRows(context, hidden)}};
  ASSIGN_OR_RETURN(layer->gate_up_bias,
                   LoadExpertBias(context, shape, is_stacked ? of_pairs : of_both));
  ASSIGN_OR_RETURN(layer->down_bias, LoadExpertBias(context, shape, down));
  return OkStatus();
}

// [E], or [1, E] as ERNIE has it.
StatusOr<OwnedTensor> LoadRouterBias(const LoadContext& context, const std::string& name,
                                     int64_t num_experts) {
  return LoadNumbers(context, name, 0, num_experts, [&](float* out) -> Status {
    const auto read = [&](const Tensor& bias) {
      ConvertTensor(Tensor(out, DType::kF32, {num_experts}),
                    Tensor(bias.data, bias.dtype, {num_experts}));
      return OkStatus();
    };
    const StatusOr<WeightTensor> vector = context.weights.Get(name, 0, num_experts);
    if (vector.ok()) return read(vector->view());
    ASSIGN_OR_RETURN(const WeightTensor row, context.weights.Get(name, 1, num_experts));
    return read(row.view());
  });
}

// Granite's shared expert stands beside the block.
StatusOr<MlpLayer> LoadShared(const LoadContext& context, const LayerPlace& place,
                              const std::string& block, const MoeNames& names,
                              const MoeShape& shape, ExpertLayout layout) {
  const int64_t inner = shape.shared_intermediate_size;
  if (layout == ExpertLayout::kStacked) {
    return LoadSharedMlp(context, place.prefix + "." + names.shared, inner);
  }
  const std::string shared = block + "." + names.shared;
  if (shape.has_gate) return LoadGatedMlp(context, shared, inner);
  return LoadPlainMlp(context, shared + "." + names.up, shared + "." + names.down,
                      /*has_bias=*/false, inner);
}

}  // namespace

StatusOr<MlpLayer> LoadSharedMlp(const LoadContext& context, const std::string& module,
                                 int64_t inner) {
  if (context.weights.Has(module + ".gate_proj.weight")) {
    return LoadGatedMlp(context, module, inner);
  }
  return LoadMergedMlp(context, module + ".input_linear", module + ".output_linear", inner);
}

MoeShape MixtureShape(const ModelConfig& config, RouteOptions routing) {
  return {.num_experts = config.num_experts,
          .top_k = config.num_experts_per_tok,
          .intermediate_size = config.moe_intermediate_size,
          .routing = routing,
          .shared_intermediate_size = config.shared_intermediate_size,
          .latent_size = config.moe_latent_size};
}

RouteOptions GroupedSigmoids(const ModelConfig& config) {
  return {.score = RouterScore::kSigmoid,
          .renormalize = config.norm_topk_prob,
          .scale = static_cast<float>(config.routed_scaling_factor),
          .num_groups = static_cast<int>(config.num_expert_groups),
          .top_groups = static_cast<int>(config.num_chosen_groups),
          .group_best = config.num_expert_groups > 1 ? 2 : 1};
}

namespace {

// What a checkpoint calls the parts of a mixture.
struct MixturePlaces {
  std::string own;         // by the layout; adapters know the experts by it
  std::string block;       // of the router and what stands beside it
  std::string experts;     // of the stacks
  bool is_stacked = true;  // else each expert's matrices are apart
};

MixturePlaces PlacesOf(const LoadContext& context, const LayerPlace& place, const MoeNames& names,
                       ExpertLayout layout) {
  const bool is_named = layout == ExpertLayout::kNamed;
  const std::string own = names.block.empty() ? place.prefix : place.prefix + "." + names.block;
  const std::string renamed = names.block.empty() ? place.prefix : place.prefix + ".mlp";
  const std::string experts = (is_named ? renamed : own) + ".experts";
  // GGUF files have each matrix apart, whatever the layout is.
  const bool is_stacked = is_named ? context.weights.Has(experts + ".gate_up_proj")
                                   : !context.weights.Has(experts + ".0." + names.gate + ".weight");
  return {own, is_stacked && is_named ? renamed : own, experts, is_stacked};
}

StackNames StacksOf(const MixturePlaces& places, ExpertLayout layout) {
  if (layout == ExpertLayout::kStacked) {
    return {places.block + ".input_linear.weight", places.block + ".output_linear.weight"};
  }
  return {places.experts + ".gate_up_proj", places.experts + ".down_proj"};
}

// The router, and what scales or shares its choice.
Status LoadRouting(const LoadContext& context, const std::string& block, const MoeNames& names,
                   const MoeShape& shape, bool has_bias, MoeLayer* layer) {
  const StoredMatrix router[] = {{.name = block + "." + names.router,
                                  .rows = shape.num_experts,
                                  .columns = context.config.hidden_size}};
  ASSIGN_OR_RETURN(
      layer->router,
      LoadLinear(context, router, {.has_bias = has_bias, .format = WeightFormat::kCompute}));
  if (!names.router_bias.empty()) {
    ASSIGN_OR_RETURN(layer->router_bias,
                     LoadRouterBias(context, block + "." + names.router_bias, shape.num_experts));
  }
  if (names.expert_scale.empty()) return OkStatus();
  ASSIGN_OR_RETURN(layer->expert_scale,
                   LoadVector(context, block + "." + names.expert_scale, shape.num_experts));
  return OkStatus();
}

// The rank's experts.
Status LoadExperts(const LoadContext& context, const MixturePlaces& places, const MoeNames& names,
                   const MoeShape& shape, ExpertLayout layout, MoeLayer* layer) {
  const int64_t inner = shape.intermediate_size, hidden = ExpertWidth(context.config, shape);
  const bool has_biases = layout == ExpertLayout::kTransposedPairs;
  const AdaptedAs adapted_as = has_biases ? AdaptedAs::kNothing : AdaptedAs::kLinear;
  const StackNames stacks = StacksOf(places, layout);
  std::vector<std::unique_ptr<PackedMatrix>> gate_ups, downs;
  const Slice experts = OwnExperts(context, shape);
  for (int64_t e = experts.begin; e < experts.end(); ++e) {
    const std::string number = ".experts." + std::to_string(e) + ".";
    const ExpertBlocks expert = places.is_stacked
                                    ? ExpertOfStack(context, shape, stacks, e, layout)
                                    : ExpertApart(context, names, shape, places.block + number);
    // Adapters name the matrices of an expert apart, also where they are stored in a stack.
    const std::string apart = places.own + number;
    std::vector<std::string> modules = {apart + names.up};
    if (shape.has_gate) modules.insert(modules.begin(), apart + names.gate);
    LinearLayer linear;
    ASSIGN_OR_RETURN(linear, LoadLinear(context, expert.gate_up,
                                        {.is_gated = shape.has_gate && shape.swiglu_limit == 0,
                                         .adapted_as = adapted_as,
                                         .modules = std::move(modules),
                                         .module_rows = inner,
                                         .rows_of_module = OwnRows(context, inner)}));
    gate_ups.push_back(std::move(linear.weight));
    layer->gate_up_sites.push_back(linear.adapter_site);
    ASSIGN_OR_RETURN(linear, LoadLinear(context, expert.down,
                                        {.adapted_as = adapted_as,
                                         .modules = {apart + names.down},
                                         .module_rows = hidden,
                                         .rows_of_module = OwnRows(context, hidden)}));
    downs.push_back(std::move(linear.weight));
    layer->down_sites.push_back(linear.adapter_site);
  }
  if (has_biases) {
    RETURN_IF_ERROR(
        LoadExpertBiases(context, shape, names, places.experts, places.is_stacked, layer));
  }
  ASSIGN_OR_RETURN(layer->gate_up, context.backend.PackExperts(std::move(gate_ups)));
  ASSIGN_OR_RETURN(layer->down, context.backend.PackExperts(std::move(downs)));
  return OkStatus();
}

}  // namespace

StatusOr<MoeLayer> LoadMoe(const LoadContext& context, const LayerPlace& place,
                           const MoeNames& names, const MoeShape& shape, ExpertLayout layout) {
  const MixturePlaces places = PlacesOf(context, place, names, layout);
  const int64_t hidden = context.config.hidden_size;
  MoeLayer layer;
  RETURN_IF_ERROR(LoadRouting(context, places.block, names, shape,
                              layout == ExpertLayout::kTransposedPairs, &layer));
  if (shape.shared_intermediate_size > 0) {
    ASSIGN_OR_RETURN(layer.shared, LoadShared(context, place, places.block, names, shape, layout));
  }
  if (layer.shared && !names.shared_gate.empty()) {
    const StoredMatrix gate[] = {
        {.name = places.block + "." + names.shared_gate, .rows = 1, .columns = hidden}};
    ASSIGN_OR_RETURN(layer.shared_gate,
                     LoadLinear(context, gate, {.format = WeightFormat::kCompute}));
  }
  if (shape.latent_size > 0) {
    const int64_t latent = shape.latent_size;
    ASSIGN_OR_RETURN(layer.to_latent,
                     LoadRows(context, places.block + ".fc1_latent_proj", latent, hidden, false));
    ASSIGN_OR_RETURN(layer.from_latent,
                     LoadRows(context, places.block + ".fc2_latent_proj", hidden, latent, false));
  }
  RETURN_IF_ERROR(LoadExperts(context, places, names, shape, layout, &layer));
  return layer;
}

namespace {

StatusOr<std::unique_ptr<Layer>> LoadLayer(const LoadContext& context, const MoeFamily& family,
                                           const LayerPlace& place) {
  LlamaLayer norms;
  RETURN_IF_ERROR(family.options.has_layer_norm ? LoadLayerNorms(context, place, &norms)
                                                : LoadLlamaNorms(context, place, &norms));
  auto layer = std::make_unique<MixedLayer>();
  layer->input_norm = std::move(norms.input_norm);
  layer->post_attention_norm = std::move(norms.post_attention_norm);
  ASSIGN_OR_RETURN(layer->mixer, family.load_attention(context, place));
  if (context.config.IsMixture(place.idx)) {
    ASSIGN_OR_RETURN(layer->mlp,
                     LoadMoe(context, place, family.names, family.shape, family.layout));
  } else {
    ASSIGN_OR_RETURN(layer->mlp, LoadGatedMlp(context, place.prefix + "." + family.names.dense,
                                              context.config.intermediate_size));
  }
  return std::unique_ptr<Layer>(std::move(layer));
}

}  // namespace

StatusOr<std::unique_ptr<Stage>> LoadMoeLike(const LoadContext& context, const MoeFamily& family) {
  DecoderOptions options = family.options;
  options.mixture = family.shape;
  return Stage::Load(context, std::move(options),
                     [&](const LayerPlace& place) { return LoadLayer(context, family, place); });
}

}  // namespace tandem
