// BERT, RoBERTa and XLM-R: encoders with learned positions and norms after each branch:
//   x = norm(x + attention(x));  x = norm(x + mlp(x))
// Jina's XLM-R has rotary positions in their place, and names of its own.
// Source: Devlin et al. 2018; HF's BertModel, XLMRobertaModel and JinaEmbeddingsV3Model; vLLM's
// JinaRobertaModel has the checkpoint's names.

#include <utility>

#include "engine_core/models/stage.h"

namespace tandem {
namespace {

struct BertLayer final : Layer {
  AttentionLayer attention;
  NormLayer attention_norm;
  MlpLayer mlp;
  NormLayer mlp_norm;

  void Run(Decoder* decoder, const LayerKv& kv, const AttentionPlan& plan) const override {
    decoder->Norm({});
    decoder->Attend(attention, kv, plan);
    decoder->NormResidual(attention_norm);
    decoder->Norm({});
    decoder->RunMlp(mlp);
    decoder->NormResidual(mlp_norm);
  }
};

// Embedders are saved without the prefix.
std::string BertPrefix(const Weights& weights) {
  for (const char* prefix : {"bert.", "roberta.", "model."}) {
    if (weights.Has(prefix + std::string("embeddings.word_embeddings.weight"))) return prefix;
  }
  return "";
}

StatusOr<std::unique_ptr<Layer>> LoadBertLayer(const LoadContext& context,
                                               const LayerPlace& place) {
  const int64_t hidden = context.config.hidden_size, inner = context.config.intermediate_size;
  const HeadShare own = context.heads();
  const auto heads = [&](const char* name, Slice rows) {
    return StoredMatrix{
        .name = place.prefix + name, .rows = hidden, .columns = hidden, .row_slice = rows};
  };
  const auto load = [&](const char* name, int64_t rows, int64_t columns) {
    return LoadRows(context, place.prefix + name, rows, columns, /*has_bias=*/true);
  };
  const StoredMatrix qkv[] = {heads(".attention.self.query", own.q_rows()),
                              heads(".attention.self.key", own.kv_rows()),
                              heads(".attention.self.value", own.kv_rows())};
  auto layer = std::make_unique<BertLayer>();
  ASSIGN_OR_RETURN(layer->attention.qkv, LoadLinear(context, qkv, {.has_bias = true}));
  ASSIGN_OR_RETURN(layer->attention.out, load(".attention.output.dense", hidden, hidden));
  layer->attention.options = AttentionOptionsOf(context.config, place.idx);
  ASSIGN_OR_RETURN(layer->attention_norm,
                   LoadLayerNorm(context, place.prefix + ".attention.output.LayerNorm"));
  ASSIGN_OR_RETURN(layer->mlp.up, load(".intermediate.dense", inner, hidden));
  ASSIGN_OR_RETURN(layer->mlp.down, load(".output.dense", hidden, inner));
  layer->mlp.activation = Activation::kErfGelu;
  ASSIGN_OR_RETURN(layer->mlp_norm, LoadLayerNorm(context, place.prefix + ".output.LayerNorm"));
  return std::unique_ptr<Layer>(std::move(layer));
}

StatusOr<std::unique_ptr<Layer>> LoadJinaRobertaLayer(const LoadContext& context,
                                                      const LayerPlace& place) {
  const int64_t hidden = context.config.hidden_size, inner = context.config.intermediate_size;
  const HeadShare own = context.heads();
  const Slice qkv[] = {own.q_rows(), own.kv_rows().Shifted(hidden),
                       own.kv_rows().Shifted(2 * hidden)};
  const auto load = [&](const char* name, int64_t rows, int64_t columns) {
    return LoadRows(context, place.prefix + name, rows, columns, /*has_bias=*/true);
  };
  auto layer = std::make_unique<BertLayer>();
  ASSIGN_OR_RETURN(layer->attention.qkv,
                   LoadMergedQkv(context, place.prefix + ".mixer.Wqkv", /*has_bias=*/true, qkv));
  ASSIGN_OR_RETURN(layer->attention.out, load(".mixer.out_proj", hidden, hidden));
  layer->attention.options = AttentionOptionsOf(context.config, place.idx);
  ASSIGN_OR_RETURN(layer->attention_norm, LoadLayerNorm(context, place.prefix + ".norm1"));
  ASSIGN_OR_RETURN(layer->mlp.up, load(".mlp.fc1", inner, hidden));
  ASSIGN_OR_RETURN(layer->mlp.down, load(".mlp.fc2", hidden, inner));
  layer->mlp.activation = Activation::kErfGelu;
  ASSIGN_OR_RETURN(layer->mlp_norm, LoadLayerNorm(context, place.prefix + ".norm2"));
  return std::unique_ptr<Layer>(std::move(layer));
}

// What all have around their layers.
StatusOr<DecoderOptions> OptionsOf(const LoadContext& context, const std::string& prefix) {
  if (context.config.hidden_act != "gelu") {
    return InvalidArgumentError("hidden_act " + context.config.hidden_act + " of " +
                                context.config.architecture + " must be gelu");
  }
  DecoderOptions options;
  options.embedding = prefix + "embeddings.word_embeddings";
  options.token_types = prefix + "embeddings.token_type_embeddings";
  options.final_norm = "";
  return options;
}

}  // namespace

StatusOr<std::unique_ptr<Stage>> LoadBert(const LoadContext& context) {
  const std::string prefix = BertPrefix(context.weights);
  ASSIGN_OR_RETURN(DecoderOptions options, OptionsOf(context, prefix));
  options.positions = prefix + "embeddings.position_embeddings";
  options.first_position = context.config.position_offset;
  options.embedding_norm = prefix + "embeddings.LayerNorm";
  options.layers = prefix + "encoder.layer";
  return Stage::Load(context, std::move(options),
                     [&](const LayerPlace& place) { return LoadBertLayer(context, place); });
}

StatusOr<std::unique_ptr<Stage>> LoadJinaRoberta(const LoadContext& context) {
  const std::string prefix = BertPrefix(context.weights);
  ASSIGN_OR_RETURN(DecoderOptions options, OptionsOf(context, prefix));
  options.embedding_norm = prefix + "emb_ln";
  options.layers = prefix + "encoder.layers";
  return Stage::Load(context, std::move(options),
                     [&](const LayerPlace& place) { return LoadJinaRobertaLayer(context, place); });
}

}  // namespace tandem
