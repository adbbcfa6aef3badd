#include "engine_core/executor/pooler_head.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>
#include <utility>

#include "common/read_file.h"
#include "kernels/elementary_functions.h"

namespace tandem {
namespace {

constexpr int64_t kMaxTokenizerBytes = 256 << 20;

// From a tokenizer.json, of which an engine reads nothing else; -1: there is no such token.
StatusOr<int64_t> FindTokenId(const std::string& tokenizer_json, const std::string& token) {
  using Json = nlohmann::json;
  const Json json = Json::parse(tokenizer_json, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return InvalidArgumentError("tokenizer.json is not a JSON object");
  const auto id_of = [](const Json& object, const std::string& key) -> int64_t {
    const auto found = object.is_object() ? object.find(key) : object.end();
    return found != object.end() && found->is_number_integer() ? found->get<int64_t>() : -1;
  };
  const auto added = json.find("added_tokens");
  if (added != json.end() && added->is_array()) {
    for (const Json& each : *added) {
      if (each.is_object() && each.contains("content") && each["content"] == token) {
        return id_of(each, "id");
      }
    }
  }
  const auto model = json.find("model");
  if (model == json.end() || !model->is_object() || !model->contains("vocab")) return int64_t{-1};
  return id_of((*model)["vocab"], token);
}

void Normalize(std::vector<float>* values) {
  double sum = 0;
  for (const float value : *values) sum += static_cast<double>(value) * value;
  const double length = std::max(std::sqrt(sum), 1e-12);  // torch's
  for (float& value : *values) value = static_cast<float>(value / length);
}

void Activate(ScoreActivation activation, std::vector<float>* values) {
  if (activation == ScoreActivation::kSigmoid) {
    for (float& value : *values) value = SigmoidOf<FloatOps>(value);
  }
  if (activation != ScoreActivation::kSoftmax) return;
  const float most = *std::max_element(values->begin(), values->end());
  double sum = 0;
  for (float& value : *values) sum += static_cast<double>(value = ExpNonPositive(value - most));
  for (float& value : *values) value = static_cast<float>(value / sum);
}

double CurveOf(DenseCurve curve, double x) {
  switch (curve) {
    case DenseCurve::kNone:
      return x;
    case DenseCurve::kTanh:
      return std::tanh(x);
    case DenseCurve::kRelu:
      return x < 0 ? 0 : x;  // NaN stays NaN
    case DenseCurve::kGelu:
      return x * 0.5 * (1.0 + std::erf(x * std::numbers::sqrt2 / 2));
    case DenseCurve::kSilu:
      return x / (1.0 + std::exp(-x));
    case DenseCurve::kSigmoid:
      return 1.0 / (1.0 + std::exp(-x));
  }
  return x;
}

}  // namespace

StatusOr<PoolerHead::Layer> PoolerHead::LoadLayer(Weights* weights, const std::string& name,
                                                  int64_t rows, int64_t columns, bool has_bias) {
  Layer layer;
  layer.rows = rows;
  layer.columns = columns;
  {
    ASSIGN_OR_RETURN(const WeightTensor tensor, weights->Get(name + ".weight", rows, columns));
    layer.weight.resize(static_cast<size_t>(rows * columns));
    ConvertTensor(Tensor(layer.weight.data(), DType::kF32, {rows, columns}), tensor.view());
  }
  if (!has_bias) return layer;
  ASSIGN_OR_RETURN(const WeightTensor bias, weights->Get(name + ".bias", 0, rows));
  layer.bias.resize(static_cast<size_t>(rows));
  ConvertTensor(Tensor(layer.bias.data(), DType::kF32, {rows}), bias.view());
  return layer;
}

StatusOr<PoolerHead::Layer> PoolerHead::LoadDense(const std::string& model,
                                                  const PooledDense& dense) {
  const int64_t rows = dense.out_features, columns = dense.in_features;
  ASSIGN_OR_RETURN(const auto weights, OpenSafetensors(model + "/" + dense.folder));
  ASSIGN_OR_RETURN(Layer layer, LoadLayer(weights.get(), "linear", rows, columns, dense.has_bias));
  layer.curve = dense.curve;
  layer.has_residual = dense.has_residual;
  layer.has_unit_input = dense.has_unit_input;
  if (!dense.has_residual || rows == columns) return layer;
  ASSIGN_OR_RETURN(Layer residual, LoadLayer(weights.get(), "residual", rows, columns, false));
  layer.residual = std::move(residual.weight);
  return layer;
}

StatusOr<PoolerHead> PoolerHead::Load(const std::string& model, const ModelConfig& model_config,
                                      const PoolerConfig& config, Weights* weights) {
  PoolerHead head;
  head.task_ = config.task;
  head.activation_ = config.activation;
  int64_t size = model_config.hidden_size;
  for (const PooledDense& dense : config.dense) {
    if (dense.in_features != size) {
      return InvalidArgumentError(dense.folder + ": in_features is " +
                                  std::to_string(dense.in_features) + ", must be " +
                                  std::to_string(size));
    }
    ASSIGN_OR_RETURN(Layer layer, LoadDense(model, dense));
    head.layers_.push_back(std::move(layer));
    size = dense.out_features;
  }
  if (config.has_projection) {
    RETURN_IF_ERROR(head.LoadProjection(model_config, config, weights));
  }
  if (!MakesVectors(config.task)) {
    RETURN_IF_ERROR(head.LoadClassifier(model, model_config, config, weights));
  }
  return head;
}

Status PoolerHead::LoadProjection(const ModelConfig& model_config, const PoolerConfig& config,
                                  Weights* weights) {
  const std::string name = weights->Has("colbert_linear.weight") ? "colbert_linear" : "linear";
  int64_t rows = config.projection_size;
  if (rows == 0) {
    const StatusOr<StoredTensor> stored = weights->GetStored(name + ".weight");
    if (!stored.ok()) {
      return stored.status().WithContext(
          "the projection of ColBERT, which is neither in the checkpoint nor in a folder that "
          "modules.json names");
    }
    rows = stored->shape().empty() ? 0 : stored->shape()[0];
    if (rows < 1 || rows > config.embedding_size) {
      return InvalidArgumentError(weights->PlaceOf(name + ".weight") + " has " +
                                  std::to_string(rows) + " rows, must have 1 to hidden_size, " +
                                  std::to_string(config.embedding_size));
    }
  }
  ASSIGN_OR_RETURN(Layer layer, LoadLayer(weights, name, rows, model_config.hidden_size,
                                          weights->Has(name + ".bias")));
  layers_.push_back(std::move(layer));
  return OkStatus();
}

Status PoolerHead::LoadPredictionHead(const ModelConfig& model_config, Weights* weights) {
  const int64_t hidden = model_config.hidden_size;
  ASSIGN_OR_RETURN(Layer layer, LoadLayer(weights, "head.dense", hidden, hidden,
                                          weights->Has("head.dense.bias")));
  layer.curve = DenseCurve::kGelu;
  layer.norm_eps = static_cast<double>(model_config.rms_norm_eps);
  const auto read = [&](const std::string& name, std::vector<float>* values) -> Status {
    ASSIGN_OR_RETURN(const WeightTensor tensor, weights->Get(name, 0, hidden));
    values->resize(static_cast<size_t>(hidden));
    ConvertTensor(Tensor(values->data(), DType::kF32, {hidden}), tensor.view());
    return OkStatus();
  };
  RETURN_IF_ERROR(read("head.norm.weight", &layer.norm_weight));
  if (weights->Has("head.norm.bias")) RETURN_IF_ERROR(read("head.norm.bias", &layer.norm_bias));
  layers_.push_back(std::move(layer));
  return OkStatus();
}

// The heads that transformers' classes have: `score` of decoders, BERT's pooler and classifier,
// RoBERTa's classifier of two layers, ModernBERT's head and classifier. Those of tokens have no
// pooler, also where a checkpoint still has its weights.
Status PoolerHead::LoadClassifier(const std::string& model, const ModelConfig& model_config,
                                  const PoolerConfig& config, Weights* weights) {
  if (!config.classifier_from_token.empty()) {
    return LoadTokenClassifier(model, model_config, config, weights);
  }
  const int64_t hidden = model_config.hidden_size;
  const auto num_labels = static_cast<int64_t>(config.labels.size());
  const auto add = [&](const std::string& name, int64_t rows, bool has_tanh) -> Status {
    ASSIGN_OR_RETURN(Layer layer,
                     LoadLayer(weights, name, rows, hidden, weights->Has(name + ".bias")));
    if (has_tanh) layer.curve = DenseCurve::kTanh;
    layers_.push_back(std::move(layer));
    return OkStatus();
  };
  if (weights->Has("score.weight")) return add("score", num_labels, false);
  if (weights->Has("classifier.out_proj.weight")) {
    RETURN_IF_ERROR(add("classifier.dense", hidden, true));
    return add("classifier.out_proj", num_labels, false);
  }
  if (!weights->Has("classifier.weight")) {
    return NotFoundError(
        "the checkpoint has no classifier: neither score, nor classifier.out_proj, nor classifier");
  }
  if (weights->Has("head.dense.weight")) {
    RETURN_IF_ERROR(LoadPredictionHead(model_config, weights));
  }
  const bool is_of_tokens = model_config.architecture.ends_with("ForTokenClassification");
  if (!is_of_tokens && weights->Has("bert.pooler.dense.weight")) {
    RETURN_IF_ERROR(add("bert.pooler.dense", hidden, true));
  }
  return add("classifier", num_labels, false);
}

// The logit of the second token less that of the first.
Status PoolerHead::LoadTokenClassifier(const std::string& model, const ModelConfig& model_config,
                                       const PoolerConfig& config, Weights* weights) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(model + "/tokenizer.json", kMaxTokenizerBytes));
  const int64_t size = model_config.hidden_size, vocab_size = model_config.vocab_size;
  const bool is_tied = model_config.tie_word_embeddings || !weights->Has("lm_head.weight");
  ASSIGN_OR_RETURN(
      const WeightTensor table,
      weights->Get(is_tied ? "model.embed_tokens.weight" : "lm_head.weight", vocab_size, size));
  const auto row_of = [&](const std::string& token, std::vector<float>* row) -> Status {
    ASSIGN_OR_RETURN(const int64_t id, FindTokenId(text, token));
    if (id < 0 || id >= vocab_size) {
      return InvalidArgumentError("classifier_from_token: the tokenizer has no token " + token);
    }
    row->resize(static_cast<size_t>(size));
    ConvertTensor(Tensor(row->data(), DType::kF32, {1, size}), table.view().Rows(id, 1));
    return OkStatus();
  };
  std::vector<float> no, yes;
  RETURN_IF_ERROR(row_of(config.classifier_from_token[0], &no));
  RETURN_IF_ERROR(row_of(config.classifier_from_token[1], &yes));
  Layer layer;
  layer.rows = 1;
  layer.columns = size;
  layer.weight.resize(static_cast<size_t>(size));
  for (size_t i = 0; i < no.size(); ++i) layer.weight[i] = yes[i] - no[i];
  layers_.push_back(std::move(layer));
  return OkStatus();
}

std::vector<float> PoolerHead::Layer::Apply(std::vector<float> x) const {
  if (has_unit_input) Normalize(&x);
  const auto product = [&](const std::vector<float>& matrix, size_t r, double sum) {
    const float* row = matrix.data() + r * static_cast<size_t>(columns);
    for (size_t c = 0; c < x.size(); ++c) {
      sum += static_cast<double>(row[c]) * static_cast<double>(x[c]);
    }
    return sum;
  };
  std::vector<float> out(static_cast<size_t>(rows));
  for (size_t r = 0; r < out.size(); ++r) {
    const double sum = product(weight, r, bias.empty() ? 0.0 : static_cast<double>(bias[r]));
    double value = CurveOf(curve, sum);
    if (has_residual)
      value += residual.empty() ? static_cast<double>(x[r]) : product(residual, r, 0);
    out[r] = static_cast<float>(value);
  }
  if (!norm_weight.empty()) Norm(&out);
  return out;
}

void PoolerHead::Layer::Norm(std::vector<float>* x) const {
  double sum = 0, squares = 0;
  for (const float value : *x) sum += static_cast<double>(value);
  const auto size = static_cast<double>(x->size());
  const double mean = sum / size;
  for (const float value : *x) squares += (value - mean) * (value - mean);
  const double scale = 1.0 / std::sqrt(squares / size + norm_eps);
  for (size_t i = 0; i < x->size(); ++i) {
    const double shift = norm_bias.empty() ? 0.0 : static_cast<double>(norm_bias[i]);
    (*x)[i] = static_cast<float>(((*x)[i] - mean) * scale * norm_weight[i] + shift);
  }
}

std::vector<float> PoolerHead::Apply(std::vector<float> pooled, int64_t dimensions,
                                     bool use_activation) const {
  for (const Layer& layer : layers_) pooled = layer.Apply(std::move(pooled));
  if (dimensions > 0 && static_cast<size_t>(dimensions) < pooled.size()) {
    pooled.resize(static_cast<size_t>(dimensions));
  }
  if (!use_activation) return pooled;
  if (MakesVectors(task_)) {
    Normalize(&pooled);
  } else {
    Activate(activation_, &pooled);
  }
  return pooled;
}

}  // namespace tandem
