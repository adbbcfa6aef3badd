// Matrices in the blocks of their sources (WeightFormat::kStored): every instruction set has the
// reference's bits, for every row, in any batch, on any number of threads; and the reference is the
// product of the numbers that the blocks stand for, but for the rounding of activations.

#include <array>
#include <cstdint>
#include <random>

#include "kernels/stored_blocks.h"
#include "tests/support/kernels/kernel_cases.h"
#include "tests/support/kernels/random_sources.h"

#include <catch2/catch.hpp>

namespace tandem {

namespace {

struct Run {
  std::vector<float> x, bias, before;
  int64_t m, n, k;
  bool adds;

  std::vector<float> On(Backend& backend, std::span<const MatrixSource> sources) const {
    const auto packed = backend.Pack(sources, WeightFormat::kStored).value();
    const OwnedTensor out = Upload(backend, before, {m, n}, DType::kF32);
    auto biases = bias;
    backend.ops().Linear(out, UploadAct(backend, x, {m, k}), *packed,
                         adds ? Tensor() : View(biases, {n}),
                         adds ? LinearEpilogue::kAddResidual : LinearEpilogue::kStore);
    return Floats(backend, out);
  }
};

Run DrawRun(Draw& draw, int64_t m, int64_t n, int64_t k) {
  Run run = {draw.Normals(m * k, 3), draw.Normals(n), draw.Normals(m * n), m, n, k,
             draw.Int(0, 1) == 1};
  std::fill_n(run.x.begin(), 40, 0.0f);
  if (m > 2) run.x[static_cast<size_t>(2 * k + draw.Int(0, static_cast<int>(k) - 1))] = INFINITY;
  if (m > 3) run.x[static_cast<size_t>(3 * k + 1)] = ToFloat(ToBf16(3e38f));
  return run;
}

void CheckEqual(const std::vector<float>& ours, const std::vector<float>& expected, int64_t n) {
  REQUIRE(ours.size() == expected.size());
  for (size_t i = 0; i < ours.size(); ++i) {
    if (ours[i] == expected[i] || (std::isnan(ours[i]) && std::isnan(expected[i]))) continue;
    CAPTURE(i / static_cast<size_t>(n), i % static_cast<size_t>(n), ours[i], expected[i]);
    REQUIRE(ours[i] == expected[i]);
  }
}

void CheckOnAll(const Run& run, std::span<const MatrixSource> sources) {
  const auto reference = MakeReferenceBackend();
  const std::vector<float> expected = run.On(*reference, sources);
  for (const BackendCase& backend_case : BackendCases()) {
    INFO(backend_case.name);
    CheckEqual(run.On(*backend_case.make(2), sources), expected, run.n);
  }
}

constexpr int kRows[] = {1, 2, 3, 4, 5, 6, 7, 8, 13, 31};

TEST_CASE("Linear in blocks has the reference's bits on every instruction set") {
  for (const Layout& layout : kLayouts) {
    for (int seed = 1; seed <= 4; ++seed) {
      Draw draw(seed);
      const int64_t m = seed == 4 ? 100 : kRows[draw.Int(0, 9)],
                    n = draw.Int(1, seed == 4 ? 20 : 140);
      const int64_t k = 256 * draw.Int(1, seed == 4 ? 2 : 3);
      CAPTURE(layout.name, seed, m, n, k);
      RandomBlocks blocks(draw, layout, n, k, /*is_hostile=*/seed == 3);
      const MatrixSource source = blocks.source();
      CheckOnAll(DrawRun(draw, m, n, k), {&source, 1});
    }
  }
}

TEST_CASE("Linear in blocks: rows of several formats are one matrix") {
  for (int seed = 1; seed <= 6; ++seed) {
    Draw draw(seed);
    CAPTURE(seed);
    const int64_t k = 512;
    std::vector<RandomBlocks> blocks;
    std::vector<MatrixSource> sources;
    int64_t n = 0;
    for (int i = 0; i < 3; ++i) {
      const int64_t rows = draw.Int(1, 100);
      blocks.emplace_back(draw, kLayouts[static_cast<size_t>(draw.Int(0, 12))], rows, k);
      n += rows;
    }
    for (RandomBlocks& part : blocks) sources.push_back(part.source());
    CheckOnAll(DrawRun(draw, kRows[draw.Int(0, 9)], n, k), sources);

    // A rank's rows of each source give the same numbers.
    const Run run = DrawRun(draw, 2, n, k);
    const auto reference = MakeReferenceBackend();
    const auto backend = BackendCases()[0].make(1);
    const int64_t last = sources[2].rows();
    const MatrixSource part = sources[2].Rows(last / 2, last - last / 2);
    Run part_run = run;
    part_run.n = part.rows();
    part_run.bias.assign(run.bias.end() - part.rows(), run.bias.end());
    part_run.before.clear();
    std::vector<float> expected;
    const std::vector<float> whole = run.On(*backend, sources);
    for (int64_t t = 0; t < 2; ++t) {
      const auto end = static_cast<int64_t>((t + 1) * n);
      part_run.before.insert(part_run.before.end(), run.before.begin() + end - part.rows(),
                             run.before.begin() + end);
      expected.insert(expected.end(), whole.begin() + end - part.rows(), whole.begin() + end);
    }
    CHECK(SameBits(part_run.On(*backend, {&part, 1}), expected));
  }
}

TEST_CASE("Linear in blocks: codes of quantized checkpoints") {
  struct Case {
    int low, high;
    int64_t group;
    bool has_zeros;
  };
  const Case cases[] = {{0, 15, 32, true},  {0, 15, 128, true},     {-8, 7, 64, false},
                        {-8, 7, 96, false}, {-128, 127, 32, false}, {-128, 127, 128, true},
                        {0, 3, 32, true},   {-12, 12, 32, false},   {0, 7, 0, true}};
  for (const Case& codes_case : cases) {
    Draw draw(7);
    const int64_t n = draw.Int(1, 130), k = codes_case.group == 96 ? 384 : 512;
    CAPTURE(codes_case.low, codes_case.high, codes_case.group, codes_case.has_zeros, n);
    RandomCodes codes(draw, n, k, codes_case.low, codes_case.high, codes_case.group,
                      codes_case.has_zeros);
    const MatrixSource source = codes.source();
    REQUIRE(FindStoredFormat(source));
    const Run run = DrawRun(draw, kRows[draw.Int(0, 9)], n, k);
    CheckOnAll(run, {&source, 1});
    const auto packed =
        BackendCases()[0].make(1)->Pack({&source, 1}, WeightFormat::kStored).value();
    CHECK(static_cast<double>(packed->num_bytes()) * 8 ==
          StoredBits(*FindStoredFormat(source)) * static_cast<double>((n + 63) / 64 * 64 * k));
  }
}

TEST_CASE("Linear in blocks: what has no blocks is multiplied as numbers") {
  Draw draw(3);
  const int64_t n = 20, k = 256;
  std::vector<float> numbers = draw.Normals(n * k);
  RandomBlocks blocks(draw, kLayouts[0], n, 2 * k);
  RandomCodes narrow(draw, n, k, 0, 15, 16, true), odd(draw, n, k + 1, 0, 15, 32, false);
  std::vector<float> halves(static_cast<size_t>(n * k / 32), 0.5f);
  RandomCodes codes(draw, n, k, 0, 15, 32, false);
  MatrixSource half_zeros = codes.source();
  half_zeros.zeros = View(halves, {n, k / 32});
  const MatrixSource dense = View(numbers, {n, k}), whole = blocks.source();
  CHECK_FALSE(FindStoredFormat(dense));
  CHECK_FALSE(FindStoredFormat(narrow.source()));
  CHECK_FALSE(FindStoredFormat(odd.source()));
  CHECK_FALSE(FindStoredFormat(half_zeros));
  CHECK_FALSE(FindStoredFormat(whole.Columns(7, 256)));
  CHECK_FALSE(FindStoredFormat(whole.Columns(0, 250)));
  CHECK(FindStoredFormat(whole.Columns(32, 256)));
  const MatrixSource part = whole.Columns(0, k);
  const MatrixSource mixed[] = {dense, part}, alone[] = {part};
  CHECK(ResolveFormat(mixed, WeightFormat::kStored) == WeightFormat::kCompute);
  CHECK(ResolveFormat(alone, WeightFormat::kStored) == WeightFormat::kStored);
  CHECK(ResolveFormat(alone, WeightFormat::kInt8) == WeightFormat::kInt8);
  RandomCodes rows(draw, n, k, -128, 127, 0, false);
  MatrixSource int8_rows = rows.source();
  CHECK(ResolveFormat({&int8_rows, 1}, WeightFormat::kStored) == WeightFormat::kStored);
  int8_rows.is_w8a8 = true;
  CHECK(ResolveFormat({&int8_rows, 1}, WeightFormat::kStored) == WeightFormat::kInt8);
  const auto backend = BackendCases()[0].make(1);
  const Run run = DrawRun(draw, 2, 2 * n, k);
  const auto packed = backend->Pack(mixed, WeightFormat::kCompute).value();
  const OwnedTensor out = Upload(*backend, run.before, {2, 2 * n}, DType::kF32);
  auto bias = run.bias;
  backend->ops().Linear(out, UploadAct(*backend, run.x, {2, k}), *packed,
                        run.adds ? Tensor() : View(bias, {2 * n}),
                        run.adds ? LinearEpilogue::kAddResidual : LinearEpilogue::kStore);
  CHECK(SameBits(run.On(*backend, mixed), Floats(*backend, out)));
}

// Each activation is rounded by at most half of its block's scale, and sums of float32 add little.
TEST_CASE("Linear in blocks: the error is that of rounded activations") {
  for (const Layout& layout : kLayouts) {
    Draw draw(11);
    const int64_t m = 5, n = 40, k = 1024;
    CAPTURE(layout.name);
    RandomBlocks blocks(draw, layout, n, k);
    const MatrixSource source = blocks.source();
    Run run = {draw.Normals(m * k, 2), draw.Normals(n), draw.Normals(m * n), m, n, k, false};
    const auto backend = BackendCases()[0].make(1);
    const std::vector<float> y = run.On(*backend, {&source, 1});
    std::vector<float> w(static_cast<size_t>(k));
    for (int64_t i = 0; i < n; ++i) {
      source.Read(i, 0, k, DType::kF32, w.data());
      for (int64_t t = 0; t < m; ++t) {
        double exact = run.bias[static_cast<size_t>(i)], bound = 0, size = 0;
        for (int64_t g = 0; g < k; g += kActivationBlock) {
          float max = 0;
          for (int64_t j = g; j < g + kActivationBlock; ++j) {
            max = std::max(max, std::abs(run.x[static_cast<size_t>(t * k + j)]));
          }
          for (int64_t j = g; j < g + kActivationBlock; ++j) {
            const double product =
                double{w[static_cast<size_t>(j)]} * run.x[static_cast<size_t>(t * k + j)];
            exact += product;
            size += std::abs(product);
            bound += std::abs(double{w[static_cast<size_t>(j)]}) * max / 127 / 2;
          }
        }
        const double error = std::abs(y[static_cast<size_t>(t * n + i)] - exact);
        CAPTURE(i, t, exact, bound);
        REQUIRE(error <= bound * 1.001 + size * 1e-4);
      }
    }
  }
}

TEST_CASE("Linear in blocks: each row alone has the bits it has in every batch") {
  for (const BackendCase& backend_case : BackendCases()) {
    for (const char* name : {"Q8_0", "Q4_K", "Q6_K"}) {
      INFO(backend_case.name << ", " << name);
      Draw draw(5);
      const bool is_slow = backend_case.is_scalar;
      const int64_t m = is_slow ? 10 : 300, n = is_slow ? 70 : 130;
      const int64_t k = 2304;  // runs of 32 groups and of 8, the last ones shorter
      const auto layout = std::find_if(kLayouts.begin(), kLayouts.end(), [&](const Layout& each) {
        return std::string(each.name) == name;
      });
      RandomBlocks blocks(draw, *layout, n, k);
      const MatrixSource source = blocks.source();
      const auto x = draw.Normals(m * k);
      auto run = [&](Backend& backend, const PackedMatrix& packed, int64_t begin, int64_t count) {
        const OwnedTensor all = UploadAct(backend, x, {m, k});
        const OwnedTensor out = Make(backend, DType::kF32, {count, n});
        backend.ops().Linear(out, all.view().Rows(begin, count), packed);
        return Floats(backend, out);
      };
      auto one = backend_case.make(1);
      const auto packed_one = one->Pack({&source, 1}, WeightFormat::kStored).value();
      const auto together = run(*one, *packed_one, 0, m);
      for (int threads = 1; threads <= 3; threads += 2) {
        auto backend = backend_case.make(threads);
        const auto packed = backend->Pack({&source, 1}, WeightFormat::kStored).value();
        for (int64_t row = 0; row < m;) {
          const int64_t count = std::min<int64_t>(m - row, draw.Int(1, 40));
          CAPTURE(threads, row, count);
          REQUIRE(SameBits(run(*backend, *packed, row, count),
                           {together.begin() + row * n, together.begin() + (row + count) * n}));
          row += count;
        }
      }
    }
  }
}

TEST_CASE("Embedding in blocks reads the numbers of its rows") {
  auto reference = MakeReferenceBackend();
  for (const BackendCase& backend_case : BackendCases()) {
    auto cpu = backend_case.make(2);
    for (const Layout& layout : kLayouts) {
      INFO(backend_case.name << ", " << layout.name);
      Draw draw(2);
      const int64_t n = 131, k = 256 * draw.Int(1, 2);
      RandomBlocks blocks(draw, layout, n, k);
      const MatrixSource source = blocks.source();
      std::vector<int32_t> ids(n);
      std::iota(ids.begin(), ids.end(), 0);
      draw.Shuffle(&ids);
      auto run = [&](Backend& backend) {
        const auto packed = backend.Pack({&source, 1}, WeightFormat::kStored).value();
        const OwnedTensor out = Make(backend, DType::kF32, {n, k});
        backend.ops().Embedding(out, View(ids, {n}), *packed, 0.5f);
        return Floats(backend, out);
      };
      std::vector<float> expected(static_cast<size_t>(n * k));
      for (int64_t t = 0; t < n; ++t) {
        source.Read(ids[static_cast<size_t>(t)], 0, k, DType::kF32, expected.data() + t * k);
      }
      for (float& number : expected) number *= 0.5f;
      CHECK(run(*cpu) == expected);
      CHECK(run(*reference) == expected);
    }
  }
}

TEST_CASE("Linear in blocks takes the memory of the blocks") {
  struct Case {
    const char* name;
    double bits;
  };
  const auto backend = BackendCases()[0].make(1);
  Draw draw(1);
  for (const Case& wanted : {Case{"Q8_0", 8.5},
                             {"Q4_0", 4.5},
                             {"Q4_K", 4.625},
                             {"Q6_K", 6.5625},
                             {"Q5_K", 5.625},
                             {"MXFP4", 4.25},
                             {"Q2_K", 3.125},
                             {"Q3_K", 3.5625}}) {
    CAPTURE(wanted.name);
    for (const Layout& layout : kLayouts) {
      if (std::string(layout.name) != wanted.name) continue;
      RandomBlocks blocks(draw, layout, 128, 512);
      const MatrixSource source = blocks.source();
      const auto packed = backend->Pack({&source, 1}, WeightFormat::kStored).value();
      CHECK(static_cast<double>(packed->num_bytes()) * 8 / (128 * 512) == wanted.bits);
      CHECK(StoredBits(*FindBlockFormat(wanted.name)) == wanted.bits);
    }
  }
}

}  // namespace

}  // namespace tandem
