// Attention over chosen keys against plain formulas in double precision, on both backends of the
// host, whatever the steps are and wherever the blocks lie. Numbers of the index are small whole
// ones, so scores are exact and have ties.

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "tests/support/kernels/kernel_cases.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

constexpr int kBlockSize = 64;
constexpr int kLatent = 12, kPe = 6, kDim = kLatent + kPe;  // without an index key
constexpr int kIndexDim = 12, kIndexHeads = 9, kHeads = 40;
constexpr int kNumTokens = 75, kMost = 40;  // more than a tile

struct Inputs {
  std::vector<float> latents;           // [tokens, kDim]
  std::vector<float> index_keys;        // [tokens, kIndexDim]
  std::vector<float> index_q, weights;  // [tokens, heads * kIndexDim], [tokens, heads]
  std::vector<float> q;                 // [tokens, kHeads * kDim], of which pe is turned by nothing
};

Inputs MakeInputs(Draw& draw) {
  const auto whole = [&](int64_t count) {
    std::vector<float> numbers(static_cast<size_t>(count));
    for (float& number : numbers) number = static_cast<float>(draw.Int(-2, 2));
    return numbers;
  };
  return {.latents = draw.Normals(kNumTokens * kDim),
          .index_keys = whole(kNumTokens * kIndexDim),
          .index_q = whole(kNumTokens * kIndexHeads * kIndexDim),
          .weights = whole(kNumTokens * kIndexHeads),
          .q = draw.Normals(kNumTokens * kHeads * kDim)};
}

std::vector<int32_t> ExpectedKeys(const Inputs& in, int token) {
  std::vector<double> scores;
  for (int s = 0; s <= token; ++s) {
    double score = 0;
    for (int h = 0; h < kIndexHeads; ++h) {
      double product = 0;
      for (int i = 0; i < kIndexDim; ++i) {
        product += in.index_q[static_cast<size_t>((token * kIndexHeads + h) * kIndexDim + i)] *
                   in.index_keys[static_cast<size_t>(s * kIndexDim + i)];
      }
      score += in.weights[static_cast<size_t>(token * kIndexHeads + h)] * std::max(product, 0.0);
    }
    scores.push_back(score);
  }
  std::vector<int32_t> keys(scores.size());
  std::iota(keys.begin(), keys.end(), 0);
  std::stable_sort(keys.begin(), keys.end(), [&](int32_t a, int32_t b) {
    return scores[static_cast<size_t>(a)] > scores[static_cast<size_t>(b)];
  });
  keys.resize(std::min<size_t>(keys.size(), kMost));
  std::sort(keys.begin(), keys.end());
  return keys;
}

// The latent as the cache has it: c normed with weights of 1.
std::vector<double> CachedLatent(const Inputs& in, int token, bool is_bf16) {
  const float* row = in.latents.data() + token * kDim;
  double squares = 0;
  for (int i = 0; i < kLatent; ++i) squares += double{row[i]} * row[i];
  const double scale = 1 / std::sqrt(squares / kLatent + 1e-6);
  std::vector<double> latent(row, row + kDim);
  for (int i = 0; i < kLatent; ++i) latent[static_cast<size_t>(i)] *= scale;
  if (is_bf16) {
    for (double& number : latent) number = ToFloat(ToBf16(static_cast<float>(number)));
  }
  return latent;
}

std::vector<double> ExpectedValue(const Inputs& in, int token, int head, double scale,
                                  bool is_bf16) {
  const std::vector<int32_t> keys = ExpectedKeys(in, token);
  const float* q = in.q.data() + (token * kHeads + head) * kDim;
  std::vector<double> weights, value(kLatent);
  double total = 0;
  for (const int32_t key : keys) {
    const std::vector<double> latent = CachedLatent(in, key, is_bf16);
    double score = 0;
    for (int i = 0; i < kDim; ++i) score += q[i] * latent[static_cast<size_t>(i)];
    weights.push_back(std::exp(score * scale));
    total += weights.back();
  }
  for (size_t k = 0; k < keys.size(); ++k) {
    const std::vector<double> latent = CachedLatent(in, keys[k], is_bf16);
    for (size_t i = 0; i < kLatent; ++i) value[i] += weights[k] / total * latent[i];
  }
  return value;
}

// Of all tokens: the keys that they chose, and the heads' outputs.
struct Outputs {
  std::vector<std::vector<int32_t>> keys;
  std::vector<float> values;  // [tokens, kHeads * kDim]
};

std::vector<float> RowsOf(const std::vector<float>& x, int64_t columns, int begin, int count) {
  return {x.begin() + begin * columns, x.begin() + (begin + count) * columns};
}

Outputs RunSteps(Backend& backend, const Inputs& in, const std::vector<int>& steps,
                 std::vector<int32_t> blocks, float scale) {
  const auto cache = backend
                         .AllocateKvCache({.num_layers = 1,
                                           .num_kv_heads = 1,
                                           .head_dim = kDim + kIndexDim,
                                           .block_size = kBlockSize,
                                           .num_blocks = 9,
                                           .is_latent = true})
                         .value();
  const LayerKv kv = cache->layer(0);
  const auto plan = backend.MakeAttentionPlan({kHeads, 1, kDim + kIndexDim}, kNumTokens, 1).value();
  const OwnedTensor norm = Upload(backend, std::vector<float>(kLatent, 1), {kLatent}, DType::kF32);
  Outputs outputs;
  int done = 0;
  for (const int count : steps) {
    std::vector<int32_t> positions(static_cast<size_t>(count)), slots;
    std::iota(positions.begin(), positions.end(), done);
    for (const int32_t p : positions) {
      slots.push_back(blocks[static_cast<size_t>(p / kBlockSize)] * kBlockSize + p % kBlockSize);
    }
    const std::vector<int32_t> query_start = {0, count}, context_len = {done + count};
    AttentionBatch batch;
    batch.query_start = query_start;
    batch.context_len = context_len;
    batch.positions = View(positions, {count});
    batch.slot_mapping = View(slots, {count});
    batch.block_table = View(blocks, {1, static_cast<int64_t>(blocks.size())});
    plan->Fill(batch);
    const auto rows = [&](const std::vector<float>& x, int64_t columns) {
      return UploadAct(backend, RowsOf(x, columns, done, count), {count, columns});
    };
    const OwnedTensor q = rows(in.q, kHeads * kDim), latents = rows(in.latents, kDim);
    const OwnedTensor index_keys = rows(in.index_keys, kIndexDim);
    const OwnedTensor index_q = rows(in.index_q, kIndexHeads * kIndexDim);
    const OwnedTensor weights = rows(in.weights, kIndexHeads);
    // The op copies pe alone.
    const OwnedTensor absorbed = rows(in.q, kHeads * kDim);
    backend.ops().LatentRopeWriteKv(absorbed, q, latents,
                                    {.cos = {},
                                     .sin = {},
                                     .pe_dim = kPe,
                                     .norm = norm,
                                     .norm_epsilon = 1e-6F,
                                     .index_key = index_keys},
                                    kv, *plan);
    const OwnedTensor selected = Make(backend, DType::kI32, {count, kMost});
    backend.ops().SelectKeys(selected, index_q, weights,
                             {.num_heads = kIndexHeads, .dim = kIndexDim, .scale = 1}, kv, *plan);
    const OwnedTensor out = Make(backend, backend.activation_dtype(), {count, kHeads * kDim});
    backend.ops().AttendSelected(out, absorbed, selected, {.num_heads = kHeads, .scale = scale}, kv,
                                 *plan);
    for (int i = 0; i < count; ++i) {
      const auto* keys = selected.view().Row<int32_t>(i);
      outputs.keys.emplace_back(keys, std::find(keys, keys + kMost, -1));
    }
    const std::vector<float> values = Floats(backend, out);
    outputs.values.insert(outputs.values.end(), values.begin(), values.end());
    done += count;
  }
  return outputs;
}

void Check(Backend& backend, double tolerance) {
  constexpr float kScale = 0.3F;
  Draw draw(11);
  const Inputs in = MakeInputs(draw);
  const bool is_bf16 = backend.activation_dtype() == DType::kBf16;
  const Outputs whole = RunSteps(backend, in, {kNumTokens}, {2, 7, 4}, kScale);
  for (int token = 0; token < kNumTokens; ++token) {
    CAPTURE(token);
    CHECK(whole.keys[static_cast<size_t>(token)] == ExpectedKeys(in, token));
    for (int head = 0; head < kHeads; ++head) {
      const auto expected = ExpectedValue(in, token, head, kScale, is_bf16);
      const float* got = whole.values.data() + (token * kHeads + head) * kDim;
      for (size_t i = 0; i < kLatent; ++i) {
        REQUIRE(got[i] == Approx(expected[i]).margin(tolerance));
      }
    }
  }
  const Outputs cut = RunSteps(backend, in, {1, 30, 3, 40, 1}, {8, 1, 5}, kScale);
  CHECK(cut.keys == whole.keys);
  for (int row = 0; row < kNumTokens * kHeads; ++row) {
    for (int i = 0; i < kLatent; ++i) {
      const auto at = static_cast<size_t>(row * kDim + i);
      REQUIRE(cut.values[at] == whole.values[at]);
    }
  }
}

TEST_CASE("chosen keys: both backends of the host choose and attend as the formulas say") {
  Check(*MakeReferenceBackend(), 1e-5);
  for (const BackendCase& backend : BackendCases()) {
    CAPTURE(backend.name);
    Check(*backend.make(2), backend.dtype == DType::kBf16 ? 2e-2 : 1e-5);
  }
}

TEST_CASE("chosen keys: scores that are no numbers are no choice, and end nothing") {
  Draw draw(12);
  Inputs in = MakeInputs(draw);
  std::fill(in.weights.begin(), in.weights.end(), NAN);
  const auto backend = MakeReferenceBackend();
  const Outputs outputs = RunSteps(*backend, in, {kNumTokens}, {2, 7, 4}, 1);
  CHECK(outputs.keys.back().size() == kMost);
  CHECK(outputs.keys.back().back() < kNumTokens);
}

}  // namespace
}  // namespace tandem
