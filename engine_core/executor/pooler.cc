#include "engine_core/executor/pooler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace tandem {
namespace {

// Of what is added up over n tokens.
double DivisorOf(PoolingType type, double n) {
  switch (type) {
    case PoolingType::kMean:
      return n;
    case PoolingType::kMeanSqrtLen:
      return std::sqrt(n);
    case PoolingType::kWeightedMean:
      return n * (n + 1) / 2;
    case PoolingType::kLast:
    case PoolingType::kCls:
    case PoolingType::kMax:
      break;
  }
  return 1;
}

}  // namespace

StatusOr<std::unique_ptr<Pooler>> Pooler::Create(Backend* backend, const PoolerConfig& config,
                                                 PoolerHead head, const ExecutorLimits& limits,
                                                 int64_t hidden_size, int64_t num_token_types) {
  std::unique_ptr<Pooler> pooler(new Pooler(backend, config, std::move(head), hidden_size));
  Device& device = backend->device();
  const DType act = backend->activation_dtype();
  const int64_t tokens = limits.max_num_batched_tokens;
  ASSIGN_OR_RETURN(pooler->states_, device.Allocate(act, {tokens, hidden_size}));
  if (!device.memory_is_host()) {
    ASSIGN_OR_RETURN(pooler->staging_, device.AllocateStaging(act, {tokens, hidden_size}));
  }
  pooler->num_token_types_ = num_token_types;
  pooler->rows_.resize(static_cast<size_t>(limits.max_num_seqs));
  pooler->results_.resize(static_cast<size_t>(limits.max_num_seqs));
  return pooler;
}

void Pooler::Admit(RequestSlot slot, const wire::PoolingParams& params) {
  Row& row = rows_[static_cast<size_t>(Index(slot))];
  const bool is_score = !MakesVectors(config_.task);
  row.use_activation = params.use_activation.value_or(is_score || config_.normalize);
  row.dimensions = params.dimensions.value_or(0);
  const auto second_begin = wire::SecondBegin(params);
  row.second_begin = second_begin.ok() ? second_begin->value_or(INT64_MAX) : INT64_MAX;
  const bool is_max = config_.type == PoolingType::kMax;
  row.sum.assign(static_cast<size_t>(hidden_size_),
                 is_max ? -std::numeric_limits<double>::infinity() : 0);
  row.token_rows.clear();
}

void Pooler::FillTokenTypes(const StepLayout& layout, const Tensor& types) const {
  auto* to = types.Data<int32_t>();
  std::fill_n(to, types.rows(), 0);  // also of padding
  for (size_t i = 0; i < layout.requests.size(); ++i) {
    const Row& row = rows_[static_cast<size_t>(Index(layout.requests[i].slot))];
    int64_t position = layout.requests[i].num_computed_tokens;
    for (int32_t t = layout.query_start[i]; t < layout.query_start[i + 1]; ++t, ++position) {
      to[t] = num_token_types_ > 1 && position >= row.second_begin ? 1 : 0;
    }
  }
}

void Pooler::Run(const StepLayout& layout, Model* model, ModelOutput* result) {
  const Tensor states = states_.view().Rows(0, layout.num_tokens());
  model->NormStates(states);
  if (!staging_.view().empty()) {
    backend_->device().CopyOut(staging_.view().Rows(0, layout.num_tokens()), states);
  }
  result->sampled_token_ids.assign(layout.requests.size(), kNoToken);
  const auto num_requests = static_cast<int64_t>(layout.requests.size());
  backend_->ParallelFor(num_requests, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto idx = static_cast<size_t>(i);
      results_[idx] = {};
      Take(layout, idx, &results_[idx]);
    }
  });
  for (size_t i = 0; i < layout.requests.size(); ++i) {
    if (!layout.requests[i].needs_sample) continue;
    results_[i].request_idx = static_cast<int32_t>(i);
    result->results.push_back(std::move(results_[i]));
  }
}

void Pooler::ReadState(int64_t token_row, std::vector<float>* state) const {
  state->resize(static_cast<size_t>(hidden_size_));
  ConvertTensor(Tensor(state->data(), DType::kF32, {1, hidden_size_}),
                host_states().Rows(token_row, 1));
}

void Pooler::Add(int64_t token_row, double weight, Row* row) const {
  thread_local std::vector<float> state;
  ReadState(token_row, &state);
  const bool is_max = config_.type == PoolingType::kMax;
  for (size_t i = 0; i < state.size(); ++i) {
    double& sum = row->sum[i];
    const auto number = static_cast<double>(state[i]);
    if (!is_max) {
      sum += weight * number;
    } else if (number > sum || std::isnan(number)) {  // a NaN stays
      sum = number;
    }
  }
}

void Pooler::AddTokenRows(int64_t begin, int64_t end, Row* row) const {
  std::vector<float> values;
  for (int64_t t = begin; t < end; ++t) {
    ReadState(t, &values);
    values = head_.Apply(std::move(values), row->dimensions, row->use_activation);
    row->token_rows.insert(row->token_rows.end(), values.begin(), values.end());
  }
}

std::vector<float> Pooler::PooledSum(int64_t num_tokens, const Row& row) const {
  const double divisor = DivisorOf(config_.type, static_cast<double>(num_tokens));
  std::vector<float> pooled(row.sum.size());
  for (size_t i = 0; i < pooled.size(); ++i) pooled[i] = static_cast<float>(row.sum[i] / divisor);
  return pooled;
}

void Pooler::AddPooledTokens(const ScheduledRequest& request, int64_t begin, int64_t end,
                             Row* row) const {
  switch (config_.type) {
    case PoolingType::kCls:
      if (request.num_computed_tokens == 0) Add(begin, 1, row);
      break;
    case PoolingType::kLast:
      if (request.needs_sample) Add(end - 1, 1, row);
      break;
    case PoolingType::kMean:
    case PoolingType::kMax:
    case PoolingType::kMeanSqrtLen:
      for (int64_t t = begin; t < end; ++t) Add(t, 1, row);
      break;
    case PoolingType::kWeightedMean:
      for (int64_t t = begin; t < end; ++t) {
        Add(t, static_cast<double>(request.num_computed_tokens + t - begin + 1), row);
      }
      break;
  }
}

void Pooler::Take(const StepLayout& layout, size_t request_idx, RequestResult* result) {
  const ScheduledRequest& request = layout.requests[request_idx];
  Row& row = rows_[static_cast<size_t>(Index(request.slot))];
  const int64_t begin = layout.query_start[request_idx], end = layout.query_start[request_idx + 1];
  const bool is_token_wise = IsTokenWise(config_.task);
  if (is_token_wise) {
    AddTokenRows(begin, end, &row);
  } else {
    AddPooledTokens(request, begin, end, &row);
  }
  if (!request.needs_sample) return;
  const int64_t num_tokens = layout.context_len[request_idx];
  PooledStates& states = result->pooled.emplace();
  if (is_token_wise) {
    states.num_rows = num_tokens;
    states.values = std::move(row.token_rows);
    states.num_columns = static_cast<int64_t>(states.values.size()) / num_tokens;
  } else {
    states.values = head_.Apply(PooledSum(num_tokens, row), row.dimensions, row.use_activation);
    states.num_columns = static_cast<int64_t>(states.values.size());
  }
  const auto num_nans = std::count_if(states.values.begin(), states.values.end(),
                                      [](float value) { return !std::isfinite(value); });
  if (num_nans == 0) return;
  result->pooled.reset();
  result->num_nans_in_logits = static_cast<int32_t>(num_nans);
  result->status = InternalError("the model made NaN or infinite values for this text");
}

}  // namespace tandem
