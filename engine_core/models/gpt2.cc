// GPT-2: learned positions instead of RoPE, LayerNorms, biases everywhere, an MLP without a gate,
// and matrices stored as [in, out].
// Source: Radford et al. 2019; HF's GPT2LMHeadModel.

#include <algorithm>
#include <cstring>

#include "engine_core/models/layers.h"

namespace tandem {
namespace {

struct Gpt2Layer {
  OwnedTensor attention_norm, attention_norm_bias;
  AttentionLayer attention;
  OwnedTensor mlp_norm, mlp_norm_bias;
  MlpLayer mlp;
};

class Gpt2Model final : public Model {
 public:
  Gpt2Model(Ops* ops, Decoder decoder, std::unique_ptr<PackedMatrix> position_table,
            OwnedTensor positions, std::vector<Gpt2Layer> layers)
      : ops_(ops),
        decoder_(std::move(decoder)),
        position_table_(std::move(position_table)),
        positions_(std::move(positions)),
        layers_(std::move(layers)) {}

  void Forward(const ModelStep& step) override {
    const Tensor positions = positions_.view().Rows(0, step.token_ids.rows());
    ops_->Embedding(positions, step.plan->batch().positions, *position_table_);
    decoder_.Embed(step.token_ids);
    decoder_.Add(positions);
    for (size_t i = 0; i < layers_.size(); ++i) {
      const Gpt2Layer& layer = layers_[i];
      decoder_.Norm(layer.attention_norm, layer.attention_norm_bias);
      decoder_.Attend(layer.attention, step.kv_cache->layer(static_cast<int>(i)), *step.plan);
      decoder_.Norm(layer.mlp_norm, layer.mlp_norm_bias);
      decoder_.RunMlp(layer.mlp);
    }
  }

  void Logits(const Tensor& logits, const Tensor& rows) override { decoder_.Logits(logits, rows); }

 private:
  Ops* ops_;
  Decoder decoder_;
  std::unique_ptr<PackedMatrix> position_table_;  // [n_positions, H]
  OwnedTensor positions_;                         // [T, H] res
  std::vector<Gpt2Layer> layers_;
};

// A matrix stored as [columns, rows], and its bias.
StatusOr<LinearLayer> LoadTransposed(const LoadContext& context, const std::string& name,
                                     int64_t rows, int64_t columns) {
  LinearLayer layer;
  ASSIGN_OR_RETURN(const WeightTensor stored, context.weights.Get(name + ".weight", columns, rows));
  const int64_t size = SizeOf(stored.view().dtype);
  std::vector<std::byte> turned(static_cast<size_t>(rows * columns * size));
  const auto* from = static_cast<const std::byte*>(stored.view().data);
  // Tiles of a cache line's width on both sides: a whole column would miss the cache at each
  // number.
  constexpr int64_t kTile = 32;
  auto turn_tile = [&](int64_t row_begin, int64_t column_begin) {
    const int64_t row_end = std::min(rows, row_begin + kTile);
    const int64_t column_end = std::min(columns, column_begin + kTile);
    for (int64_t row = row_begin; row < row_end; ++row) {
      for (int64_t column = column_begin; column < column_end; ++column) {
        std::memcpy(turned.data() + (row * columns + column) * size,
                    from + (column * rows + row) * size, static_cast<size_t>(size));
      }
    }
  };
  for (int64_t row = 0; row < rows; row += kTile) {
    for (int64_t column = 0; column < columns; column += kTile) turn_tile(row, column);
  }
  const Tensor views[] = {Tensor(turned.data(), stored.view().dtype, {rows, columns})};
  ASSIGN_OR_RETURN(layer.weight, context.backend.Pack(views, context.formats.layers));
  ASSIGN_OR_RETURN(layer.bias, LoadVector(context, name + ".bias", rows));
  return layer;
}

// The checkpoint's names stand below "transformer." or, in the oldest ones, at the top.
std::string Gpt2Prefix(const Weights& weights) {
  return weights.Has("wte.weight") ? "" : "transformer.";
}

float Gpt2Scale(const ModelConfig& config, int64_t layer) {
  const float scale =
      config.scale_attn_weights ? AttentionScale(static_cast<double>(config.head_dim)) : 1;
  return config.scale_attn_by_inverse_layer_idx ? scale / static_cast<float>(layer + 1) : scale;
}

StatusOr<Gpt2Layer> LoadGpt2Layer(const LoadContext& context, const std::string& prefix) {
  const ModelConfig& config = context.config;
  const int64_t hidden = config.hidden_size, inner = config.intermediate_size;
  Gpt2Layer layer;
  ASSIGN_OR_RETURN(layer.attention_norm, LoadVector(context, prefix + ".ln_1.weight", hidden));
  ASSIGN_OR_RETURN(layer.attention_norm_bias, LoadVector(context, prefix + ".ln_1.bias", hidden));
  ASSIGN_OR_RETURN(layer.attention.qkv,
                   LoadTransposed(context, prefix + ".attn.c_attn", 3 * hidden, hidden));
  ASSIGN_OR_RETURN(layer.attention.out,
                   LoadTransposed(context, prefix + ".attn.c_proj", hidden, hidden));
  ASSIGN_OR_RETURN(layer.mlp_norm, LoadVector(context, prefix + ".ln_2.weight", hidden));
  ASSIGN_OR_RETURN(layer.mlp_norm_bias, LoadVector(context, prefix + ".ln_2.bias", hidden));
  ASSIGN_OR_RETURN(layer.mlp.up, LoadTransposed(context, prefix + ".mlp.c_fc", inner, hidden));
  ASSIGN_OR_RETURN(layer.mlp.down, LoadTransposed(context, prefix + ".mlp.c_proj", hidden, inner));
  layer.mlp.activation = Activation::kGelu;
  return layer;
}

}  // namespace

StatusOr<std::unique_ptr<Model>> LoadGpt2(const LoadContext& context) {
  if (context.config.hidden_act != "gelu_new") {
    return InvalidArgumentError("activation_function " + context.config.hidden_act +
                                " of GPT2LMHeadModel must be gelu_new");
  }
  const ModelConfig& config = context.config;
  DecoderOptions options;
  const std::string prefix = Gpt2Prefix(context.weights);
  options.embedding = prefix + "wte";
  options.final_norm = prefix + "ln_f";
  options.has_layer_norm = true;
  ASSIGN_OR_RETURN(Decoder decoder, Decoder::Load(context, options));
  const RowBlock table[] = {{prefix + "wpe", config.max_position_embeddings}};
  ASSIGN_OR_RETURN(LinearLayer positions,
                   LoadLinear(context, table, config.hidden_size, false, WeightFormat::kCompute));
  ASSIGN_OR_RETURN(OwnedTensor rows, context.backend.device().Allocate(
                                         context.backend.residual_dtype(),
                                         {context.limits.max_tokens, config.hidden_size}));
  std::vector<Gpt2Layer> layers;
  for (int64_t i = 0; i < config.num_layers; ++i) {
    ASSIGN_OR_RETURN(Gpt2Layer layer, LoadGpt2Layer(context, prefix + "h." + std::to_string(i)));
    layer.attention.options.scale = Gpt2Scale(config, i);
    layers.push_back(std::move(layer));
  }
  return std::unique_ptr<Model>(
      std::make_unique<Gpt2Model>(&context.backend.ops(), std::move(decoder),
                                  std::move(positions.weight), std::move(rows), std::move(layers)));
}

}  // namespace tandem
