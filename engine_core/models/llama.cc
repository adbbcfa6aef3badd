#include "engine_core/models/llama.h"

namespace tandem {
namespace {

class LlamaModel final : public Model {
 public:
  LlamaModel(Decoder decoder, std::vector<LlamaLayer> layers)
      : decoder_(std::move(decoder)), layers_(std::move(layers)) {}

  void Forward(const ModelStep& step) override {
    decoder_.Embed(step.token_ids);
    for (size_t i = 0; i < layers_.size(); ++i) {
      const LlamaLayer& layer = layers_[i];
      decoder_.Norm(layer.input_norm);
      decoder_.Attend(layer.attention, step.kv_cache->layer(static_cast<int>(i)), *step.plan);
      decoder_.Norm(layer.post_attention_norm);
      decoder_.RunMlp(layer.mlp);
    }
  }

  void Logits(const Tensor& logits, const Tensor& rows) override { decoder_.Logits(logits, rows); }

 private:
  Decoder decoder_;
  std::vector<LlamaLayer> layers_;
};

}  // namespace

StatusOr<LlamaLayer> LoadLlamaLayer(const LoadContext& context, const std::string& prefix) {
  LlamaLayer layer;
  RETURN_IF_ERROR(LoadLlamaNorms(context, prefix, &layer));
  ASSIGN_OR_RETURN(layer.attention, LoadAttention(context, prefix + ".self_attn"));
  ASSIGN_OR_RETURN(layer.mlp, LoadGatedMlp(context, prefix + ".mlp"));
  return layer;
}

Status LoadLlamaNorms(const LoadContext& context, const std::string& prefix, LlamaLayer* layer) {
  const int64_t hidden = context.config.hidden_size;
  ASSIGN_OR_RETURN(layer->input_norm,
                   LoadVector(context, prefix + ".input_layernorm.weight", hidden));
  ASSIGN_OR_RETURN(layer->post_attention_norm,
                   LoadVector(context, prefix + ".post_attention_layernorm.weight", hidden));
  return OkStatus();
}

StatusOr<std::unique_ptr<Model>> LoadLlamaLike(const LoadContext& context,
                                               LlamaLayerLoader load_layer) {
  ASSIGN_OR_RETURN(Decoder decoder, Decoder::Load(context));
  std::vector<LlamaLayer> layers;
  for (int64_t i = 0; i < context.config.num_layers; ++i) {
    ASSIGN_OR_RETURN(LlamaLayer layer, load_layer(context, "model.layers." + std::to_string(i)));
    layer.attention.options.sliding_window = context.config.WindowOf(i);
    layers.push_back(std::move(layer));
  }
  return MakeLlamaLike(std::move(decoder), std::move(layers));
}

std::unique_ptr<Model> MakeLlamaLike(Decoder decoder, std::vector<LlamaLayer> layers) {
  return std::make_unique<LlamaModel>(std::move(decoder), std::move(layers));
}

StatusOr<std::unique_ptr<Model>> LoadLlama(const LoadContext& context) {
  return LoadLlamaLike(context, LoadLlamaLayer);
}

}  // namespace tandem
