#include "engine_core/models/rope_table.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <span>

#include "engine_core/models/rotation.h"

namespace tandem {
namespace {

constexpr double kTwoPi = 2 * std::numbers::pi;

// Divides the frequency of long waves by the factor, keeps short ones and blends those between.
double Llama3(const RopeConfig& rope, double frequency) {
  const double context = static_cast<double>(rope.original_max_position_embeddings);
  const double turns = context * frequency / kTwoPi;  // over the original context
  if (turns < rope.low_freq_factor) return frequency / rope.factor;
  // Equal factors leave no band between them.
  if (turns >= rope.high_freq_factor) return frequency;
  const double kept =
      (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
  return (1 - kept) * frequency / rope.factor + kept * frequency;
}

// The (fractional) pair that makes `turns` full turns over the original context.
double YarnPair(const RopeConfig& rope, double turns, double head_dim) {
  const double context = static_cast<double>(rope.original_max_position_embeddings);
  return head_dim * std::log(context / (turns * kTwoPi)) / (2 * std::log(rope.theta));
}

// Pairs up to `low` keep their frequency, pairs from `high` on are interpolated, with a ramp
// between.
double Yarn(const RopeConfig& rope, double frequency, double pair, double head_dim) {
  double low = YarnPair(rope, rope.beta_fast, head_dim);
  double high = YarnPair(rope, rope.beta_slow, head_dim);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, head_dim - 1);
  if (low == high) high += 0.001;
  const double interpolated = std::clamp((pair - low) / (high - low), 0.0, 1.0);
  return interpolated * frequency / rope.factor + (1 - interpolated) * frequency;
}

// LongRoPE's choice, once for all positions: a query rotated by one list cannot attend to keys
// rotated by the other.
bool IsLong(const RopeConfig& rope, int64_t max_positions) {
  return max_positions > rope.original_max_position_embeddings;
}

double AttentionFactor(const RopeConfig& rope, int64_t max_positions) {
  if (rope.type != RopeType::kLongRope) return rope.attention_factor;
  const auto& own =
      IsLong(rope, max_positions) ? rope.long_attention_factor : rope.short_attention_factor;
  return own.value_or(rope.attention_factor);
}

// `factors` are for LongRoPE.
double Scaled(const RopeConfig& rope, std::span<const double> factors, double frequency,
              double pair, double head_dim) {
  switch (rope.type) {
    case RopeType::kDefault:
    case RopeType::kDynamic:
      return frequency;
    case RopeType::kLinear:
      return frequency / rope.factor;
    case RopeType::kLlama3:
      return Llama3(rope, frequency);
    case RopeType::kYarn:
      return Yarn(rope, frequency, pair, head_dim);
    case RopeType::kProportional:
      return pair < std::floor(rope.turning_part * head_dim / 2) ? frequency / rope.factor : 0;
    case RopeType::kLongRope:
      return frequency / factors[static_cast<size_t>(pair)];
  }
  return frequency;
}

}  // namespace

std::vector<float> RopeFrequencies(const RopeConfig& rope, int64_t head_dim,
                                   int64_t max_positions) {
  const auto& factors = IsLong(rope, max_positions) ? rope.long_factor : rope.short_factor;
  std::vector<float> frequencies;
  const double dim = static_cast<double>(head_dim);
  for (int64_t pair = 0; pair < head_dim / 2; ++pair) {
    const double i = static_cast<double>(pair);
    const double frequency = std::pow(rope.theta, -2 * i / dim);
    frequencies.push_back(static_cast<float>(Scaled(rope, factors, frequency, i, dim)));
  }
  return frequencies;
}

RopeTable MakeRopeTable(const RopeConfig& rope, int64_t head_dim, int64_t max_positions,
                        BorrowedFunction<int64_t, RangeFunction> run) {
  const std::vector<float> frequencies = RopeFrequencies(rope, head_dim, max_positions);
  const auto attention_factor = static_cast<float>(AttentionFactor(rope, max_positions));
  RopeTable table;
  table.cos.resize(static_cast<size_t>(max_positions) * frequencies.size());
  table.sin.resize(table.cos.size());
  run(max_positions, [&](int64_t begin, int64_t end) {
    size_t i = static_cast<size_t>(begin) * frequencies.size();
    for (int64_t position = begin; position < end; ++position) {
      for (const float frequency : frequencies) {
        // The angle is rounded to float, as in the code that trained the models.
        const Rotation rotation = RotationBy(static_cast<float>(position) * frequency);
        table.cos[i] = rotation.cos * attention_factor;
        table.sin[i++] = rotation.sin * attention_factor;
      }
    }
  });
  return table;
}

std::vector<float> QueryScales(double beta, double length, int64_t shift, int64_t max_positions) {
  std::vector<float> scales;
  for (int64_t position = 0; position < max_positions; ++position) {
    const double lengths = std::floor(static_cast<double>(position + shift) / length);
    scales.push_back(static_cast<float>(1 + beta * std::log1p(lengths)));
  }
  return scales;
}

}  // namespace tandem
