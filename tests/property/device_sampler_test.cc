// Tokens sampled by the kernels of kernels/cuda on an emulated device, compared with the host's
// sampler and with the golden distributions. Where the two samplers differ, the random number or
// top_p must lie on a boundary, within the bound that kernels/device_sampler.h states.

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <numeric>

#include "common/random.h"
#include "engine_core/sampling/row_math.h"
#include "engine_core/sampling/sampler.h"
#include "tests/support/cuda_emulation/emulated_cuda_backend.h"
#include "tests/support/kernels/kernel_cases.h"
#include "tests/support/sampling_goldens.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// A request of which one token is sampled, or scored.
struct Row {
  SamplingConfig config;
  TokenId scored_token_id = -1;
  std::vector<TokenId> prompt_ids, output_ids;
  std::vector<float> logits;
  int32_t position = 0;
};

struct Sampled {
  SampledToken token;
  std::vector<TokenId> ids;
  std::vector<float> logprobs;
};

Sampled HostScore(const Row& row) {
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

Sampled HostSample(const Row& row) {
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

// A sampler on an emulated device, and what goes in and out of it.
class Device {
 public:
  Device(int64_t vocab_size, int64_t num_slots)
      : vocab_size_(vocab_size),
        backend_(MakeEmulatedCudaBackend({.dtype = DType::kF32, .num_threads = 1}).value()),
        sampler_(backend_
                     ->MakeSampler({.num_slots = num_slots,
                                    .vocab_size = vocab_size,
                                    .max_logits_rows = num_slots + 1,
                                    .max_rows = num_slots + 2,
                                    .max_tokens = 10'000})
                     .value()) {}

  void Admit(int32_t slot, const Row& row) {
    std::vector<TokenId> tokens = row.prompt_ids;
    tokens.insert(tokens.end(), row.output_ids.begin(), row.output_ids.end());
    REQUIRE(FitsDeviceSampler(row.config));
    sampler_->Admit(slot, row.config, tokens, static_cast<int32_t>(row.prompt_ids.size()));
  }

  // Row i of the batch is in slot slots[i]; each half of the rows is followed by an unused one.
  std::vector<Sampled> Sample(const std::vector<Row>& rows, const std::vector<int32_t>& slots) {
    StartSample(rows, slots);
    return TakeSampled(rows);
  }

  // TakeSampled returns the results, of the oldest first.
  void StartSample(const std::vector<Row>& rows, const std::vector<int32_t>& slots) {
    const size_t half = rows.size() / 2, num_places = rows.size() + 2;
    std::vector<float> all(num_places * static_cast<size_t>(vocab_size_));
    std::vector<SamplingRow> sampling_rows(num_places);
    int32_t max_logprobs = -1;
    for (size_t i = 0; i < rows.size(); ++i) {
      const size_t place = PlaceOf(i, half);
      std::ranges::copy(rows[i].logits,
                        all.begin() + static_cast<std::ptrdiff_t>(place * rows[i].logits.size()));
      sampling_rows[place] = {.slot = slots[i],
                              .position = rows[i].position,
                              .num_outputs = static_cast<int32_t>(rows[i].output_ids.size()),
                              .scored_token_id = rows[i].scored_token_id};
      max_logprobs =
          std::max({max_logprobs, rows[i].config.num_logprobs,
                    rows[i].scored_token_id < 0 ? -1 : rows[i].config.num_prompt_logprobs});
    }
    const auto count = static_cast<int64_t>(num_places), first = static_cast<int64_t>(half + 1);
    OwnedTensor logits = Upload(*backend_, all, {count, vocab_size_}, DType::kF32);
    OwnedTensor numbers = *backend_->device().Allocate(DType::kI32, {count, kSamplingRowWidth});
    backend_->device().CopyIn(
        numbers, Tensor(sampling_rows.data(), DType::kI32, {count, kSamplingRowWidth}));
    // In two calls, as in a step whose logits are made in chunks.
    const Tensor &x = logits.view(), &places = numbers.view();
    sampler_->Sample(x.Rows(0, first), places.Rows(0, first), 0);
    sampler_->Sample(x.Rows(first, count - first), places.Rows(first, count - first), first);
    sampler_->StartFetch(count, max_logprobs);
    // Checking them now would wait for the samples.
    started_.push_back({std::move(logits), std::move(numbers), std::move(all)});
  }

  std::vector<Sampled> TakeSampled(const std::vector<Row>& rows) {
    sampler_->TakeFetched();
    std::vector<Sampled> sampled;
    for (size_t i = 0; i < rows.size(); ++i) {
      Sampled& one = sampled.emplace_back();
      const auto place = static_cast<int64_t>(PlaceOf(i, rows.size() / 2));
      one.token = sampler_->sampled(place);
      if (one.token.num_logprobs < 0) continue;
      for (const TokenLogprob& logprob : sampler_->logprobs(place)) {
        one.ids.push_back(logprob.token_id);
        one.logprobs.push_back(logprob.logprob);
      }
    }
    const Started& started = started_.front();
    std::vector<float> after(started.all.size());
    backend_->device().CopyOut(View(after, {started.logits.view().rows(), vocab_size_}),
                               started.logits);
    CHECK(SameBits(after, started.all));
    started_.pop_front();
    return sampled;
  }

  // Row i in slot i.
  std::vector<Sampled> AdmitAndSample(const std::vector<Row>& rows) {
    std::vector<int32_t> slots(rows.size());
    std::iota(slots.begin(), slots.end(), 0);
    for (size_t i = 0; i < rows.size(); ++i) Admit(slots[i], rows[i]);
    return Sample(rows, slots);
  }

  std::vector<TokenId> Filled(std::vector<TokenId> ids) {
    const auto count = static_cast<int64_t>(ids.size());
    const OwnedTensor memory = *backend_->device().Allocate(DType::kI32, {count});
    backend_->device().CopyIn(memory, Tensor(ids.data(), DType::kI32, {count}));
    sampler_->FillSampledTokens(memory);
    backend_->device().CopyOut(Tensor(ids.data(), DType::kI32, {count}), memory);
    return ids;
  }

 private:
  // The rows of one call, which must not change.
  struct Started {
    OwnedTensor logits, numbers;
    std::vector<float> all;
  };

  static size_t PlaceOf(size_t i, size_t half) { return i < half ? i : i + 1; }

  int64_t vocab_size_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<DeviceSampler> sampler_;
  std::deque<Started> started_;
};

// How far, as a share of the mass, the random number is from the nearest border between tokens, or
// top_p from the nearest border of a nucleus. From the definitions, over sorted tokens.
double DistanceToBoundary(const Row& row) {
  std::vector<float> logits = row.logits;
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

// The reported tokens that could be sampled.
std::vector<TokenId> KeptOf(const Sampled& sampled) {
  std::vector<TokenId> kept;
  for (size_t i = 0; i < sampled.ids.size(); ++i) {
    if (sampled.logprobs[i] > -kInfinity) kept.push_back(sampled.ids[i]);
  }
  return kept;
}

// Equal tokens, or a boundary; equal logprobs where the tokens are. False: a boundary.
bool CheckEqual(const Row& row, const Sampled& device, const Sampled& host) {
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

template <class T>
T OneOf(Draw& draw, std::initializer_list<T> values) {
  return values.begin()[draw.Int(0, static_cast<int>(values.size()) - 1)];
}

std::vector<TokenId> Tokens(Draw& draw, int vocab, int count) {
  std::vector<TokenId> ids;
  for (int i = 0; i < count; ++i) ids.push_back(draw.Int(0, vocab - 1));
  return ids;
}

Row RandomRow(Draw& draw, int vocab) {
  Row row;
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
    config.logprob_token_ids = Tokens(draw, vocab, draw.Int(1, 40));
    config.num_logprobs = static_cast<int32_t>(config.logprob_token_ids.size());
  }
  row.config.num_prompt_logprobs = std::min(OneOf(draw, {-1, 0, 3, kMaxDeviceLogprobs}), vocab);
  if (row.config.num_prompt_logprobs >= 0 && draw.Int(0, 2) == 0)
    row.scored_token_id = draw.Int(0, vocab - 1);
  row.position = draw.Int(0, 5000);
  row.prompt_ids = Tokens(draw, vocab, draw.Int(0, 50));
  row.output_ids = Tokens(draw, vocab, draw.Int(0, 20));
  if (draw.Int(0, 2) == 0) config.repetition_penalty = OneOf(draw, {0.8f, 1.3f});
  if (draw.Int(0, 2) == 0) config.frequency_penalty = OneOf(draw, {-0.5f, 0.7f});
  if (draw.Int(0, 2) == 0) config.presence_penalty = OneOf(draw, {-2.0f, 0.4f});
  if (draw.Int(0, 2) == 0) {
    config.min_tokens = draw.Int(0, 30);
    config.min_tokens_mask = Tokens(draw, vocab, draw.Int(1, 4));
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

TEST_CASE("device sampler: random requests get the tokens and logprobs of the host's sampler") {
  int num_rows = 0, num_boundaries = 0;
  uint64_t seed = 1;
  for (const int vocab : {1, 2, 31, 33, 257, 1000, 1024, 3001, 4099}) {
    Device device(vocab, 12);
    for (int round = 0; round < (vocab < 2000 ? 6 : 4); ++round, ++seed) {
      Draw draw(seed);
      std::vector<Row> rows;
      for (int i = 0; i < 12; ++i) rows.push_back(RandomRow(draw, vocab));
      const std::vector<Sampled> sampled = device.AdmitAndSample(rows);
      for (size_t i = 0; i < rows.size(); ++i) {
        const SamplingConfig& config = rows[i].config;
        CAPTURE(seed, vocab, i, config.temperature, config.top_k, config.top_p, config.min_p,
                config.num_logprobs);
        num_boundaries += CheckEqual(rows[i], sampled[i], HostSample(rows[i])) ? 0 : 1;
        ++num_rows;
      }
    }
  }
  CAPTURE(num_rows);
  CHECK(num_boundaries <= num_rows / 200);
}

// Far more tokens than a block's candidates, evenly spread or crowded in one place, so that the row
// itself is searched.
TEST_CASE("device sampler: limits beyond the gathered candidates") {
  constexpr int kVocab = 9'001;
  Draw draw(77);
  Device device(kVocab, 16);
  std::vector<Row> rows;
  for (int i = 0; i < 16; ++i) {
    Row& row = rows.emplace_back();
    row.config.seed = static_cast<uint64_t>(i);
    row.position = i;
    row.config.num_logprobs = i % 2 == 0 ? 20 : -1;
    if (i % 4 == 0) row.config.top_p = 0.97f;
    if (i % 4 == 1) row.config.top_k = 6000;
    if (i % 4 == 2) row.config.min_p = 1e-9f;
    if (i % 4 == 3) row.config.top_p = 0.5f, row.config.top_k = 8000;
    for (int id = 0; id < kVocab; ++id) {
      const float x = draw.Normal() * (i < 8 ? 0.5f : 4.0f);
      row.logits.push_back(i % 8 < 6 ? x : id < 400 ? 10 + x * 0.01f : -5 + x * 0.01f);
    }
  }
  const std::vector<Sampled> sampled = device.AdmitAndSample(rows);
  for (size_t i = 0; i < rows.size(); ++i) {
    CAPTURE(i);
    CheckEqual(rows[i], sampled[i], HostSample(rows[i]));
  }
}

TEST_CASE("device sampler: a row has the same sample in any batch, slot and place") {
  Draw draw(5);
  constexpr int kVocab = 501;
  std::vector<Row> rows;
  for (int i = 0; i < 6; ++i) rows.push_back(RandomRow(draw, kVocab));
  Device device(kVocab, 8);
  const std::vector<Sampled> together = device.AdmitAndSample(rows);
  for (size_t i = 0; i < rows.size(); ++i) {
    CAPTURE(i);
    const int32_t slot = static_cast<int32_t>(7 - i);
    device.Admit(slot, rows[i]);
    const Sampled alone = device.Sample({rows[i]}, {slot})[0];
    CHECK(alone.token.token_id == together[i].token.token_id);
    CHECK(alone.token.rank == together[i].token.rank);
    CHECK(alone.ids == together[i].ids);
    CHECK(SameBits(alone.logprobs, together[i].logprobs));
  }
}

TEST_CASE("device sampler: ids below zero become the tokens that their slots sampled last") {
  Draw draw(6);
  constexpr int kVocab = 77;
  std::vector<Row> rows;
  for (int i = 0; i < 3; ++i) {
    rows.push_back(RandomRow(draw, kVocab));
    rows.back().config.allowed_token_ids.clear();
    rows.back().config.bad_words.clear();
    rows.back().scored_token_id = -1;
  }
  rows[2].logits[5] = kInfinity;
  Device device(kVocab, 3);
  const std::vector<Sampled> sampled = device.AdmitAndSample(rows);
  const TokenId first = sampled[0].token.token_id, second = sampled[1].token.token_id;
  CHECK(device.Filled({40, ~1, 0, ~0, ~0, 76}) ==
        std::vector<TokenId>{40, second, 0, first, first, 76});
  CHECK(device.Filled({~2}) == std::vector<TokenId>{0});  // some token
  rows[0].scored_token_id = (first + 1) % kVocab;
  rows[0].config.num_prompt_logprobs = 2;
  device.Admit(0, rows[0]);
  device.Sample({rows[0]}, {0});
  CHECK(device.Filled({~0}) == std::vector<TokenId>{first});  // it was scored, not sampled
}

TEST_CASE("device sampler: two steps are in flight before the first is read") {
  Draw draw(8);
  constexpr int kVocab = 205;
  Device device(kVocab, 4);
  std::vector<std::vector<Row>> steps;
  const std::vector<int32_t> slots = {0, 1, 2, 3};
  for (int step = 0; step < 5; ++step) {
    std::vector<Row>& rows = steps.emplace_back();
    for (int i = 0; i < 4; ++i) {
      rows.push_back(RandomRow(draw, kVocab));
      device.Admit(i, rows.back());
    }
    device.StartSample(rows, slots);
    if (step == 0) continue;
    const std::vector<Row>& before = steps[static_cast<size_t>(step) - 1];
    const std::vector<Sampled> sampled = device.TakeSampled(before);
    for (size_t i = 0; i < before.size(); ++i) {
      CAPTURE(step, i);
      CheckEqual(before[i], sampled[i], HostSample(before[i]));
    }
  }
}

TEST_CASE("device sampler: logprobs of the sampled tokens alone") {
  Draw draw(13);
  std::vector<Row> rows;
  for (int i = 0; i < 4; ++i) {
    Row& row = rows.emplace_back();
    row.config.num_logprobs = i == 2 ? -1 : 0;
    row.position = i;
    for (int id = 0; id < 50; ++id) row.logits.push_back(draw.Normal());
  }
  Device device(50, 4);
  const std::vector<Sampled> sampled = device.AdmitAndSample(rows);
  for (size_t i = 0; i < rows.size(); ++i) {
    CAPTURE(i);
    CHECK(sampled[i].ids.size() == (i == 2 ? 0 : 1));
    CheckEqual(rows[i], sampled[i], HostSample(rows[i]));
  }
}

TEST_CASE("device sampler: more admissions between two steps than fit the staging memory") {
  Draw draw(14);
  constexpr int kVocab = 2048;  // of which each can have a bias
  std::vector<Row> rows;
  for (int i = 0; i < 2; ++i) {
    Row& row = rows.emplace_back();
    row.config.temperature = 0;
    row.logits.assign(kVocab, 0);
    for (TokenId id = 0; id < kVocab; ++id) row.config.logit_bias.push_back({id, draw.Normal()});
  }
  Device device(kVocab, 2);
  device.Admit(0, rows[0]);
  for (int i = 0; i < 300; ++i) device.Admit(1, rows[1]);
  const std::vector<Sampled> sampled = device.Sample(rows, {0, 1});
  for (size_t i = 0; i < rows.size(); ++i) {
    CAPTURE(i);
    CheckEqual(rows[i], sampled[i], HostSample(rows[i]));
  }
}

TEST_CASE(
    "device sampler: a bad word is banned where all but its last token are the latest outputs") {
  Draw draw(10);
  constexpr int kVocab = 61;
  constexpr auto kLongest = static_cast<int>(kMaxDeviceWordTokens);
  for (const int num_outputs : {0, 1, kLongest - 2, kLongest - 1, kLongest, kLongest + 40, 700}) {
    CAPTURE(num_outputs);
    Row row;
    row.config.temperature = 0;
    for (int i = 0; i < kVocab; ++i) row.logits.push_back(draw.Normal());
    const auto best =
        static_cast<TokenId>(std::ranges::max_element(row.logits) - row.logits.begin());
    row.output_ids = Tokens(draw, kVocab, num_outputs);
    row.position = num_outputs;
    Device device(kVocab, 2);
    for (const int length : {1, 2, 3, 30, kLongest}) {
      for (const bool is_begun : {true, false}) {
        CAPTURE(length, is_begun);
        const int num_before = std::min(length - 1, num_outputs);
        std::vector<TokenId> word(row.output_ids.end() - num_before, row.output_ids.end());
        word.insert(word.begin(), static_cast<size_t>(length - 1 - num_before), 7);
        if (!is_begun && length > 1) word[0] = (word[0] + 1) % kVocab;
        word.push_back(best);
        row.config.bad_words = {{(best + 1) % kVocab, 3}, word};
        const TokenId token = device.AdmitAndSample({row})[0].token.token_id;
        CHECK(token == HostSample(row).token.token_id);
        const bool is_banned = length == 1 || (is_begun && length - 1 <= num_outputs);
        CHECK((token != best) == is_banned);
      }
    }
  }
}

TEST_CASE(
    "device sampler: sampled tokens count for the next step's penalties, bans and min tokens") {
  Draw draw(9);
  constexpr int kVocab = 97;
  Row row;
  row.config.temperature = 0;
  row.config.repetition_penalty = 1.2f;
  row.config.frequency_penalty = 0.3f;
  row.config.presence_penalty = 0.2f;
  row.config.min_tokens = 5;
  for (int i = 0; i < kVocab; ++i) row.logits.push_back(draw.Normal());
  const auto best = static_cast<TokenId>(std::ranges::max_element(row.logits) - row.logits.begin());
  row.config.min_tokens_mask = {best};
  row.config.bad_words = {{best, best}, {best, best, 3}};
  row.prompt_ids = Tokens(draw, kVocab, 20);
  Device device(kVocab, 3);
  device.Admit(1, row);
  for (int step = 0; step < 12; ++step) {
    CAPTURE(step);
    if (step == 7) device.Admit(2, row);  // as after a preemption
    const int32_t slot = step < 7 ? 1 : 2;
    const TokenId token = device.Sample({row}, {slot})[0].token.token_id;
    CHECK(token == HostSample(row).token.token_id);
    row.output_ids.push_back(token);
  }
  CHECK(std::ranges::count(row.output_ids, row.config.min_tokens_mask[0]) > 0);
  std::ranges::sort(row.output_ids);
  CHECK(std::ranges::unique(row.output_ids).size() < row.output_ids.size() - 3);
}

TEST_CASE("device sampler: a bad word is banned once tokens sampled one after another begin it") {
  Draw draw(12);
  constexpr int kVocab = 61, kSecond = 60;
  const auto best_at = [](int step) { return static_cast<TokenId>(7 * step % kVocab); };
  Row row;
  row.config.temperature = 0;
  row.config.bad_words = {{best_at(2), best_at(3), best_at(4), best_at(5)},
                          {best_at(4), best_at(3), best_at(6)}};  // never in this order
  // The ring of the latest outputs starts over within the word.
  row.output_ids = Tokens(draw, kVocab, static_cast<int>(kMaxDeviceWordTokens) - 4);
  row.logits.assign(kVocab, 0);
  Device device(kVocab, 1);
  device.Admit(0, row);
  for (int step = 0; step < 8; ++step) {
    CAPTURE(step);
    row.logits.assign(kVocab, 0);
    row.logits[static_cast<size_t>(best_at(step))] = 2;
    row.logits[kSecond] = 1;
    const TokenId token = device.Sample({row}, {0})[0].token.token_id;
    CHECK(token == (step == 5 ? kSecond : best_at(step)));
    CHECK(token == HostSample(row).token.token_id);
    row.output_ids.push_back(token);
  }
}

TEST_CASE("device sampler: rows that are not finite or have no token left fail alone") {
  Draw draw(11);
  constexpr int kVocab = 300;
  std::vector<Row> rows;
  for (int i = 0; i < 4; ++i) {
    rows.push_back(RandomRow(draw, kVocab));
    rows.back().config.allowed_token_ids.clear();
    rows.back().config.num_logprobs = 2;
    rows.back().config.logprob_token_ids.clear();
    rows.back().scored_token_id = -1;
  }
  rows[0].logits[299] = std::numeric_limits<float>::quiet_NaN();
  rows[0].logits[7] = kInfinity;
  rows[0].logits[8] = -kInfinity;
  rows[2].config.allowed_token_ids = {4};
  rows[2].config.bad_words = {{4}};
  rows[2].config.logit_bias = {{4, 100.0f}};
  Device device(kVocab, 4);
  const std::vector<Sampled> sampled = device.AdmitAndSample(rows);
  CHECK(sampled[0].token.num_nans == 3);
  CHECK(sampled[0].token.token_id < 0);
  CHECK(sampled[2].token.num_nans == 0);
  CHECK(sampled[2].token.token_id < 0);
  for (const size_t i : {1u, 3u}) {
    CAPTURE(i);
    CHECK(sampled[i].token.token_id >= 0);
    CheckEqual(rows[i], sampled[i], HostSample(rows[i]));
  }
}

// Each draw's random number is known, so each bounds a border of the distribution.
TEST_CASE("device sampler: draws from the golden distributions") {
  constexpr int kDraws = 24;
  const std::vector<SamplingGolden> goldens = ReadSamplingGoldens();
  Device device(static_cast<int64_t>(goldens[0].logits.size()), kDraws);
  for (const SamplingGolden& golden : goldens) {
    CAPTURE(golden.index);
    const bool is_huge = std::ranges::max(golden.logits) > 1000;
    std::vector<Row> rows;
    for (int i = 0; i < kDraws; ++i) {
      Row row = {.config = golden.config,
                 .prompt_ids = golden.prompt_ids,
                 .output_ids = golden.output_ids,
                 .logits = golden.logits,
                 .position = i};
      row.config.seed = 99 + static_cast<uint64_t>(golden.index);
      row.config.num_logprobs = i == 0 ? 5 : -1;
      rows.push_back(std::move(row));
    }
    const std::vector<Sampled> sampled = device.AdmitAndSample(rows);
    for (int i = 0; i < kDraws; ++i) {
      const TokenId token = sampled[static_cast<size_t>(i)].token.token_id;
      CAPTURE(i, token);
      REQUIRE(token >= 0);
      if (golden.config.is_greedy()) {
        CHECK(token == golden.argmax);
        continue;
      }
      const double uniform = UniformAt(rows[0].config.seed, static_cast<uint64_t>(i));
      const auto begin = golden.probs.begin();
      const double before = std::accumulate(begin, begin + token, 0.0);
      const double upto = before + golden.probs[static_cast<size_t>(token)];
      const double bound = is_huge ? 2e-5 : 1e-5;
      CHECK(before - bound <= uniform);
      CHECK(uniform <= upto + bound);
      CHECK(golden.probs[static_cast<size_t>(token)] > 0);
    }
    for (size_t i = 0; i < 5; ++i) {
      CHECK(sampled[0].ids[i + 1] == golden.raw_top5_ids[i]);
      CHECK(sampled[0].logprobs[i + 1] == Approx(golden.raw_top5_logprobs[i]).margin(2e-5));
    }
  }
  CHECK(goldens.size() == 64);
}

TEST_CASE("device sampler: requests that are left to the host") {
  const auto draws = [](SamplingConfig config, int32_t num_prompt_logprobs = -1) {
    config.num_prompt_logprobs = num_prompt_logprobs;
    return FitsDeviceSampler(config);
  };
  CHECK(draws({}));
  SamplingConfig config;
  config.logit_bias = {{1, 1.0f}, {2, 1.0f}, {1, 2.0f}};
  CHECK_FALSE(draws(config));
  config.logit_bias.clear();
  config.bad_words = {std::vector<TokenId>(kMaxDeviceWordTokens + 1)};
  CHECK_FALSE(draws(config));
  config.bad_words[0].pop_back();
  CHECK(draws(config));
  config.logprob_token_ids = {1, 2, 3};
  config.min_tokens_mask = {4};
  const size_t num_left = kMaxDeviceNumbers - (kMaxDeviceWordTokens + 1) - 3 - 1;
  for (size_t i = 0; i < num_left / 2; ++i) {
    config.logit_bias.push_back({static_cast<TokenId>(i), 1.0f});
  }
  config.min_tokens_mask.resize(1 + num_left % 2);
  CHECK(draws(config));
  config.min_tokens_mask.push_back(5);
  CHECK_FALSE(draws(config));
  config.min_tokens_mask.clear();
  config.num_logprobs = kMaxDeviceLogprobs;
  CHECK(draws(config, kMaxDeviceLogprobs));
  CHECK_FALSE(draws(config, kMaxDeviceLogprobs + 1));
  config.num_logprobs += 1;
  CHECK_FALSE(draws(config));
}

}  // namespace
}  // namespace tandem
