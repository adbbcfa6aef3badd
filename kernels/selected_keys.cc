#include "kernels/selected_keys.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

namespace tandem {

TokenOfRun TokenOfRow(const AttentionPlan& plan, int64_t row) {
  const auto sequences = plan.sequences();
  const auto next = std::upper_bound(
      sequences.begin(), sequences.end(), row,
      [](int64_t r, const BatchSequence& sequence) { return r < sequence.first_token; });
  CHECK(next != sequences.begin()) << row;
  return {*std::prev(next), row};
}

std::span<int32_t> ChosenOf(const Tensor& selected, int64_t row) {
  return {selected.Row<int32_t>(row), static_cast<size_t>(selected.shape[1])};
}

std::span<const int32_t> Chosen(std::span<const int32_t> row) {
  return {row.begin(), std::find(row.begin(), row.end(), -1)};
}

bool ChooseAll(const TokenOfRun& token, std::span<int32_t> chosen) {
  const int32_t num_keys = token.num_keys();
  if (num_keys > std::ssize(chosen)) return false;
  std::iota(chosen.begin(), chosen.begin() + num_keys, 0);
  std::fill(chosen.begin() + num_keys, chosen.end(), -1);
  return true;
}

void ChooseBest(float* scores, int32_t num_keys, int32_t* order, std::span<int32_t> chosen) {
  std::replace_if(
      scores, scores + num_keys, [](float score) { return std::isnan(score); }, -INFINITY);
  std::iota(order, order + num_keys, 0);
  int32_t* const end = order + std::ssize(chosen);
  std::nth_element(order, end, order + num_keys, [&](int32_t a, int32_t b) {
    return scores[a] != scores[b] ? scores[a] > scores[b] : a < b;
  });
  std::sort(order, end);
  std::copy(order, end, chosen.begin());
}

}  // namespace tandem
