// The ops of layers with a state on every instruction set of this machine: the same bits, since
// their loops round each product and sum on their own and keep numbers of a row apart.

#include <array>
#include <functional>

#include "kernels/elementary_functions.h"
#include "tests/support/environment.h"
#include "tests/support/kernels/all_exponents.h"
#include "tests/support/kernels/kernel_cases.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

constexpr int kBlockSize = 32;
constexpr int kBlocksEach = 4;

// Two sequences that run in one step, over several blocks, the second with drafts at its end.
class OneStep {
 public:
  OneStep(Backend& backend, int64_t state_size, std::array<int32_t, 2> lengths)
      : backend_(backend), num_tokens_(lengths[0] + lengths[1]) {
    constexpr int kNumBlocks = 2 * kBlocksEach + 1;
    cache_ = backend
                 .AllocateKvCache({.num_layers = 1,
                                   .num_kv_heads = 1,
                                   .head_dim = 16,
                                   .block_size = kBlockSize,
                                   .num_blocks = kNumBlocks,
                                   .layers = {{.has_kv = false, .has_state = true}},
                                   .state_size = state_size})
                 .value();
    const LayerKv kv = cache_->layer(0);
    std::fill_n(kv.states, kv.num_blocks * kv.state_size, 7.0f);  // what others have left
    plan_ = backend.MakeAttentionPlan({1, 1, 16}, 512, 4).value();
    std::vector<int32_t> query_start = {0, lengths[0], lengths[0] + lengths[1]};
    std::vector<int32_t> context_len = {lengths[0], lengths[1]};
    std::vector<int32_t> num_drafts = {0, lengths[1] / 3};
    std::vector<int32_t> positions;
    for (const int32_t length : lengths) {
      for (int32_t i = 0; i < length; ++i) positions.push_back(i);
    }
    std::iota(table_.begin(), table_.end(), 1);
    std::vector<int32_t> slots(positions.size());
    AttentionBatch batch;
    batch.query_start = query_start;
    batch.context_len = context_len;
    batch.num_drafts = num_drafts;
    batch.positions = View(positions, {num_tokens_});
    batch.slot_mapping = View(slots, {num_tokens_});
    batch.block_table = View(table_, {2, kBlocksEach});
    plan_->Fill(batch);
  }

  int64_t num_tokens() const { return num_tokens_; }
  StatePart part() const { return {.kv = cache_->layer(0), .offset = 0}; }
  const AttentionPlan& plan() const { return *plan_; }
  // The output, then all states.
  std::vector<float> Result(const Tensor& out) const {
    std::vector<float> result = Floats(backend_, out);
    const LayerKv kv = cache_->layer(0);
    result.insert(result.end(), kv.states, kv.states + kv.num_blocks * kv.state_size);
    return result;
  }

 private:
  Backend& backend_;
  int64_t num_tokens_;
  std::vector<int32_t> table_ = std::vector<int32_t>(2 * kBlocksEach);  // the plan looks at it
  std::unique_ptr<KvCache> cache_;
  std::unique_ptr<AttentionPlan> plan_;
};

// Draws a case by each of some seeds, and runs it on each instruction set: draw(draw) returns
// run(backend), whose numbers must have the same bits in all that compute in one type.
using CaseOfOp = std::function<std::vector<float>(Backend&)>;
template <class F>
void CheckSameBits(F draw_case) {
  constexpr uint64_t kNumSeeds = 12;
  const uint64_t first = FromEnvironment("TANDEM_SEED", 20261127);
  for (uint64_t seed = first; seed < first + kNumSeeds; ++seed) {
    INFO("TANDEM_SEED=" << seed);
    Draw draw(seed);
    const CaseOfOp run = draw_case(draw);
    std::map<DType, std::vector<float>> expected;  // of the scalar kernels, which come first
    for (const BackendCase& backend_case : BackendCases()) {
      INFO(backend_case.name);
      const std::vector<float> got = run(*backend_case.make(draw.Int(1, 3)));
      if (backend_case.is_scalar) {
        expected[backend_case.dtype] = got;
      } else {
        CHECK(SameBits(got, expected[backend_case.dtype]));
      }
    }
  }
}

// check(backend) for the float32 backend of each instruction set.
void ForFloatBackends(const std::function<void(Backend&)>& check) {
  for (const BackendCase& backend_case : BackendCases()) {
    if (backend_case.dtype != DType::kF32) continue;
    INFO(backend_case.name);
    check(*backend_case.make(1));
  }
}

std::array<int32_t, 2> DrawLengths(Draw& draw) { return {draw.Int(1, 70), draw.Int(1, 120)}; }

TEST_CASE("Convolve has the same bits on every instruction set") {
  CheckSameBits([](Draw& draw) -> CaseOfOp {
    const int64_t channels = draw.Int(1, 200), kernel = draw.Int(1, 8);
    const auto lengths = DrawLengths(draw);
    const auto x = draw.Normals((lengths[0] + lengths[1]) * channels);
    // Products with bf16 numbers would be exact.
    std::vector<float> weight(kernel * channels);
    for (float& number : weight) number = draw.Normal();
    const auto bias = draw.Normals(channels);
    const bool has_bias = draw.Int(0, 1) == 1, has_silu = draw.Int(0, 1) == 1;
    return [=](Backend& backend) {
      const OneStep step(backend, kernel * channels, lengths);
      const OwnedTensor taps = Upload(backend, weight, {kernel, channels}, DType::kF32);
      const OwnedTensor biases = Upload(backend, bias, {channels}, DType::kF32);
      const OwnedTensor in = UploadAct(backend, x, {step.num_tokens(), channels});
      const OwnedTensor out = Make(backend, in.view().dtype, {step.num_tokens(), channels});
      backend.ops().Convolve(
          out, in,
          {.weight = taps, .bias = has_bias ? biases.view() : Tensor(), .has_silu = has_silu},
          step.part(), step.plan());
      return step.Result(out);
    };
  });
}

TEST_CASE("DeltaRule has the same bits on every instruction set") {
  CheckSameBits([](Draw& draw) -> CaseOfOp {
    DeltaOptions options;
    options.num_key_heads = draw.Int(1, 2);
    options.num_value_heads = options.num_key_heads * draw.Int(1, 2);
    options.key_dim = draw.Int(1, 40);
    options.value_dim = draw.Int(1, 150);
    const int64_t heads = options.num_value_heads;
    const int64_t decays = heads * (draw.Int(0, 1) == 0 ? 1 : options.key_dim);
    const int64_t columns = 2 * options.num_key_heads * options.key_dim + heads * options.value_dim;
    const auto lengths = DrawLengths(draw);
    const int64_t num_tokens = lengths[0] + lengths[1];
    const auto qkv = draw.Normals(num_tokens * columns);
    const auto gates = draw.Normals(num_tokens * (heads + decays));
    const auto a_log = draw.Normals(heads, 0.5f), dt_bias = draw.Normals(decays);
    return [=](Backend& backend) {
      const OneStep step(backend, heads * options.key_dim * options.value_dim, lengths);
      const OwnedTensor a = Upload(backend, a_log, {heads}, DType::kF32);
      const OwnedTensor bias = Upload(backend, dt_bias, {decays}, DType::kF32);
      const OwnedTensor out =
          Make(backend, backend.activation_dtype(), {num_tokens, heads * options.value_dim});
      DeltaOptions own = options;
      own.a_log = a;
      own.dt_bias = bias;
      backend.ops().DeltaRule(out, UploadAct(backend, qkv, {num_tokens, columns}),
                              UploadAct(backend, gates, {num_tokens, heads + decays}), own,
                              step.part(), step.plan());
      return step.Result(out);
    };
  });
}

TEST_CASE("StateScan has the same bits on every instruction set") {
  CheckSameBits([](Draw& draw) -> CaseOfOp {
    ScanOptions options;
    options.num_groups = draw.Int(1, 2);
    options.num_heads = options.num_groups * draw.Int(1, 3);
    options.head_dim = draw.Int(1, 150);
    options.state_dim = draw.Int(1, 40);
    options.dt_max = 2;
    const int64_t heads = options.num_heads, inner = heads * options.head_dim;
    const int64_t columns = inner + 2 * options.num_groups * options.state_dim;
    const auto lengths = DrawLengths(draw);
    const int64_t num_tokens = lengths[0] + lengths[1];
    const auto xbc = draw.Normals(num_tokens * columns), dt = draw.Normals(num_tokens * heads);
    const auto a_log = draw.Normals(heads, 0.5f), dt_bias = draw.Normals(heads);
    const auto d = draw.Normals(heads);
    return [=](Backend& backend) {
      const OneStep step(backend, inner * options.state_dim, lengths);
      const OwnedTensor a = Upload(backend, a_log, {heads}, DType::kF32);
      const OwnedTensor bias = Upload(backend, dt_bias, {heads}, DType::kF32);
      const OwnedTensor skip = Upload(backend, d, {heads}, DType::kF32);
      const OwnedTensor out = Make(backend, backend.activation_dtype(), {num_tokens, inner});
      ScanOptions own = options;
      own.a_log = a;
      own.dt_bias = bias;
      own.d = skip;
      backend.ops().StateScan(out, UploadAct(backend, xbc, {num_tokens, columns}),
                              UploadAct(backend, dt, {num_tokens, heads}), own, step.part(),
                              step.plan());
      return step.Result(out);
    };
  });
}

// Of SelectiveScan.
struct SelectCase {
  int64_t channels = 0, states = 0;
  std::array<int32_t, 2> lengths = {};
  std::vector<float> x, dt, bc, a, dt_bias, d;

  std::vector<float> Run(Backend& backend) const {
    const OneStep step(backend, channels * states, lengths);
    const int64_t num_tokens = step.num_tokens();
    const OwnedTensor decays = Upload(backend, a, {states, channels}, DType::kF32);
    const OwnedTensor bias = Upload(backend, dt_bias, {channels}, DType::kF32);
    const OwnedTensor skip = Upload(backend, d, {channels}, DType::kF32);
    const OwnedTensor out = Make(backend, backend.activation_dtype(), {num_tokens, channels});
    backend.ops().SelectiveScan(out, UploadAct(backend, x, {num_tokens, channels}),
                                Upload(backend, dt, {num_tokens, channels}, DType::kF32),
                                UploadAct(backend, bc, {num_tokens, 2 * states}),
                                {.a = decays, .dt_bias = bias, .d = skip}, step.part(),
                                step.plan());
    return step.Result(out);
  }
};

TEST_CASE("SelectiveScan has the same bits on every instruction set") {
  CheckSameBits([](Draw& draw) -> CaseOfOp {
    SelectCase c;
    c.channels = draw.Int(1, 200);
    c.states = draw.Int(1, 20);
    c.lengths = DrawLengths(draw);
    const int64_t num_tokens = c.lengths[0] + c.lengths[1];
    c.x = draw.Normals(num_tokens * c.channels);
    c.dt = draw.Normals(num_tokens * c.channels);
    c.bc = draw.Normals(num_tokens * 2 * c.states);
    c.a = draw.Normals(c.states * c.channels, 3);
    for (float& number : c.a) number = -std::exp(number);
    c.dt_bias = draw.Normals(c.channels);
    c.d = draw.Normals(c.channels);
    return [c](Backend& backend) { return c.Run(backend); };
  });
}

// The first token makes each state 1, the second one adds nothing to it and reads it.
TEST_CASE("SelectiveScan decays by ExpNonPositive, to the bit") {
  constexpr float kStep = 32;  // large enough to be its own softplus
  SelectCase c;
  c.channels = 2003;
  c.states = 1;
  c.lengths = {2, 1};
  const uint64_t seed = FromEnvironment("TANDEM_SEED", 20261127);
  INFO("TANDEM_SEED=" << seed);
  Draw draw(seed);
  for (int64_t i = 0; i < c.channels; ++i) {
    // Down to beyond the smallest result, and up to denormals.
    const auto exponent = static_cast<float>(draw.Int(-14000, 300)) / 100;
    const auto uniform = static_cast<float>(draw.Int(0, 1 << 24)) * 0x1p-24f * 88;
    c.a.push_back(i % 2 == 0 ? -uniform / kStep : -std::exp2(exponent));
  }
  const std::vector<float> some = {-0.0f, 0.0f, -87.0f / kStep, -86.99999f / kStep, -1e30f};
  std::ranges::copy(some, c.a.begin());
  for (const float x : {1 / kStep, 0.0f, 0.0f}) c.x.insert(c.x.end(), 2003, x);
  c.dt.assign(3 * 2003, kStep);
  c.bc.assign(6, 1);
  c.dt_bias.assign(2003, 0);
  c.d.assign(2003, 0);
  std::vector<float> expected;
  for (const float a : c.a) expected.push_back(ExpNonPositive(a * kStep));
  ForFloatBackends([&](Backend& backend) {
    const std::vector<float> got = c.Run(backend);
    CHECK(SameBits({got.begin() + 2003, got.begin() + 2 * 2003}, expected));
  });
}

// Functions of float32 in the loops are those of kernels/elementary_functions.h. Odd counts leave
// parts of vectors. run(backend, x) is of a row of numbers.
using RowOfBackend = std::function<std::vector<float>(Backend&, const std::vector<float>& x)>;
void CheckFunction(float (*function)(float), const RowOfBackend& run) {
  const uint64_t seed = FromEnvironment("TANDEM_SEED", 20261127);
  INFO("TANDEM_SEED=" << seed);
  std::vector<float> all = NumbersOfAllExponents(seed, 2);
  all.push_back(NAN);
  ForFloatBackends([&](Backend& backend) {
    constexpr int64_t kCount = 1003;
    for (int64_t begin = 0; begin < std::ssize(all); begin += kCount) {
      const auto end = all.begin() + std::min(begin + kCount, std::ssize(all));
      const std::vector<float> x(all.begin() + begin, end), got = run(backend, x);
      int64_t num_others = std::ssize(got) == std::ssize(x) ? 0 : -1;
      for (size_t i = 0; i < x.size(); ++i) {
        const float expected = function(x[i]);
        if (std::isnan(expected) ? !std::isnan(got[i]) : !SameBits({got[i]}, {expected})) {
          ++num_others;
        }
      }
      CHECK(num_others == 0);
    }
  });
}

std::vector<float> All(const std::vector<float>& x, float number) {
  return std::vector<float>(x.size(), number);
}

TEST_CASE("Gates are sigmoids, to the bit") {
  CheckFunction(SigmoidOf<FloatOps, float>, [](Backend& backend, const std::vector<float>& x) {
    const OwnedTensor gated = UploadAct(backend, All(x, 1), {1, std::ssize(x)});
    backend.ops().GateBySigmoid(gated, UploadAct(backend, x, {1, std::ssize(x)}));
    return Floats(backend, gated);
  });
}

TEST_CASE("Convolve applies SiLU, to the bit") {
  // Sums begin with 0, so that none is -0.
  const auto function = [](float x) { return SiluOf<FloatOps>(x + 0.0f); };
  CheckFunction(function, [](Backend& backend, const std::vector<float>& x) {
    const auto channels = std::ssize(x);
    const OneStep step(backend, channels, {1, 1});
    std::vector<float> rows = x;
    rows.insert(rows.end(), x.begin(), x.end());
    const OwnedTensor ones = Upload(backend, All(x, 1), {1, channels}, DType::kF32);
    const OwnedTensor out = Make(backend, DType::kF32, {2, channels});
    backend.ops().Convolve(out, UploadAct(backend, rows, {2, channels}),
                           {.weight = ones, .bias = {}, .has_silu = true}, step.part(),
                           step.plan());
    return Floats(backend, out.view().Rows(1, 1));
  });
}

// A state that was empty is the step, and comes out.
TEST_CASE("SelectiveScan's steps are softplus, to the bit") {
  CheckFunction(SoftplusOf<FloatOps, float>, [](Backend& backend, const std::vector<float>& x) {
    SelectCase c;
    c.channels = std::ssize(x);
    c.states = 1;
    c.lengths = {1, 1};
    c.x = All(x, 1);
    c.x.insert(c.x.end(), x.size(), 1);
    c.dt = x;
    c.dt.insert(c.dt.end(), x.begin(), x.end());
    c.bc.assign(4, 1);
    c.a = All(x, -1);
    c.dt_bias = All(x, 0);
    c.d = All(x, 0);
    std::vector<float> result = c.Run(backend);
    result.resize(x.size());  // of the first token
    return result;
  });
}

TEST_CASE("Gates of recurrent layers have the same bits on every instruction set") {
  CheckSameBits([](Draw& draw) -> CaseOfOp {
    const int64_t group = draw.Int(1, 90), size = group * draw.Int(1, 3), rows = draw.Int(1, 9);
    // Some products are denormal in bf16, too.
    const auto x = draw.Normals(rows * size, draw.Int(0, 2) == 0 ? 0x1p-70f : 1);
    auto y = draw.Normals(rows * size, draw.Int(0, 2) == 0 ? 0x1p-62f : 1);
    y[0] = NAN;
    const auto weight = draw.Normals(group);
    const bool gates_first = draw.Int(0, 1) == 1, has_sigmoid = draw.Int(0, 1) == 1;
    return [=](Backend& backend) {
      const OwnedTensor factors = UploadAct(backend, y, {rows, size});
      const OwnedTensor product = UploadAct(backend, x, {rows, size});
      backend.ops().MultiplyBy(product, factors);
      std::vector<float> result = Floats(backend, product);
      const OwnedTensor gated = UploadAct(backend, x, {rows, size});
      backend.ops().GateBySigmoid(gated, factors);
      const OwnedTensor normed = Make(backend, backend.activation_dtype(), {rows, size});
      const OwnedTensor weights = Upload(backend, weight, {group}, DType::kF32);
      backend.ops().GatedNorm(normed, gated, factors,
                              {.weight = weights,
                               .group_size = group,
                               .gates_first = gates_first,
                               .has_sigmoid = has_sigmoid});
      for (const OwnedTensor* more : {&gated, &normed}) {
        const std::vector<float> numbers = Floats(backend, *more);
        result.insert(result.end(), numbers.begin(), numbers.end());
      }
      return result;
    };
  });
}

}  // namespace
}  // namespace tandem
