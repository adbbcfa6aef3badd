#include "engine_core/models/layer_inputs.h"

#include <cmath>
#include <numbers>

namespace tandem {

StatusOr<InputLayer> LoadInputLayer(const LoadContext& context, const LayerPlace& place) {
  const int64_t hidden = context.config.hidden_size, size = context.config.uneven.input_size;
  const auto load = [&](const char* name, int64_t rows, int64_t columns) {
    return LoadRows(context, place.prefix + name, rows, columns, /*has_bias=*/false);
  };
  InputLayer layer;
  ASSIGN_OR_RETURN(layer.gate, load(".per_layer_input_gate", size, hidden));
  ASSIGN_OR_RETURN(layer.projection, load(".per_layer_projection", hidden, size));
  ASSIGN_OR_RETURN(layer.post_norm,
                   LoadRmsNorm(context, place.prefix + ".post_per_layer_input_norm"));
  return layer;
}

LayerInputs::LayerInputs(const LoadContext& context)
    : ops_(&context.backend.ops()),
      num_layers_(context.config.num_layers),
      size_(context.config.uneven.input_size),
      layers_(context.share.OfAbout(num_layers_)),
      columns_(context.share.Of(size_)),
      norm_epsilon_(static_cast<float>(context.config.rms_norm_eps *
                                       static_cast<double>(context.config.hidden_size))) {}

StatusOr<LayerInputs> LayerInputs::Load(const LoadContext& context) {
  LayerInputs inputs(context);
  if (context.stage.is_first()) RETURN_IF_ERROR(inputs.LoadTables(context));
  const DType act = context.backend.activation_dtype();
  const int64_t tokens = context.limits.max_tokens;
  ASSIGN_OR_RETURN(inputs.gated_, context.AllocateShared(act, {tokens, inputs.size_}));
  ASSIGN_OR_RETURN(inputs.input_,
                   context.backend.device().Allocate(act, {tokens, inputs.columns_.count}));
  return inputs;
}

Status LayerInputs::LoadTables(const LoadContext& context) {
  const ModelConfig& config = context.config;
  const int64_t all = num_layers_ * size_, own = layers_.count * size_;
  const StoredMatrix table[] = {{.name = "model.embed_tokens_per_layer",
                                 .rows = config.uneven.num_inputs,
                                 .columns = all,
                                 .row_slice = context.share.OfAbout(config.vocab_size)}};
  ASSIGN_OR_RETURN(
      table_, LoadLinear(context, table,
                         {.format = context.formats.embedding, .adapted_as = AdaptedAs::kNothing}));
  Device& device = context.backend.device();
  const int64_t tokens = context.limits.max_tokens;
  ASSIGN_OR_RETURN(sums_, device.Allocate(context.backend.residual_dtype(), {tokens, all}));
  if (own == 0) return OkStatus();
  const StoredMatrix projection[] = {{.name = "model.per_layer_model_projection",
                                      .rows = all,
                                      .columns = config.hidden_size,
                                      .row_slice = Slice{layers_.begin * size_, own}}};
  ASSIGN_OR_RETURN(projection_,
                   LoadLinear(context, projection, {.adapted_as = AdaptedAs::kNothing}));
  ASSIGN_OR_RETURN(norm_, LoadScaledVector(context, "model.per_layer_projection_norm.weight", size_,
                                           1 / std::numbers::sqrt2));
  ASSIGN_OR_RETURN(projected_, device.Allocate(context.backend.activation_dtype(), {tokens, own}));
  return OkStatus();
}

void LayerInputs::Embed(int64_t begin, const Tensor& ids, int64_t num_tokens) {
  const double scale = std::sqrt(static_cast<double>(size_) / 2);
  ops_->Embedding(All(num_tokens).Rows(begin, ids.rows()), ids, *table_.weight,
                  static_cast<float>(scale));
}

void LayerInputs::AddProjected(const Tensor& embedded) {
  if (layers_.count == 0) return;
  const Tensor projected = projected_.view().Rows(0, embedded.rows());
  ops_->Linear(projected, embedded, *projection_.weight);
  for (int64_t i = 0; i < layers_.count; ++i) {
    const Tensor one = projected.Columns(i * size_, size_);
    ops_->RmsNorm(one, one, norm_, norm_epsilon_);
  }
  const Slice own = {layers_.begin * size_, layers_.count * size_};
  ops_->Add(All(embedded.rows()).Columns(own.begin, own.count), projected);
}

void LayerInputs::Gate(const Tensor& gate, int64_t layer_idx) {
  const Tensor input = input_.view().Rows(0, gate.rows());
  const int64_t begin = layer_idx * size_ + columns_.begin;
  ops_->Convert(input, All(gate.rows()).Columns(begin, columns_.count));
  ops_->Activate(gate, gate, Nonlinearity::kTanhGelu);
  ops_->MultiplyBy(gate, input);
}

}  // namespace tandem
