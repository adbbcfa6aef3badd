#include "engine_core/models/layer_inputs.h"

#include <cmath>
#include <numbers>

namespace tandem {
namespace {

StatusOr<LinearLayer> LoadWhole(const LoadContext& context, const std::string& name, int64_t rows,
                                int64_t columns, const LinearOptions& options) {
  const StoredMatrix block[] = {{.name = name, .rows = rows, .columns = columns}};
  return LoadLinear(context, block, options);
}

}  // namespace

StatusOr<InputLayer> LoadInputLayer(const LoadContext& context, const LayerPlace& place) {
  const int64_t hidden = context.config.hidden_size, size = context.config.uneven.input_size;
  InputLayer layer;
  ASSIGN_OR_RETURN(layer.gate,
                   LoadWhole(context, place.prefix + ".per_layer_input_gate", size, hidden, {}));
  ASSIGN_OR_RETURN(layer.projection,
                   LoadWhole(context, place.prefix + ".per_layer_projection", hidden, size, {}));
  ASSIGN_OR_RETURN(layer.post_norm,
                   LoadRmsNorm(context, place.prefix + ".post_per_layer_input_norm"));
  return layer;
}

LayerInputs::LayerInputs(const LoadContext& context)
    : ops_(&context.backend.ops()),
      num_layers_(context.config.num_layers),
      size_(context.config.uneven.input_size),
      norm_epsilon_(static_cast<float>(context.config.rms_norm_eps *
                                       static_cast<double>(context.config.hidden_size))) {}

StatusOr<LayerInputs> LayerInputs::Load(const LoadContext& context) {
  const ModelConfig& config = context.config;
  const int64_t all = config.num_layers * config.uneven.input_size;
  LayerInputs inputs(context);
  ASSIGN_OR_RETURN(
      inputs.table_,
      LoadWhole(context, "model.embed_tokens_per_layer", config.uneven.num_inputs, all,
                {.format = context.formats.embedding, .adapted_as = AdaptedAs::kNothing}));
  ASSIGN_OR_RETURN(inputs.projection_,
                   LoadWhole(context, "model.per_layer_model_projection", all, config.hidden_size,
                             {.adapted_as = AdaptedAs::kNothing}));
  ASSIGN_OR_RETURN(inputs.norm_, LoadScaledVector(context, "model.per_layer_projection_norm.weight",
                                                  inputs.size_, 1 / std::numbers::sqrt2));
  Device& device = context.backend.device();
  const DType act = context.backend.activation_dtype();
  const int64_t tokens = context.limits.max_tokens;
  ASSIGN_OR_RETURN(inputs.sums_, device.Allocate(context.backend.residual_dtype(), {tokens, all}));
  ASSIGN_OR_RETURN(inputs.inputs_, device.Allocate(act, {tokens, all}));
  ASSIGN_OR_RETURN(inputs.gate_, device.Allocate(act, {tokens, inputs.size_}));
  return inputs;
}

void LayerInputs::Fill(const Tensor& ids, const Tensor& embedded) {
  const Tensor sums = sums_.view().Rows(0, ids.rows()), all = inputs_.view().Rows(0, ids.rows());
  const double scale = std::sqrt(static_cast<double>(size_) / 2);
  ops_->Embedding(sums, ids, *table_.weight, static_cast<float>(scale));
  ops_->Linear(all, embedded, *projection_.weight);
  for (int64_t i = 0; i < num_layers_; ++i) {
    const Tensor one = all.Columns(i * size_, size_);
    ops_->RmsNorm(one, one, norm_, norm_epsilon_);
  }
  ops_->Add(sums, all);
  ops_->Convert(all, sums);
}

Tensor LayerInputs::Gated(const Tensor& gate, int64_t layer_idx) {
  ops_->Activate(gate, gate, Nonlinearity::kTanhGelu);
  ops_->MultiplyBy(gate, inputs_.view().Rows(0, gate.rows()).Columns(layer_idx * size_, size_));
  return gate;
}

}  // namespace tandem
