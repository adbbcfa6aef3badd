// Token masks in both samplers, the host's and the device's on an emulated device, against an
// oracle that follows the definitions: mask, raw logprobs, allowed ids, bad words, min tokens,
// bias, penalties, limits, draw.

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "common/random.h"
#include "tests/support/sampler_rows.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

bool Has(const std::vector<TokenId>& ids, TokenId id) {
  return std::ranges::find(ids, id) != ids.end();
}

bool Allows(const std::vector<int32_t>& mask, size_t id) {
  return mask.empty() || (mask[id / 32] >> (id % 32) & 1) != 0;
}

bool IsBadWordsEnd(const SamplerCase& row, TokenId id) {
  return std::ranges::any_of(row.config.bad_words, [&](const std::vector<TokenId>& word) {
    const std::vector<TokenId> begin(word.begin(), word.end() - 1);
    return word.back() == id && begin.size() <= row.output_ids.size() &&
           std::equal(begin.rbegin(), begin.rend(), row.output_ids.rbegin());
  });
}

// One token's logit from its mask to its penalties.
float Processed(const SamplerCase& row, TokenId id) {
  const SamplingConfig& config = row.config;
  float x = row.logits[static_cast<size_t>(id)];
  const bool is_banned =
      !Allows(row.token_mask, static_cast<size_t>(id)) ||
      (!config.allowed_token_ids.empty() && !Has(config.allowed_token_ids, id)) ||
      IsBadWordsEnd(row, id) ||
      (static_cast<int>(row.output_ids.size()) < config.min_tokens &&
       Has(config.min_tokens_mask, id));
  if (is_banned) return -kInfinity;
  for (const auto& [biased, bias] : config.logit_bias) x += biased == id ? bias : 0;
  const auto count = std::ranges::count(row.output_ids, id);
  if (count > 0 || Has(row.prompt_ids, id)) {
    x = x > 0 ? x / config.repetition_penalty : x * config.repetition_penalty;
  }
  if (count > 0) {
    x -= config.frequency_penalty * static_cast<float>(count) + config.presence_penalty;
  }
  return x;
}

// The tokens that min_p, top_k and top_p keep; -infinity for the others.
std::vector<float> Limited(const SamplerCase& row, std::vector<float> x) {
  const SamplingConfig& config = row.config;
  const float max = *std::ranges::max_element(x);
  const auto weight = [&](size_t i) { return std::exp((double{x[i]} - max) / config.temperature); };
  std::vector<size_t> order;
  for (size_t i = 0; i < x.size(); ++i) {
    if (x[i] > -kInfinity && weight(i) >= config.min_p) order.push_back(i);
  }
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return x[a] > x[b]; });
  if (config.top_k > 0 && static_cast<size_t>(config.top_k) < order.size()) {
    const float least = x[order[static_cast<size_t>(config.top_k) - 1]];
    std::erase_if(order, [&](size_t i) { return x[i] < least; });
  }
  double total = 0, before = 0;
  for (const size_t i : order) total += weight(i);
  size_t num_kept = 0;
  while (num_kept < order.size() &&
         (num_kept == 0 || config.top_p >= 1 || before < config.top_p * total)) {
    before += weight(order[num_kept++]);
  }
  std::vector<float> kept(x.size(), -kInfinity);
  for (size_t i = 0; i < num_kept; ++i) kept[order[i]] = x[order[i]];
  return kept;
}

TokenId DrawFrom(const SamplerCase& row, const std::vector<float>& x) {
  const float max = *std::ranges::max_element(x);
  std::vector<double> shares;
  for (const float value : x) {
    shares.push_back(std::exp((double{value} - max) / row.config.temperature));
  }
  std::partial_sum(shares.begin(), shares.end(), shares.begin());
  const double uniform = UniformAt(row.config.seed, static_cast<uint64_t>(row.position));
  return static_cast<TokenId>(std::ranges::upper_bound(shares, uniform * shares.back()) -
                              shares.begin());
}

// Logprobs of `token` and of the others that the request asks for.
void FillReported(const SamplerCase& row, const std::vector<float>& x, Sampled* sampled) {
  const auto token = static_cast<size_t>(sampled->token.token_id);
  sampled->ids = {sampled->token.token_id};
  if (!row.config.logprob_token_ids.empty()) {
    sampled->ids.insert(sampled->ids.end(), row.config.logprob_token_ids.begin(),
                        row.config.logprob_token_ids.end());
  } else {
    std::vector<TokenId> order(x.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, [&](TokenId a, TokenId b) {
      return x[static_cast<size_t>(a)] > x[static_cast<size_t>(b)];
    });
    sampled->ids.insert(sampled->ids.end(), order.begin(), order.begin() + row.config.num_logprobs);
  }
  double log_sum = 0;
  if (IsNormalized(row.config.logprobs_mode)) {
    const double max = *std::ranges::max_element(x);
    double sum = 0;
    for (const float value : x) sum += std::exp(value - max);
    log_sum = max + std::log(sum);
  }
  for (const TokenId id : sampled->ids) {
    sampled->logprobs.push_back(static_cast<float>(x[static_cast<size_t>(id)] - log_sum));
  }
  sampled->token.rank = static_cast<int32_t>(
      std::ranges::count_if(x, [&](float value) { return value >= x[token]; }));
}

Sampled OracleSample(const SamplerCase& row) {
  const SamplingConfig& config = row.config;
  Sampled sampled;
  sampled.token.token_id = -1;
  std::vector<float> raw = row.logits, x;
  for (size_t i = 0; i < raw.size(); ++i) {
    if (!Allows(row.token_mask, i)) raw[i] = -kInfinity;
    x.push_back(Processed(row, static_cast<TokenId>(i)));
  }
  const auto best = std::ranges::max_element(x);
  if (*best == -kInfinity) return sampled;
  if (config.is_greedy()) {
    sampled.token.token_id = static_cast<TokenId>(best - x.begin());
  } else {
    x = Limited(row, x);
    sampled.token.token_id = DrawFrom(row, x);
    for (float& value : x) value /= config.temperature;
  }
  if (config.num_logprobs >= 0) {
    FillReported(row, IsProcessed(config.logprobs_mode) ? x : raw, &sampled);
  }
  return sampled;
}

// Bits beyond the vocabulary are set or not: they allow nothing.
std::vector<int32_t> RandomMask(Draw& draw, int vocab) {
  std::vector<int32_t> mask(static_cast<size_t>(TokenMaskWords(vocab)));
  const int percent = OneOf(draw, {0, 1, 10, 50, 99, 100});
  for (int i = 0; i < static_cast<int>(mask.size()) * 32; ++i) {
    if (draw.Int(0, 99) < percent) mask[static_cast<size_t>(i / 32)] |= 1 << (i % 32);
  }
  const int sure = draw.Int(0, vocab - 1);
  if (draw.Int(0, 9) > 0) mask[static_cast<size_t>(sure / 32)] |= 1 << (sure % 32);
  return mask;
}

// Far from the tails in which the host's weights are 0.
SamplerCase RandomMaskedCase(Draw& draw, int vocab) {
  SamplerCase row = RandomCase(draw, vocab);
  row.scored_token_id = -1;
  row.config.temperature = OneOf(draw, {0.0f, 0.7f, 1.0f, 1.8f});
  for (float& x : row.logits) x = 2 * draw.Normal();
  row.token_mask = RandomMask(draw, vocab);
  if (!row.config.allowed_token_ids.empty()) row.config.allowed_token_ids.push_back(vocab - 1);
  return row;
}

TEST_CASE("token masks: both samplers agree with an oracle over random masks") {
  int num_rows = 0, num_boundaries = 0, num_failed = 0;
  uint64_t seed = 1;
  for (const int vocab : {1, 31, 32, 33, 257, 1000, 3001}) {
    EmulatedSampler device(vocab, 12);
    for (int round = 0; round < (vocab < 2000 ? 6 : 3); ++round, ++seed) {
      Draw draw(seed);
      std::vector<SamplerCase> rows;
      for (int i = 0; i < 12; ++i) rows.push_back(RandomMaskedCase(draw, vocab));
      const std::vector<Sampled> sampled = device.AdmitAndSample(rows);
      for (size_t i = 0; i < rows.size(); ++i) {
        const SamplingConfig& config = rows[i].config;
        CAPTURE(seed, vocab, i, config.temperature, config.top_k, config.top_p, config.min_p,
                config.num_logprobs, static_cast<int>(config.logprobs_mode));
        const Sampled expected = OracleSample(rows[i]);
        num_boundaries += CheckSameSample(rows[i], sampled[i], expected) ? 0 : 1;
        num_boundaries += CheckSameSample(rows[i], HostSample(rows[i]), expected) ? 0 : 1;
        num_failed += expected.token.token_id < 0 ? 1 : 0;
        ++num_rows;
      }
    }
  }
  CAPTURE(num_rows);
  CHECK(num_boundaries <= num_rows / 100);
  CHECK(num_failed > 10);
  CHECK(num_failed < num_rows / 2);
}

TEST_CASE("token masks: all ones give the bits of no mask") {
  Draw draw(3);
  constexpr int kVocab = 1003;
  EmulatedSampler device(kVocab, 8);
  std::vector<SamplerCase> rows, masked;
  for (int i = 0; i < 8; ++i) {
    rows.push_back(RandomCase(draw, kVocab));
    masked.push_back(rows.back());
    masked.back().token_mask.assign(static_cast<size_t>(TokenMaskWords(kVocab)), -1);
  }
  const std::vector<Sampled> expected = device.AdmitAndSample(rows);
  const std::vector<Sampled> sampled = device.AdmitAndSample(masked);
  for (size_t i = 0; i < rows.size(); ++i) {
    CAPTURE(i);
    CHECK(sampled[i].token.token_id == expected[i].token.token_id);
    CHECK(sampled[i].ids == expected[i].ids);
    CHECK(SameBits(sampled[i].logprobs, expected[i].logprobs));
    const Sampled host = HostSample(rows[i]), host_masked = HostSample(masked[i]);
    CHECK(host_masked.token.token_id == host.token.token_id);
    CHECK(SameBits(host_masked.logprobs, host.logprobs));
  }
}

TEST_CASE("token masks: a row without an allowed token, or with NaN under its mask, fails alone") {
  Draw draw(4);
  constexpr int kVocab = 300;
  std::vector<SamplerCase> rows;
  for (int i = 0; i < 4; ++i) {
    SamplerCase& row = rows.emplace_back();
    for (int id = 0; id < kVocab; ++id) row.logits.push_back(draw.Normal());
    row.config.num_logprobs = i - 1;
    row.token_mask.assign(static_cast<size_t>(TokenMaskWords(kVocab)), 0);
  }
  rows[0].config.logit_bias = {{7, 100.0f}};
  rows[1].token_mask[2] = 1 << 5;
  rows[2].token_mask[0] = -1;
  rows[2].logits[299] = std::numeric_limits<float>::quiet_NaN();
  rows[3].token_mask[0] = 1 << 31;
  EmulatedSampler device(kVocab, 4);
  const std::vector<Sampled> sampled = device.AdmitAndSample(rows);
  for (const Sampled& failed : {sampled[0], HostSample(rows[0])}) {
    CHECK(failed.token.token_id < 0);
    CHECK(failed.token.num_nans == 0);
  }
  for (const Sampled& failed : {sampled[2], HostSample(rows[2])}) {
    CHECK(failed.token.token_id < 0);
    CHECK(failed.token.num_nans == 1);
  }
  for (const Sampled& only : {sampled[1], HostSample(rows[1])}) {
    CHECK(only.token.token_id == 69);
    CHECK(only.logprobs == std::vector<float>{0});  // nothing else is possible
  }
  for (const Sampled& only : {sampled[3], HostSample(rows[3])}) CHECK(only.token.token_id == 31);
}

TEST_CASE("token masks: a scored token has the logprobs of the whole row") {
  Draw draw(5);
  constexpr int kVocab = 100;
  SamplerCase row;
  for (int id = 0; id < kVocab; ++id) row.logits.push_back(draw.Normal());
  row.scored_token_id = 40;
  row.config.num_prompt_logprobs = 3;
  EmulatedSampler device(kVocab, 1);
  const Sampled expected = device.AdmitAndSample({row})[0];
  row.token_mask.assign(static_cast<size_t>(TokenMaskWords(kVocab)), 0);
  const Sampled scored = device.AdmitAndSample({row})[0];
  CHECK(scored.ids == expected.ids);
  CHECK(SameBits(scored.logprobs, expected.logprobs));
}

}  // namespace
}  // namespace tandem
