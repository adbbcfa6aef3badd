// The ops of layers with a state against plain formulas in double precision over whole sequences,
// however these are cut into steps and wherever the states lie.

#include <array>
#include <cmath>
#include <vector>

#include "kernels/recurrence.h"
#include "tests/support/kernels/kernel_cases.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

constexpr int kBlockSize = 32;  // tokens; the cpu backend's smallest

constexpr int64_t kBlocks = 5;  // of the longer sequence
constexpr std::array<std::array<int32_t, kBlocks>, 2> kTables = {
    {{5, 2, 9, 0, 0}, {1, 14, 3, 8, 11}}};

double Silu(double x) { return x / (1 + std::exp(-x)); }
double Softplus(double x) { return std::log1p(std::exp(x)); }

// Two sequences in one layer's states, whose tokens run in steps of any length.
class StateSteps {
 public:
  StateSteps(Backend& backend, int64_t state_size, std::vector<int32_t> lengths)
      : backend_(backend), lengths_(std::move(lengths)) {
    const KvCacheSpec spec = {.num_layers = 1,
                              .num_kv_heads = 1,
                              .head_dim = 16,
                              .block_size = kBlockSize,
                              .num_blocks = 16,
                              .layers = {{.has_kv = false, .has_state = true}},
                              .state_size = state_size};
    cache_ = backend.AllocateKvCache(spec).value();
    const LayerKv kv = cache_->layer(0);
    CHECK(kv.k == nullptr);
    std::fill_n(kv.states, kv.num_blocks * kv.state_size, NAN);  // what others have left
    plan_ = backend.MakeAttentionPlan({1, 1, 16}, 512, 4).value();
    num_done_.assign(lengths_.size(), 0);
  }

  // Runs up to counts[r] tokens of each sequence that has any, and after them some as drafts, which
  // run again in a later step: f(rows of the step, state, plan) gets the tokens' places in the
  // sequences laid one after another.
  template <class F>
  void Step(const std::vector<int32_t>& counts, const std::vector<int32_t>& most_drafts, F f) {
    std::vector<int32_t> query_start = {0}, context_len, positions, slots, table, places;
    std::vector<int32_t> num_drafts;
    int32_t begin = 0;
    for (size_t r = 0; r < counts.size(); ++r) {
      const int32_t left = lengths_[r] - num_done_[r], count = std::min(counts[r], left);
      num_drafts.push_back(count == 0 ? 0 : std::min(most_drafts[r], left - count));
      for (int32_t i = 0; i < count + num_drafts[r]; ++i) {
        positions.push_back(num_done_[r] + i);
        slots.push_back(0);
        places.push_back(begin + num_done_[r] + i);
      }
      num_done_[r] += count;
      query_start.push_back(static_cast<int32_t>(positions.size()));
      context_len.push_back(num_done_[r] + num_drafts[r]);
      table.insert(table.end(), kTables[r].begin(), kTables[r].end());
      begin += lengths_[r];
    }
    const auto num_tokens = static_cast<int64_t>(positions.size());
    AttentionBatch batch;
    batch.query_start = query_start;
    batch.context_len = context_len;
    batch.num_drafts = num_drafts;
    batch.positions = View(positions, {num_tokens});
    batch.slot_mapping = View(slots, {num_tokens});
    batch.block_table = View(table, {static_cast<int64_t>(counts.size()), kBlocks});
    plan_->Fill(batch);
    f(places, *plan_);
  }

  StatePart part(int64_t offset) const { return {.kv = cache_->layer(0), .offset = offset}; }

 private:
  Backend& backend_;
  const std::vector<int32_t> lengths_;
  std::vector<int32_t> num_done_;
  std::unique_ptr<KvCache> cache_;
  std::unique_ptr<AttentionPlan> plan_;
};

// Runs all tokens of two sequences in uneven steps, some before as drafts, over the ends of blocks
// too; these give the same bits when they come again. op(rows of the inputs, out, steps, plan).
template <class F>
std::vector<float> RunInSteps(Backend& backend, int64_t state_size,
                              const std::vector<int32_t>& lengths, int64_t columns, F op) {
  StateSteps steps(backend, state_size, lengths);
  std::vector<float> all(static_cast<size_t>((lengths[0] + lengths[1]) * columns), NAN);
  struct Counts {
    std::vector<int32_t> tokens, drafts;
  };
  const std::vector<Counts> all_counts = {{{3, 40}, {40, 0}}, {{1, 0}, {2, 0}},  {{28, 1}, {5, 30}},
                                          {{1, 23}, {0, 1}},  {{1, 1}, {33, 2}}, {{500, 500}, {}}};
  for (const Counts& counts : all_counts) {
    const auto drafts = counts.drafts.empty() ? std::vector<int32_t>{0, 0} : counts.drafts;
    steps.Step(counts.tokens, drafts,
               [&](const std::vector<int32_t>& places, const AttentionPlan& plan) {
                 const auto rows = static_cast<int64_t>(places.size());
                 const OwnedTensor out = Make(backend, backend.activation_dtype(), {rows, columns});
                 op(places, out.view(), steps, plan);
                 const std::vector<float> values = Floats(backend, out);
                 for (size_t i = 0; i < places.size(); ++i) {
                   const auto row = values.begin() + static_cast<int64_t>(i) * columns;
                   const auto at = all.begin() + places[i] * columns;
                   CHECK((std::isnan(*at) || std::equal(row, row + columns, at)));
                   std::copy_n(row, columns, at);
                 }
               });
  }
  return all;
}

// The rows of a matrix at those places.
std::vector<float> RowsAt(const std::vector<float>& x, int64_t columns,
                          const std::vector<int32_t>& places) {
  std::vector<float> rows;
  for (const int32_t place : places) {
    rows.insert(rows.end(), x.begin() + place * columns, x.begin() + (place + 1) * columns);
  }
  return rows;
}

template <class F>
void ForBackends(F check) {
  for (const bool is_reference : {true, false}) {
    INFO((is_reference ? "reference" : "cpu"));
    const auto backend = is_reference
                             ? MakeReferenceBackend()
                             : MakeCpuBackend({.dtype = DType::kF32, .num_threads = 2}).value();
    Draw draw(17);
    check(*backend, draw);
  }
}

const std::vector<int32_t> kLengths = {75, 130};
constexpr int64_t kNumTokens = 205;

TEST_CASE("Convolve goes on over steps and blocks") {
  ForBackends([](Backend& backend, Draw& draw) {
    const int64_t channels = 70, kernel = 4;
    const auto x = draw.Normals(kNumTokens * channels), weight = draw.Normals(kernel * channels);
    const auto bias = draw.Normals(channels);
    const OwnedTensor taps = Upload(backend, weight, {kernel, channels}, DType::kF32);
    const OwnedTensor biases = Upload(backend, bias, {channels}, DType::kF32);
    const auto got = RunInSteps(
        backend, 3 * channels + 16, kLengths, channels,
        [&](const auto& places, const Tensor& out, const StateSteps& steps, const auto& plan) {
          backend.ops().Convolve(
              out, UploadAct(backend, RowsAt(x, channels, places), {out.rows(), channels}),
              {.weight = taps, .bias = biases, .has_silu = true}, steps.part(16), plan);
        });
    std::vector<float> expected;
    for (int64_t t = 0; t < kNumTokens; ++t) {
      const int64_t first = t < kLengths[0] ? 0 : kLengths[0];
      for (int64_t c = 0; c < channels; ++c) {
        double sum = bias[static_cast<size_t>(c)];
        for (int64_t j = 0; j < kernel; ++j) {
          const int64_t from = t - kernel + 1 + j;
          if (from < first) continue;
          sum += static_cast<double>(weight[static_cast<size_t>(j * channels + c)]) *
                 x[static_cast<size_t>(from * channels + c)];
        }
        expected.push_back(static_cast<float>(Silu(sum)));
      }
    }
    CHECK(MaxError(got, expected) < 1e-5f);
  });
}

TEST_CASE("DeltaRule goes on over steps and blocks") {
  ForBackends([](Backend& backend, Draw& draw) {
    const int64_t key_heads = 2, heads = 4, dk = 6, dv = 5;
    const int64_t columns = 2 * key_heads * dk + heads * dv;
    const auto qkv = draw.Normals(kNumTokens * columns),
               gates = draw.Normals(kNumTokens * 2 * heads);
    const auto a_log = draw.Normals(heads, 0.5f), dt_bias = draw.Normals(heads);
    const OwnedTensor a = Upload(backend, a_log, {heads}, DType::kF32);
    const OwnedTensor dt = Upload(backend, dt_bias, {heads}, DType::kF32);
    const auto got = RunInSteps(
        backend, heads * dk * dv, kLengths, heads * dv,
        [&](const auto& places, const Tensor& out, const StateSteps& steps, const auto& plan) {
          backend.ops().DeltaRule(
              out, UploadAct(backend, RowsAt(qkv, columns, places), {out.rows(), columns}),
              Upload(backend, RowsAt(gates, 2 * heads, places), {out.rows(), 2 * heads},
                     DType::kF32),
              {.num_key_heads = key_heads,
               .num_value_heads = heads,
               .key_dim = dk,
               .value_dim = dv,
               .a_log = a,
               .dt_bias = dt},
              steps.part(0), plan);
        });
    std::vector<float> expected(static_cast<size_t>(kNumTokens * heads * dv));
    for (int64_t h = 0; h < heads; ++h) {
      std::vector<double> s;
      for (int64_t t = 0; t < kNumTokens; ++t) {
        if (t == 0 || t == kLengths[0]) s.assign(static_cast<size_t>(dk * dv), 0);
        const float* row = qkv.data() + t * columns;
        const auto unit = [&](int64_t first, double scale) {
          std::vector<double> x(row + first, row + first + dk);
          double sum = 1e-6;
          for (const double number : x) sum += number * number;
          for (double& number : x) number *= scale / std::sqrt(sum);
          return x;
        };
        const auto q = unit(h / 2 * dk, 1 / std::sqrt(static_cast<double>(dk)));
        const auto k = unit(key_heads * dk + h / 2 * dk, 1);
        const float* v = row + 2 * key_heads * dk + h * dv;
        const double beta = 1 / (1 + std::exp(-gates[static_cast<size_t>(t * 2 * heads + h)]));
        const double step = Softplus(gates[static_cast<size_t>(t * 2 * heads + heads + h)] +
                                     dt_bias[static_cast<size_t>(h)]);
        const double kept = std::exp(-std::exp(a_log[static_cast<size_t>(h)]) * step);
        for (int64_t j = 0; j < dv; ++j) {
          double seen = 0, sum = 0;
          const auto at = [&](int64_t i) -> double& { return s[static_cast<size_t>(i * dv + j)]; };
          for (int64_t i = 0; i < dk; ++i) seen += (at(i) *= kept) * k[static_cast<size_t>(i)];
          for (int64_t i = 0; i < dk; ++i) {
            at(i) += k[static_cast<size_t>(i)] * beta * (v[j] - seen);
            sum += at(i) * q[static_cast<size_t>(i)];
          }
          expected[static_cast<size_t>((t * heads + h) * dv + j)] = static_cast<float>(sum);
        }
      }
    }
    CHECK(MaxError(got, expected) < 1e-5f);
  });
}

TEST_CASE("StateScan goes on over steps and blocks") {
  ForBackends([](Backend& backend, Draw& draw) {
    const int64_t heads = 6, dim = 5, groups = 2, states = 7;
    const int64_t inner = heads * dim, columns = inner + 2 * groups * states;
    const auto xbc = draw.Normals(kNumTokens * columns), dts = draw.Normals(kNumTokens * heads);
    const auto a_log = draw.Normals(heads, 0.5f), dt_bias = draw.Normals(heads),
               d = draw.Normals(heads);
    const OwnedTensor a = Upload(backend, a_log, {heads}, DType::kF32);
    const OwnedTensor bias = Upload(backend, dt_bias, {heads}, DType::kF32);
    const OwnedTensor skip = Upload(backend, d, {heads}, DType::kF32);
    const auto got = RunInSteps(
        backend, inner * states, kLengths, inner,
        [&](const auto& places, const Tensor& out, const StateSteps& steps, const auto& plan) {
          backend.ops().StateScan(
              out, UploadAct(backend, RowsAt(xbc, columns, places), {out.rows(), columns}),
              Upload(backend, RowsAt(dts, heads, places), {out.rows(), heads}, DType::kF32),
              {.num_heads = heads,
               .head_dim = dim,
               .num_groups = groups,
               .state_dim = states,
               .a_log = a,
               .dt_bias = bias,
               .d = skip,
               .dt_max = 2},
              steps.part(0), plan);
        });
    std::vector<float> expected(static_cast<size_t>(kNumTokens * inner));
    for (int64_t h = 0; h < heads; ++h) {
      std::vector<double> s;
      for (int64_t t = 0; t < kNumTokens; ++t) {
        if (t == 0 || t == kLengths[0]) s.assign(static_cast<size_t>(dim * states), 0);
        const float* row = xbc.data() + t * columns;
        const float* b = row + inner + h / 3 * states;
        const float* c = b + groups * states;
        const double step = std::min(2.0, Softplus(dts[static_cast<size_t>(t * heads + h)] +
                                                   dt_bias[static_cast<size_t>(h)]));
        const double kept = std::exp(-std::exp(a_log[static_cast<size_t>(h)]) * step);
        for (int64_t p = 0; p < dim; ++p) {
          const double x = row[h * dim + p];
          double sum = d[static_cast<size_t>(h)] * x;
          for (int64_t n = 0; n < states; ++n) {
            double& state = s[static_cast<size_t>(p * states + n)];
            state = state * kept + step * x * b[n];
            sum += state * c[n];
          }
          expected[static_cast<size_t>(t * inner + h * dim + p)] = static_cast<float>(sum);
        }
      }
    }
    CHECK(MaxError(got, expected) < 1e-5f);
  });
}

TEST_CASE("SelectiveScan goes on over steps and blocks") {
  ForBackends([](Backend& backend, Draw& draw) {
    const int64_t channels = 70, states = 7;
    const auto x = draw.Normals(kNumTokens * channels), dts = draw.Normals(kNumTokens * channels);
    const auto bc = draw.Normals(kNumTokens * 2 * states);
    const auto dt_bias = draw.Normals(channels), d = draw.Normals(channels);
    auto a = draw.Normals(states * channels);
    for (float& number : a) number = -std::exp(number);
    const OwnedTensor decays = Upload(backend, a, {states, channels}, DType::kF32);
    const OwnedTensor bias = Upload(backend, dt_bias, {channels}, DType::kF32);
    const OwnedTensor skip = Upload(backend, d, {channels}, DType::kF32);
    const auto got = RunInSteps(
        backend, channels * states + 16, kLengths, channels,
        [&](const auto& places, const Tensor& out, const StateSteps& steps, const auto& plan) {
          const int64_t rows = out.rows();
          backend.ops().SelectiveScan(
              out, UploadAct(backend, RowsAt(x, channels, places), {rows, channels}),
              Upload(backend, RowsAt(dts, channels, places), {rows, channels}, DType::kF32),
              UploadAct(backend, RowsAt(bc, 2 * states, places), {rows, 2 * states}),
              {.a = decays, .dt_bias = bias, .d = skip}, steps.part(16), plan);
        });
    std::vector<float> expected(static_cast<size_t>(kNumTokens * channels));
    for (int64_t c = 0; c < channels; ++c) {
      std::vector<double> s;
      for (int64_t t = 0; t < kNumTokens; ++t) {
        if (t == 0 || t == kLengths[0]) s.assign(static_cast<size_t>(states), 0);
        const auto at = static_cast<size_t>(t * channels + c);
        const double step = Softplus(dts[at] + dt_bias[static_cast<size_t>(c)]);
        double sum = static_cast<double>(d[static_cast<size_t>(c)]) * x[at];
        for (int64_t n = 0; n < states; ++n) {
          double& state = s[static_cast<size_t>(n)];
          state = state * std::exp(a[static_cast<size_t>(n * channels + c)] * step) +
                  step * x[at] * bc[static_cast<size_t>(t * 2 * states + n)];
          sum += state * bc[static_cast<size_t>((t * 2 + 1) * states + n)];
        }
        expected[at] = static_cast<float>(sum);
      }
    }
    CHECK(MaxError(got, expected) < 1e-5f);
  });
}

TEST_CASE("GatedNorm, GateBySigmoid and MultiplyBy row by row") {
  ForBackends([](Backend& backend, Draw& draw) {
    const int64_t rows = 5, size = 24, group = 8;
    const auto x = draw.Normals(rows * size), gate = draw.Normals(rows * size);
    for (const bool gates_first : {false, true}) {
      for (const bool has_sigmoid : {false, true}) {
        CAPTURE(gates_first, has_sigmoid);
        const auto weight = draw.Normals(gates_first ? size : group);
        const OwnedTensor out = UploadAct(backend, x, {rows, size});
        backend.ops().GatedNorm(
            out, out, UploadAct(backend, gate, {rows, size}),
            {.weight = Upload(backend, weight, {std::ssize(weight)}, DType::kF32).view(),
             .group_size = group,
             .gates_first = gates_first,
             .has_sigmoid = has_sigmoid});
        std::vector<float> expected;
        for (int64_t i = 0; i < rows * size; ++i) {
          const auto factor = [&](int64_t at) {
            const double g = gate[static_cast<size_t>(at)];
            return has_sigmoid ? 1 / (1 + std::exp(-g)) : Silu(g);
          };
          double sum = 0;
          for (int64_t j = i / group * group; j < i / group * group + group; ++j) {
            const double number = x[static_cast<size_t>(j)] * (gates_first ? factor(j) : 1);
            sum += number * number;
          }
          const double norm = std::sqrt(sum / static_cast<double>(group) + 1e-6);
          expected.push_back(
              static_cast<float>(x[static_cast<size_t>(i)] * factor(i) / norm *
                                 weight[static_cast<size_t>(i % std::ssize(weight))]));
        }
        CHECK(MaxError(Floats(backend, out), expected) < 1e-5f);
      }
    }
    const OwnedTensor gated = UploadAct(backend, x, {rows, size});
    backend.ops().GateBySigmoid(gated, UploadAct(backend, gate, {rows, size}).view().Columns(3, 1));
    backend.ops().MultiplyBy(gated, UploadAct(backend, gate, {rows, size}));
    const std::vector<float> got = Floats(backend, gated);
    for (int64_t i = 0; i < rows * size; ++i) {
      const double g = gate[static_cast<size_t>(i / size * size + 3)];
      const double expected =
          x[static_cast<size_t>(i)] / (1 + std::exp(-g)) * gate[static_cast<size_t>(i)];
      CHECK(got[static_cast<size_t>(i)] == Approx(expected).epsilon(1e-5).margin(1e-6));
    }
  });
}

TEST_CASE("recurrence: who goes on from a state of the same step waits for it") {
  const std::array<int32_t, 4> first = {5, 2, 9, 7}, second = {5, 2, 8, 6}, other = {1, 3, 4, 0};
  const auto tokens = [](const auto& blocks, int32_t position, int32_t count) {
    return BatchSequence{.num_tokens = count, .first_position = position, .blocks = blocks.data()};
  };
  const auto ends = [](const std::vector<BatchSequence>& sequences) {
    std::vector<size_t> found;
    for (size_t begin = 0; begin < sequences.size(); begin = found.back()) {
      found.push_back(EndOfIndependent(sequences, begin, kBlockSize));
    }
    return found;
  };
  using Ends = std::vector<size_t>;
  const BatchSequence fills = tokens(first, 0, 70), apart = tokens(other, 40, 1);
  CHECK(ends({}).empty());
  CHECK(ends({fills, apart}) == Ends{2});
  // From the end of block 2, which the first one leaves; the one between them is free to run.
  CHECK(ends({fills, apart, tokens(second, 64, 3)}) == Ends{2, 3});
  CHECK(ends({fills, tokens(second, 32, 20), apart}) == Ends{1, 3});
  // A third one from what the second leaves.
  CHECK(ends({fills, tokens(second, 64, 32), tokens(second, 96, 1)}) == Ends{1, 2, 3});
  // Its own block, which is not full; its own full block, of an earlier step; none.
  CHECK(ends({fills, tokens(second, 65, 3)}) == Ends{2});
  CHECK(ends({tokens(first, 64, 3), tokens(second, 64, 3)}) == Ends{2});
  CHECK(ends({fills, tokens(other, 0, 64), tokens(second, 0, 3)}) == Ends{3});
}

}  // namespace
}  // namespace tandem
