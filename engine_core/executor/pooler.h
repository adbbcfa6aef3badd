#pragma once

// Turns the hidden states of a step into the results of the requests that are pooled: what
// StepSampler is for requests that generate. Pooling, the dense layers after it and the length are
// computed in float32 (sums over tokens in float64), token after token, so the bits of a result
// depend neither on the batch nor on how the prompt was cut. Of a token-wise task each token is
// pooled alone, and the result has a row for each.
// Thread: engine loop; requests are computed on the backend's threads. Owns: the states of a step,
// which are copied to the host from a device that has memory of its own, and what each request has
// of the chunks before.
// Failure: memory and weights, in Create. States that are no numbers end their request.

#include <memory>
#include <vector>

#include "engine_core/executor/executor.h"
#include "engine_core/executor/pooler_head.h"
#include "engine_core/executor/step_layout.h"
#include "engine_core/models/model.h"
#include "kernels/backend.h"
#include "pooling/pooler_config.h"
#include "proto_msgpack/pooling_params.h"

namespace tandem {

class Pooler {
 public:
  static StatusOr<std::unique_ptr<Pooler>> Create(Backend* backend, const PoolerConfig& config,
                                                  PoolerHead head, const ExecutorLimits& limits,
                                                  int64_t hidden_size, int64_t num_token_types);

  // Before a request's first step, in this run or after a preemption.
  void Admit(RequestSlot slot, const wire::PoolingParams& params);
  // Of a model with types: which text each of the step's tokens belongs to.  types: [T] i32.
  void FillTokenTypes(const StepLayout& layout, const Tensor& types) const;
  // After the model has run the step. The results go to *result.
  void Run(const StepLayout& layout, Model* model, ModelOutput* result);

 private:
  struct Row {
    bool use_activation = true;
    int64_t dimensions = 0;            // 0: all
    int64_t second_begin = INT64_MAX;  // the first token of the second of two texts
    std::vector<double> sum;           // of the tokens so far; CLS: of the first; kMax: the largest
    std::vector<float> token_rows;     // of the tokens so far, with a token-wise task
  };

  Pooler(Backend* backend, const PoolerConfig& config, PoolerHead head, int64_t hidden_size)
      : backend_(backend), config_(config), head_(std::move(head)), hidden_size_(hidden_size) {}
  const Tensor& host_states() const {
    return staging_.view().empty() ? states_.view() : staging_.view();
  }
  // In float32.
  void ReadState(int64_t token_row, std::vector<float>* state) const;
  // To the sum, times the weight; of kMax the larger number counts.
  void Add(int64_t token_row, double weight, Row* row) const;
  // Adds what the kind of pooling takes of a request's tokens.
  void AddPooledTokens(const ScheduledRequest& request, int64_t begin, int64_t end, Row* row) const;
  void AddTokenRows(int64_t begin, int64_t end, Row* row) const;
  std::vector<float> PooledSum(int64_t num_tokens, const Row& row) const;
  // Takes in a request's tokens of the step; the last ones complete its result.
  void Take(const StepLayout& layout, size_t request_idx, RequestResult* result);

  Backend* backend_;
  PoolerConfig config_;
  PoolerHead head_;
  int64_t hidden_size_;
  int64_t num_token_types_ = 0;
  OwnedTensor states_;     // [T, H] act
  OwnedTensor staging_;    // the same on the host; empty: states_ are there
  std::vector<Row> rows_;  // by slot
  std::vector<RequestResult> results_;
};

}  // namespace tandem
