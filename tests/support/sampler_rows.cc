#include "tests/support/sampler_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "common/random.h"
#include "engine_core/sampling/row_math.h"
#include "tests/support/cuda_emulation/emulated_cuda_backend.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Bit by bit.
void ApplyMask(const SamplerCase& row, std::span<float> logits) {
  for (size_t i = 0; i < logits.size() && !row.token_mask.empty(); ++i) {
    if ((row.token_mask[i / 32] >> (i % 32) & 1) == 0) logits[i] = -kInfinity;
  }
}

// Where EmulatedSampler puts row i.
size_t SecondHalf(const std::vector<SamplerCase>& rows) {
  const size_t half = rows.size() / 2;
  return half < rows.size() && rows[half].draft_token_id >= 0 ? half : half + 1;
}
size_t PlaceOf(const std::vector<SamplerCase>& rows, size_t i) {
  const size_t half = rows.size() / 2;
  return i < half ? i : SecondHalf(rows) + i - half;
}

Sampled HostScore(const SamplerCase& row) {
  Sampled sampled;
  const auto count = static_cast<size_t>(row.config.num_prompt_logprobs) + 1;
  sampled.ids.resize(count);
  sampled.logprobs.resize(count);
  int64_t rank = 0;
  std::vector<TokenId> heap;
  FillTopLogprobs(row.logits, IsNormalized(row.config.logprobs_mode), row.scored_token_id,
                  {sampled.ids, sampled.logprobs, &rank}, &heap);
  sampled.token = {row.scored_token_id, 0, static_cast<int32_t>(rank),
                   row.config.num_prompt_logprobs};
  return sampled;
}

// The reported tokens that could be sampled.
std::vector<TokenId> KeptOf(const Sampled& sampled) {
  std::vector<TokenId> kept;
  for (size_t i = 0; i < sampled.ids.size(); ++i) {
    if (sampled.logprobs[i] > -kInfinity) kept.push_back(sampled.ids[i]);
  }
  return kept;
}

}  // namespace

Sampled HostSample(const SamplerCase& row) {
  if (row.scored_token_id >= 0) return HostScore(row);
  TokenCounts counts;
  counts.Reset(static_cast<int64_t>(row.logits.size()), 10'000);
  counts.AddPrompt(row.prompt_ids);
  for (const TokenId id : row.output_ids) counts.AddOutput(id);
  std::vector<float> logits = row.logits;
  Sampled sampled;
  SampleInput input;
  input.logits = logits;
  input.config = &row.config;
  input.counts = &counts;
  input.output_ids = row.output_ids;
  input.token_mask = row.token_mask;
  input.position = row.position;
  int64_t rank = 0;
  if (row.config.num_logprobs >= 0) {
    sampled.ids.resize(static_cast<size_t>(row.config.num_logprobs) + 1);
    sampled.logprobs.resize(sampled.ids.size());
    input.logprobs = {sampled.ids, sampled.logprobs, &rank};
  }
  SamplerScratch scratch;
  const SampleResult result = SampleToken(input, &scratch);
  sampled.token.token_id = result.status.ok() ? result.token_id : -1;
  sampled.token.num_nans = static_cast<int32_t>(result.num_nans);
  sampled.token.rank = static_cast<int32_t>(rank);
  return sampled;
}

EmulatedSampler::EmulatedSampler(int64_t vocab_size, int64_t num_slots)
    : vocab_size_(vocab_size),
      backend_(MakeEmulatedCudaBackend({.dtype = DType::kF32, .num_threads = 1}).value()),
      sampler_(backend_
                   ->MakeSampler({.num_slots = num_slots,
                                  .vocab_size = vocab_size,
                                  .max_logits_rows = num_slots + 1,
                                  .max_rows = num_slots + 2,
                                  .max_tokens = 10'000})
                   .value()) {}

void EmulatedSampler::Admit(int32_t slot, const SamplerCase& row) {
  std::vector<TokenId> tokens = row.prompt_ids;
  tokens.insert(tokens.end(), row.output_ids.begin(), row.output_ids.end());
  REQUIRE(FitsDeviceSampler(row.config));
  sampler_->Admit(slot, row.config, tokens, static_cast<int32_t>(row.prompt_ids.size()));
}

std::vector<Sampled> EmulatedSampler::Sample(const std::vector<SamplerCase>& rows,
                                             const std::vector<int32_t>& slots) {
  StartSample(rows, slots);
  return TakeSampled(rows);
}

void EmulatedSampler::StartSample(const std::vector<SamplerCase>& rows,
                                  const std::vector<int32_t>& slots) {
  const size_t num_places = rows.size() + 2;
  std::vector<float> all(num_places * static_cast<size_t>(vocab_size_));
  std::vector<SamplingRow> sampling_rows(num_places);
  const int64_t words = TokenMaskWords(vocab_size_);
  std::vector<int32_t> masks;
  int32_t max_logprobs = -1;
  for (size_t i = 0; i < rows.size(); ++i) {
    const size_t place = PlaceOf(rows, i);
    std::ranges::copy(rows[i].logits,
                      all.begin() + static_cast<std::ptrdiff_t>(place * rows[i].logits.size()));
    sampling_rows[place] = {.slot = slots[i],
                            .position = rows[i].position,
                            .num_outputs = static_cast<int32_t>(rows[i].output_ids.size()),
                            .scored_token_id = rows[i].scored_token_id,
                            .draft_token_id = rows[i].draft_token_id};
    if (!rows[i].token_mask.empty()) {
      sampling_rows[place].mask_row =
          static_cast<int32_t>(masks.size()) / static_cast<int32_t>(words);
      masks.insert(masks.end(), rows[i].token_mask.begin(), rows[i].token_mask.end());
    }
    max_logprobs =
        std::max({max_logprobs, rows[i].config.num_logprobs,
                  rows[i].scored_token_id < 0 ? -1 : rows[i].config.num_prompt_logprobs});
  }
  const auto count = static_cast<int64_t>(num_places),
             first = static_cast<int64_t>(SecondHalf(rows));
  OwnedTensor logits = Upload(*backend_, all, {count, vocab_size_}, DType::kF32);
  OwnedTensor numbers = *backend_->device().Allocate(DType::kI32, {count, kSamplingRowWidth});
  backend_->device().CopyIn(numbers,
                            Tensor(sampling_rows.data(), DType::kI32, {count, kSamplingRowWidth}));
  masks.resize(masks.size() + static_cast<size_t>(words));  // one that no row names
  const auto num_masks = static_cast<int64_t>(masks.size()) / words;
  OwnedTensor mask_memory = *backend_->device().Allocate(DType::kI32, {num_masks, words});
  backend_->device().CopyIn(mask_memory, View(masks, {num_masks, words}));
  // In two calls, as in a step whose logits are made in chunks.
  const Tensor &x = logits.view(), &places = numbers.view();
  sampler_->Sample(x.Rows(0, first), places.Rows(0, first), mask_memory, 0);
  sampler_->Sample(x.Rows(first, count - first), places.Rows(first, count - first), mask_memory,
                   first);
  sampler_->StartFetch(count, max_logprobs);
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].scored_token_id >= 0) continue;
    const size_t begin = PlaceOf(rows, i) * rows[i].logits.size();
    ApplyMask(rows[i], std::span(all).subspan(begin, rows[i].logits.size()));
  }
  // Checked in TakeSampled: here that would wait for the samples.
  started_.push_back(
      {std::move(logits), std::move(numbers), std::move(mask_memory), std::move(all)});
}

std::vector<Sampled> EmulatedSampler::TakeSampled(const std::vector<SamplerCase>& rows) {
  sampler_->TakeFetched();
  std::vector<Sampled> sampled;
  for (size_t i = 0; i < rows.size(); ++i) {
    Sampled& one = sampled.emplace_back();
    const auto place = static_cast<int64_t>(PlaceOf(rows, i));
    one.token = sampler_->sampled(place);
    if (one.token.num_logprobs < 0) continue;
    for (const TokenLogprob& logprob : sampler_->logprobs(place)) {
      one.ids.push_back(logprob.token_id);
      one.logprobs.push_back(logprob.logprob);
    }
  }
  const Started& started = started_.front();
  std::vector<float> after(started.logits_after.size());
  backend_->device().CopyOut(View(after, {started.logits.view().rows(), vocab_size_}),
                             started.logits);
  CHECK(SameBits(after, started.logits_after));
  started_.pop_front();
  return sampled;
}

std::vector<Sampled> EmulatedSampler::AdmitAndSample(const std::vector<SamplerCase>& rows) {
  std::vector<int32_t> slots(rows.size());
  std::iota(slots.begin(), slots.end(), 0);
  for (size_t i = 0; i < rows.size(); ++i) Admit(slots[i], rows[i]);
  return Sample(rows, slots);
}

std::vector<TokenId> EmulatedSampler::Filled(std::vector<TokenId> ids) {
  const auto count = static_cast<int64_t>(ids.size());
  const OwnedTensor memory = *backend_->device().Allocate(DType::kI32, {count});
  backend_->device().CopyIn(memory, Tensor(ids.data(), DType::kI32, {count}));
  sampler_->FillSampledTokens(memory);
  backend_->device().CopyOut(Tensor(ids.data(), DType::kI32, {count}), memory);
  return ids;
}

double DistanceToBoundary(const SamplerCase& row) {
  std::vector<float> logits = row.logits;
  ApplyMask(row, logits);
  TokenCounts counts;
  counts.Reset(static_cast<int64_t>(logits.size()), 10'000);
  counts.AddPrompt(row.prompt_ids);
  for (const TokenId id : row.output_ids) counts.AddOutput(id);
  SampleInput input;
  input.logits = logits;
  input.config = &row.config;
  input.counts = &counts;
  input.output_ids = row.output_ids;
  SamplerScratch scratch;
  ProcessLogits(input, &scratch);
  const DistributionLimits limits = LimitsOf(row.config, logits.size());
  std::vector<float> weights(logits.size());
  ExpScaled(logits, FindMax(logits).max, limits.temperature, weights);
  std::vector<size_t> order;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (weights[i] > 0 && weights[i] >= limits.min_p) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  if (limits.top_k > 0 && order.size() > static_cast<size_t>(limits.top_k)) {
    const float least = logits[order[static_cast<size_t>(limits.top_k) - 1]];
    std::erase_if(order, [&](size_t i) { return logits[i] < least; });
  }
  double total = 0, distance = 1;
  for (const size_t i : order) total += weights[i];
  if (limits.top_p < 1) {
    double before = 0;
    size_t kept = 0;
    for (; kept < order.size() && (kept == 0 || before < limits.top_p * total); ++kept) {
      distance = std::min(distance, std::abs(before / total - limits.top_p));
      before += weights[order[kept]];
    }
    distance = std::min(distance, std::abs(before / total - limits.top_p));
    order.resize(kept);
    total = before;
  }
  std::sort(order.begin(), order.end());
  const double uniform = UniformAt(row.config.seed, static_cast<uint64_t>(row.position));
  double sum = 0;
  for (const size_t i : order) {
    sum += weights[i];
    distance = std::min(distance, std::abs(sum / total - uniform));
  }
  return distance;
}

bool CheckSameSample(const SamplerCase& row, const Sampled& device, const Sampled& host) {
  CHECK(device.token.num_nans == host.token.num_nans);
  CHECK((device.token.token_id < 0) == (host.token.token_id < 0));
  if (device.token.token_id != host.token.token_id) {
    CAPTURE(device.token.token_id, host.token.token_id);
    CHECK_FALSE(row.config.is_greedy());
    CHECK(DistanceToBoundary(row) <= kDeviceShareError);
    return false;
  }
  if (host.token.token_id < 0) return true;
  if (IsProcessed(row.config.logprobs_mode) && KeptOf(device) != KeptOf(host)) {
    CHECK(DistanceToBoundary(row) <= kDeviceShareError);
    return false;
  }
  CHECK(device.token.rank == host.token.rank);
  CHECK(device.ids == host.ids);
  CHECK(device.logprobs.size() == host.logprobs.size());
  for (size_t i = 0; i < device.logprobs.size(); ++i) {
    if (device.logprobs[i] == host.logprobs[i]) continue;  // infinite ones as well
    CHECK(device.logprobs[i] == Approx(host.logprobs[i]).margin(1e-6).epsilon(1e-6));
  }
  return true;
}

std::vector<TokenId> RandomTokens(Draw& draw, int vocab, int count) {
  std::vector<TokenId> ids;
  for (int i = 0; i < count; ++i) ids.push_back(draw.Int(0, vocab - 1));
  return ids;
}

SamplerCase RandomCase(Draw& draw, int vocab) {
  SamplerCase row;
  SamplingConfig& config = row.config;
  config.temperature = OneOf(draw, {0.0f, 0.05f, 0.7f, 1.0f, 1.0f, 1.8f, 100.0f});
  config.top_k = OneOf(draw, {0, 0, 0, 1, 2, 7, 40, vocab / 2, vocab - 1, vocab, vocab + 3});
  config.top_p = OneOf(draw, {1.0f, 1.0f, 0.999f, 0.9f, 0.5f, 0.01f, 0.0f});
  config.min_p = OneOf(draw, {0.0f, 0.0f, 0.0f, 1e-6f, 0.02f, 0.3f, 1.0f});
  config.seed = static_cast<uint64_t>(draw.Int(0, 1 << 30)) << 20;
  config.num_logprobs = OneOf(draw, {-1, -1, 0, 1, 5, 20, kMaxDeviceLogprobs});
  config.num_logprobs = std::min(config.num_logprobs, vocab);
  config.logprobs_mode =
      OneOf(draw, {LogprobsMode::kRawLogprobs, LogprobsMode::kRawLogprobs, LogprobsMode::kRawLogits,
                   LogprobsMode::kProcessedLogprobs, LogprobsMode::kProcessedLogits});
  if (draw.Int(0, 5) == 0) {
    config.logprob_token_ids = RandomTokens(draw, vocab, draw.Int(1, 40));
    config.num_logprobs = static_cast<int32_t>(config.logprob_token_ids.size());
  }
  row.config.num_prompt_logprobs = std::min(OneOf(draw, {-1, 0, 3, kMaxDeviceLogprobs}), vocab);
  if (row.config.num_prompt_logprobs >= 0 && draw.Int(0, 2) == 0)
    row.scored_token_id = draw.Int(0, vocab - 1);
  row.position = draw.Int(0, 5000);
  row.prompt_ids = RandomTokens(draw, vocab, draw.Int(0, 50));
  row.output_ids = RandomTokens(draw, vocab, draw.Int(0, 20));
  if (draw.Int(0, 2) == 0) config.repetition_penalty = OneOf(draw, {0.8f, 1.3f});
  if (draw.Int(0, 2) == 0) config.frequency_penalty = OneOf(draw, {-0.5f, 0.7f});
  if (draw.Int(0, 2) == 0) config.presence_penalty = OneOf(draw, {-2.0f, 0.4f});
  if (draw.Int(0, 2) == 0) {
    config.min_tokens = draw.Int(0, 30);
    config.min_tokens_mask = RandomTokens(draw, vocab, draw.Int(1, 4));
  }
  if (draw.Int(0, 3) == 0) {
    for (int id = 0; id < vocab; ++id) {
      if (draw.Int(0, 3) == 0) config.allowed_token_ids.push_back(id);
    }
  }
  if (draw.Int(0, 3) == 0) {
    // Some words have begun.
    for (int i = draw.Int(1, 60); i > 0; --i) {
      const int num_begun = draw.Int(0, static_cast<int>(row.output_ids.size()));
      std::vector<TokenId>& word =
          config.bad_words.emplace_back(row.output_ids.end() - num_begun, row.output_ids.end());
      if (!word.empty() && draw.Int(0, 3) == 0) word[0] = draw.Int(0, vocab - 1);
      word.push_back(draw.Int(0, vocab - 1));
    }
  }
  if (draw.Int(0, 3) == 0) {
    const TokenId first = draw.Int(0, vocab - 1), last = std::min(vocab - 1, first + 300);
    for (TokenId id = first; id <= last; ++id) config.logit_bias.push_back({id, draw.Normal()});
  }
  // From flat to steep; some with many equals.
  const float scale = OneOf(draw, {0.0f, 0.01f, 1.0f, 3.0f, 10.0f, 1000.0f});
  const float step = OneOf(draw, {0.0f, 0.0f, 0.5f, 2.0f});
  for (int i = 0; i < vocab; ++i) {
    const float x = draw.Normal() * scale;
    row.logits.push_back(step > 0 ? std::round(x / step) * step : x);
  }
  return row;
}

}  // namespace tandem
