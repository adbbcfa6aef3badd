// Tokens sampled by the kernels of kernels/cuda on an emulated device, compared with the host's
// sampler and with the golden distributions. Where the two samplers differ, the random number or
// top_p must lie on a boundary, within the bound that kernels/device_sampler.h states.

#include <algorithm>
#include <limits>
#include <numeric>

#include "common/random.h"
#include "tests/support/sampler_rows.h"
#include "tests/support/sampling_goldens.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

using Row = SamplerCase;

TEST_CASE("device sampler: random requests get the tokens and logprobs of the host's sampler") {
  int num_rows = 0, num_boundaries = 0;
  uint64_t seed = 1;
  for (const int vocab : {1, 2, 31, 33, 257, 1000, 1024, 3001, 4099}) {
    EmulatedSampler device(vocab, 12);
    for (int round = 0; round < (vocab < 2000 ? 6 : 4); ++round, ++seed) {
      Draw draw(seed);
      std::vector<Row> rows;
      for (int i = 0; i < 12; ++i) rows.push_back(RandomCase(draw, vocab));
      const std::vector<Sampled> sampled = device.AdmitAndSample(rows);
      for (size_t i = 0; i < rows.size(); ++i) {
        const SamplingConfig& config = rows[i].config;
        CAPTURE(seed, vocab, i, config.temperature, config.top_k, config.top_p, config.min_p,
                config.num_logprobs);
        num_boundaries += CheckSameSample(rows[i], sampled[i], HostSample(rows[i])) ? 0 : 1;
        ++num_rows;
      }
    }
  }
  CAPTURE(num_rows);
  CHECK(num_boundaries <= num_rows / 200);
}

// A request's rows from one token to the next, as the host samples them, each with its draft; the
// draft after row `wrong` is another one.
std::vector<Row> RowsWithDrafts(const Row& request, int vocab, size_t count, size_t wrong,
                                Draw& draw) {
  std::vector<Row> rows;
  for (size_t i = 0; i < count; ++i) {
    Row& row = rows.emplace_back(request);
    row.logits = draw.Normals(vocab, 4);
    row.position = request.position + static_cast<int32_t>(i);
    if (i == 0) continue;
    const Row& before = rows[i - 1];
    const TokenId sampled = HostSample(before).token.token_id;
    row.output_ids = before.output_ids;
    row.output_ids.push_back(std::max(sampled, 0));
    row.draft_token_id =
        i == wrong + 1 ? (row.output_ids.back() + 1) % vocab : row.output_ids.back();
  }
  return rows;
}

TEST_CASE("device sampler: rows after drafts are sampled in order, up to the first wrong one") {
  int num_boundaries = 0, num_rows = 0, num_rejected = 0;
  for (uint64_t seed = 300; seed < 360; ++seed) {
    Draw draw(seed);
    const int vocab = OneOf(draw, {3, 40, 700, 1025});
    EmulatedSampler device(vocab, 12);
    // Three requests, of which the second reaches into the second call.
    std::vector<Row> rows;
    std::vector<int32_t> slots;
    std::vector<size_t> wrong;
    for (int32_t slot = 0; slot < 3; ++slot) {
      Row request = RandomCase(draw, vocab);
      request.scored_token_id = -1;
      device.Admit(slot, request);
      const size_t count = slot == 1 ? 6 : 3;
      wrong.push_back(static_cast<size_t>(draw.Int(0, static_cast<int>(count))));
      for (Row& row : RowsWithDrafts(request, vocab, count, wrong.back(), draw)) {
        rows.push_back(std::move(row));
        slots.push_back(slot);
      }
    }
    const std::vector<Sampled> sampled = device.Sample(rows, slots);
    bool is_rejected = false;
    std::vector<Row> next;
    for (size_t i = 0; i < rows.size(); ++i) {
      CAPTURE(seed, vocab, i);
      const bool is_first = rows[i].draft_token_id < 0;
      is_rejected =
          !is_first && (is_rejected || sampled[i - 1].token.token_id != rows[i].draft_token_id);
      if (is_rejected) {
        CHECK(sampled[i].token.token_id == kRejectedRow);
        ++num_rejected;
        continue;
      }
      ++num_rows;
      num_boundaries += CheckSameSample(rows[i], sampled[i], HostSample(rows[i])) ? 0 : 1;
      // What was sampled counts, and nothing else.
      Row after = rows[i];
      after.draft_token_id = -1;
      after.output_ids.push_back(std::max(sampled[i].token.token_id, 0));
      ++after.position;
      if (is_first) next.emplace_back();
      next.back() = std::move(after);
    }
    const std::vector<Sampled> later = device.Sample(next, {0, 1, 2});
    for (size_t i = 0; i < next.size(); ++i) {
      CAPTURE(seed, vocab, i);
      num_boundaries += CheckSameSample(next[i], later[i], HostSample(next[i])) ? 0 : 1;
    }
  }
  CHECK(num_boundaries <= num_rows / 100);
  CHECK(num_rejected > 50);
}

// Far more tokens than a block's candidates, evenly spread or crowded in one place, so that the row
// itself is searched.
TEST_CASE("device sampler: limits beyond the gathered candidates") {
  constexpr int kVocab = 9'001;
  Draw draw(77);
  EmulatedSampler device(kVocab, 16);
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
    CheckSameSample(rows[i], sampled[i], HostSample(rows[i]));
  }
}

TEST_CASE("device sampler: a row has the same sample in any batch, slot and place") {
  Draw draw(5);
  constexpr int kVocab = 501;
  std::vector<Row> rows;
  for (int i = 0; i < 6; ++i) rows.push_back(RandomCase(draw, kVocab));
  EmulatedSampler device(kVocab, 8);
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
    rows.push_back(RandomCase(draw, kVocab));
    rows.back().config.allowed_token_ids.clear();
    rows.back().config.bad_words.clear();
    rows.back().scored_token_id = -1;
  }
  rows[2].logits[5] = kInfinity;
  EmulatedSampler device(kVocab, 3);
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
  EmulatedSampler device(kVocab, 4);
  std::vector<std::vector<Row>> steps;
  const std::vector<int32_t> slots = {0, 1, 2, 3};
  for (int step = 0; step < 5; ++step) {
    std::vector<Row>& rows = steps.emplace_back();
    for (int i = 0; i < 4; ++i) {
      rows.push_back(RandomCase(draw, kVocab));
      device.Admit(i, rows.back());
    }
    device.StartSample(rows, slots);
    if (step == 0) continue;
    const std::vector<Row>& before = steps[static_cast<size_t>(step) - 1];
    const std::vector<Sampled> sampled = device.TakeSampled(before);
    for (size_t i = 0; i < before.size(); ++i) {
      CAPTURE(step, i);
      CheckSameSample(before[i], sampled[i], HostSample(before[i]));
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
  EmulatedSampler device(50, 4);
  const std::vector<Sampled> sampled = device.AdmitAndSample(rows);
  for (size_t i = 0; i < rows.size(); ++i) {
    CAPTURE(i);
    CHECK(sampled[i].ids.size() == (i == 2 ? 0 : 1));
    CheckSameSample(rows[i], sampled[i], HostSample(rows[i]));
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
  EmulatedSampler device(kVocab, 2);
  device.Admit(0, rows[0]);
  for (int i = 0; i < 300; ++i) device.Admit(1, rows[1]);
  const std::vector<Sampled> sampled = device.Sample(rows, {0, 1});
  for (size_t i = 0; i < rows.size(); ++i) {
    CAPTURE(i);
    CheckSameSample(rows[i], sampled[i], HostSample(rows[i]));
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
    row.output_ids = RandomTokens(draw, kVocab, num_outputs);
    row.position = num_outputs;
    EmulatedSampler device(kVocab, 2);
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
  row.prompt_ids = RandomTokens(draw, kVocab, 20);
  EmulatedSampler device(kVocab, 3);
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
  row.output_ids = RandomTokens(draw, kVocab, static_cast<int>(kMaxDeviceWordTokens) - 4);
  row.logits.assign(kVocab, 0);
  EmulatedSampler device(kVocab, 1);
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
    rows.push_back(RandomCase(draw, kVocab));
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
  EmulatedSampler device(kVocab, 4);
  const std::vector<Sampled> sampled = device.AdmitAndSample(rows);
  CHECK(sampled[0].token.num_nans == 3);
  CHECK(sampled[0].token.token_id < 0);
  CHECK(sampled[2].token.num_nans == 0);
  CHECK(sampled[2].token.token_id < 0);
  for (const size_t i : {1u, 3u}) {
    CAPTURE(i);
    CHECK(sampled[i].token.token_id >= 0);
    CheckSameSample(rows[i], sampled[i], HostSample(rows[i]));
  }
}

// Each draw's random number is known, so each bounds a border of the distribution.
TEST_CASE("device sampler: draws from the golden distributions") {
  constexpr int kDraws = 24;
  const std::vector<SamplingGolden> goldens = ReadSamplingGoldens();
  EmulatedSampler device(static_cast<int64_t>(goldens[0].logits.size()), kDraws);
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
