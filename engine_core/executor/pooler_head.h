#pragma once

// What stands after the pooling: dense layers of sentence-transformers, a classifier's head, then a
// length of 1 or probabilities. All of it in float32.
// Thread: loaded by one; Apply by any. Owns: its matrices. Failure: weights that are missing or
// have another shape than the configuration says.

#include <cstdint>
#include <string>
#include <vector>

#include "common/status.h"
#include "engine_core/weights/model_config.h"
#include "engine_core/weights/safetensors.h"
#include "pooling/pooler_config.h"

namespace tandem {

class PoolerHead {
 public:
  PoolerHead() = default;
  // model: the folder. weights: its tensors.
  static StatusOr<PoolerHead> Load(const std::string& model, const ModelConfig& model_config,
                                   const PoolerConfig& config, Weights* weights);

  // The result of one text, or of one of its tokens. dimensions: the first ones alone; 0: all.
  // use_activation: length 1, or probabilities.
  std::vector<float> Apply(std::vector<float> pooled, int64_t dimensions,
                           bool use_activation) const;

 private:
  struct Layer {
    int64_t rows = 0, columns = 0;
    std::vector<float> weight;             // [rows, columns]
    std::vector<float> bias;               // [rows] or empty
    DenseCurve curve = DenseCurve::kNone;  // after it
    // The input is added after that, times this matrix [rows, columns] unless it is empty.
    bool has_residual = false;
    std::vector<float> residual;
    bool has_unit_input = false;  // the input is brought to length 1 first
    // A LayerNorm after that; empty: none.
    std::vector<float> norm_weight, norm_bias;  // [rows]
    double norm_eps = 0;

    std::vector<float> Apply(std::vector<float> x) const;
    void Norm(std::vector<float>* x) const;
  };

  static StatusOr<Layer> LoadLayer(Weights* weights, const std::string& name, int64_t rows,
                                   int64_t columns, bool has_bias);
  // sentence-transformers'.
  static StatusOr<Layer> LoadDense(const std::string& model, const PooledDense& dense);
  // ColBERT's.
  Status LoadProjection(const ModelConfig& model_config, const PoolerConfig& config,
                        Weights* weights);
  Status LoadClassifier(const std::string& model, const ModelConfig& model_config,
                        const PoolerConfig& config, Weights* weights);
  // The layer before ModernBERT's classifier.
  Status LoadPredictionHead(const ModelConfig& model_config, Weights* weights);
  Status LoadTokenClassifier(const std::string& model, const ModelConfig& model_config,
                             const PoolerConfig& config, Weights* weights);

  PoolingTask task_ = PoolingTask::kEmbed;
  ScoreActivation activation_ = ScoreActivation::kNone;
  std::vector<Layer> layers_;
};

}  // namespace tandem
