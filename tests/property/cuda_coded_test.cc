// Matrices that the cuda backend keeps in codes: products are those of the numbers that the codes
// stand for, whatever the number of rows, in the memory of the codes.

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernels/float8.h"
#include "tests/support/cuda_emulation/emulated_cuda_backend.h"
#include "tests/support/kernels/kernel_cases.h"
#include "tests/support/kernels/random_sources.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

std::unique_ptr<Backend> Cuda(DType dtype = DType::kBf16) {
  return MakeEmulatedCudaBackend({.dtype = dtype, .num_threads = 2}).value();
}

// The numbers of a stack, row by row.
std::vector<float> Numbers(std::span<const MatrixSource> sources) {
  const StackedRows rows(sources);
  std::vector<float> numbers(static_cast<size_t>(rows.rows() * rows.columns()));
  for (int64_t i = 0; i < rows.rows(); ++i) {
    rows.Read(i, 0, rows.columns(), DType::kF32, numbers.data() + i * rows.columns());
  }
  return numbers;
}

struct Product {
  std::vector<float> x, bias, before;
  int64_t m, n, k;

  static Product Make(Draw& draw, int64_t m, int64_t n, int64_t k) {
    return {draw.Normals(m * k), draw.Normals(n), draw.Normals(m * n), m, n, k};
  }
  std::vector<float> On(Backend& backend, const PackedMatrix& packed, bool adds) const {
    const OwnedTensor out = Upload(backend, before, {m, n}, DType::kF32);
    const OwnedTensor biases = Upload(backend, bias, {n}, DType::kF32);
    backend.ops().Linear(out, UploadAct(backend, x, {m, k}), packed,
                         adds ? Tensor() : biases.view(),
                         adds ? LinearEpilogue::kAddResidual : LinearEpilogue::kStore);
    return Floats(backend, out);
  }
  // `relative`: of the sum of the sizes of products.
  void Check(const std::vector<float>& ours, const std::vector<float>& w, bool adds,
             double relative) const {
    REQUIRE(ours.size() == static_cast<size_t>(m * n));
    for (int64_t t = 0; t < m; ++t) {
      for (int64_t i = 0; i < n; ++i) {
        const auto at = static_cast<size_t>(t * n + i);
        double exact = adds ? before[at] : bias[static_cast<size_t>(i)], size = std::abs(exact);
        for (int64_t j = 0; j < k; ++j) {
          const double product =
              double{x[static_cast<size_t>(t * k + j)]} * w[static_cast<size_t>(i * k + j)];
          exact += product;
          size += std::abs(product);
        }
        if (std::abs(ours[at] - exact) <= relative * size + 1e-30) continue;
        CAPTURE(t, i, ours[at], exact, size);
        REQUIRE(std::abs(ours[at] - exact) <= relative * size + 1e-30);
      }
    }
  }
};

constexpr double kSumError = 2e-5;      // of float32, and of what cancels in a group with an offset
constexpr double kRoundedError = 4e-3;  // of weights that are rounded to bf16
constexpr double kFloat8Error = 4e-2;   // of activations that are rounded to e4m3
constexpr int kRows[] = {1, 3, 8, 9, 16, 17, 33, 70};
constexpr int64_t kManyRows = 100;  // more than are multiplied as codes

void CheckProducts(Draw& draw, std::span<const MatrixSource> sources, int64_t m,
                   double error = kSumError) {
  const auto backend = Cuda();
  const auto packed = backend->Pack(sources, WeightFormat::kStored).value();
  const std::vector<float> w = Numbers(sources);
  for (const bool adds : {false, true}) {
    const Product product = Product::Make(draw, m, packed->n(), packed->k());
    CAPTURE(adds);
    product.Check(product.On(*backend, *packed, adds), w, adds,
                  m >= kManyRows ? std::max(error, kRoundedError) : error);
  }
}

TEST_CASE("CUDA: products of GGML's blocks") {
  for (const Layout& layout : kLayouts) {
    for (int seed = 1; seed <= 3; ++seed) {
      Draw draw(seed);
      const int64_t m = seed == 3 ? kManyRows : kRows[draw.Int(0, 7)];
      const int64_t n = draw.Int(1, 70), k = layout.name[0] == 'Q' && layout.name[3] == 'K'
                                                 ? 256 * draw.Int(1, 3)
                                                 : 256 * draw.Int(1, 2);
      CAPTURE(layout.name, seed, m, n, k);
      RandomBlocks blocks(draw, layout, n, k);
      const MatrixSource source = blocks.source();
      CheckProducts(draw, {&source, 1}, m);
    }
  }
}

TEST_CASE("CUDA: products of blocks that end within a chunk of columns") {
  for (const int64_t k : {32, 96, 160}) {
    for (const char* name : {"Q4_0", "Q8_0", "Q5_1"}) {
      Draw draw(k);
      CAPTURE(name, k);
      const auto layout = std::find_if(kLayouts.begin(), kLayouts.end(), [&](const Layout& each) {
        return std::string(each.name) == name;
      });
      RandomBlocks blocks(draw, *layout, 20, k);
      const MatrixSource source = blocks.source();
      CheckProducts(draw, {&source, 1}, 5);
    }
  }
}

TEST_CASE("CUDA: products of codes with scales by groups") {
  struct Case {
    int low, high;
    int64_t group;
    bool has_zeros;
  };
  const Case cases[] = {{0, 15, 32, true},  {0, 15, 128, true},     {-8, 7, 64, false},
                        {-8, 7, 96, false}, {-128, 127, 32, false}, {-128, 127, 128, true},
                        {0, 3, 32, true},   {0, 7, 0, true},        {-128, 127, 0, false},
                        {0, 15, 16, true},  {-8, 7, 48, false}};
  for (const Case& codes_case : cases) {
    for (const int64_t m : {int64_t{7}, kManyRows}) {
      Draw draw(7);
      const int64_t n = draw.Int(1, 70), k = codes_case.group % 48 == 0 ? 384 : 512;
      CAPTURE(codes_case.low, codes_case.high, codes_case.group, codes_case.has_zeros, n, m);
      RandomCodes codes(draw, n, k, codes_case.low, codes_case.high, codes_case.group,
                        codes_case.has_zeros);
      const MatrixSource source = codes.source();
      CheckProducts(draw, {&source, 1}, m);
      const auto packed = Cuda()->Pack({&source, 1}, WeightFormat::kStored).value();
      CHECK(packed->num_bytes() < (n + 15) / 16 * 16 * k * 2);
    }
  }
}

TEST_CASE("CUDA: products of e4m3, tables, NVFP4 and groups in activation order") {
  for (const CodedCase& kind : kCodedCases) {
    for (const int64_t m : {int64_t{1}, int64_t{20}, kManyRows}) {
      for (const int64_t k : {int64_t{192}, int64_t{256}}) {
        Draw draw(m + k);
        CAPTURE(kind.name, m, k);
        RandomMatrix matrix(draw, kind, 70, k);
        // Tables are rounded to bf16, and so are matrices with groups of different sizes.
        const bool is_rounded = kind.kind == CodeKind::kTable || kind.group < 0;
        CheckProducts(draw, matrix.sources(), m, is_rounded ? kRoundedError : kSumError);
      }
    }
  }
}

// Groups of equal sizes, in any order, stay codes.
TEST_CASE("CUDA: GPTQ's activation order stays in codes") {
  Draw draw(3);
  const int64_t n = 40, k = 256, group = 64;
  RandomCodes codes(draw, n, k, 0, 15, group, true);
  MatrixSource source = codes.source();
  std::vector<int32_t> groups(static_cast<size_t>(k));
  for (int64_t i = 0; i < k; ++i) groups[static_cast<size_t>(i)] = static_cast<int32_t>(i / group);
  draw.Shuffle(&groups);
  source.column_groups = View(groups, {k});
  source.group_size = 0;
  const auto backend = Cuda();
  const auto packed = backend->Pack({&source, 1}, WeightFormat::kStored).value();
  CHECK(packed->num_bytes() < n * k);
  for (const int64_t m : {int64_t{2}, kManyRows}) CheckProducts(draw, {&source, 1}, m);
}

TEST_CASE("CUDA: rows of several formats are one matrix") {
  for (int seed = 1; seed <= 4; ++seed) {
    Draw draw(seed);
    CAPTURE(seed);
    std::vector<RandomBlocks> blocks;
    std::vector<MatrixSource> sources;
    for (int i = 0; i < 3; ++i) {
      blocks.emplace_back(draw, kLayouts[static_cast<size_t>(draw.Int(0, 12))], draw.Int(1, 40),
                          256);
    }
    for (RandomBlocks& part : blocks) sources.push_back(part.source());
    CheckProducts(draw, sources, kRows[draw.Int(0, 7)]);
  }
}

TEST_CASE("CUDA: gates and norms of a matrix in codes") {
  Draw draw(5);
  const int64_t n = 96, k = 256;
  RandomCodes gate(draw, n / 2, k, 0, 15, 32, true), up(draw, n / 2, k, -8, 7, 64, false);
  const MatrixSource sources[] = {gate.source(), up.source()};
  const std::vector<float> w = Numbers(sources);
  const auto backend = Cuda(), reference = MakeReferenceBackend();
  for (const int64_t m : {int64_t{1}, int64_t{4}, int64_t{30}, kManyRows}) {
    CAPTURE(m);
    const auto x = draw.Normals(m * k), norm = draw.Normals(k, 0.1f);
    const auto run = [&](Backend& on, const PackedMatrix& packed) {
      const OwnedTensor out = Make(on, on.activation_dtype(), {m, n / 2});
      on.ops().RmsNormLinear(out, UploadAct(on, x, {m, k}), Upload(on, norm, {k}, DType::kF32),
                             1e-5f, packed, {}, LinearEpilogue::kSiluAndMul);
      return Floats(on, out);
    };
    const auto ours = run(*backend, *backend->PackGated(sources, WeightFormat::kStored).value());
    const auto expected = run(*reference, *PackGated(*reference, w, n, k));
    CHECK(MaxError(ours, expected) < 3e-2f);
  }
}

TEST_CASE("CUDA: an embedding in codes has its numbers") {
  const auto backend = Cuda();
  const auto check = [&](std::span<const MatrixSource> sources) {
    const std::vector<float> w = Numbers(sources);
    const auto packed = backend->Pack(sources, WeightFormat::kStored).value();
    const int64_t n = packed->n(), k = packed->k();
    std::vector<int32_t> ids = {static_cast<int32_t>(n - 1), 0, 17, 16, static_cast<int32_t>(n)};
    const auto count = static_cast<int64_t>(ids.size());
    const OwnedTensor out = Make(*backend, DType::kF32, {count, k});
    backend->ops().Embedding(out, UploadInts(*backend, ids, {count}), *packed, 0.5f);
    const std::vector<float> ours = Floats(*backend, out);
    for (int64_t t = 0; t < count; ++t) {
      for (int64_t h = 0; h < k; ++h) {
        const float number =
            ids[static_cast<size_t>(t)] < n
                ? ToFloat(ToBf16(w[static_cast<size_t>(ids[static_cast<size_t>(t)] * k + h)]))
                : 0;
        const float got = ours[static_cast<size_t>(t * k + h)];
        REQUIRE(std::abs(got - 0.5f * number) <= std::abs(number) * 0x1p-8f);
      }
    }
  };
  for (const Layout& layout : kLayouts) {
    Draw draw(2);
    CAPTURE(layout.name);
    RandomBlocks blocks(draw, layout, 37, 256);
    const MatrixSource source = blocks.source();
    check({&source, 1});
  }
  for (const CodedCase& kind : kCodedCases) {
    Draw draw(2);
    CAPTURE(kind.name);
    RandomMatrix matrix(draw, kind, 37, 256);
    check(matrix.sources());
  }
}

TEST_CASE("CUDA: experts in codes") {
  const auto backend = Cuda(), reference = MakeReferenceBackend();
  const int64_t num_experts = 5, n = 48, k = 128;
  for (const bool are_alike : {true, false}) {
    for (const int64_t num_tokens : {int64_t{1}, int64_t{6}, int64_t{70}}) {
      Draw draw(num_tokens);
      CAPTURE(are_alike, num_tokens);
      std::vector<RandomCodes> codes;
      for (int64_t e = 0; e < num_experts; ++e) {
        codes.emplace_back(draw, n, k, 0, 15, are_alike || e != 3 ? 32 : 64, true);
      }
      const int64_t top_k = 2, num_pairs = num_tokens * top_k;
      std::vector<int32_t> ids;
      for (int64_t t = 0; t < num_tokens; ++t) {
        const int first = draw.Int(0, 4);
        ids.push_back(first);
        ids.push_back((first + draw.Int(1, 4)) % 5);
      }
      const auto weights = draw.Normals(num_pairs), x = draw.Normals(num_pairs * k, 0.1f);
      const auto run = [&](Backend& on, WeightFormat format) {
        std::vector<std::unique_ptr<PackedMatrix>> matrices;
        for (RandomCodes& expert : codes) {
          const MatrixSource source = expert.source();
          matrices.push_back(on.PackGated({&source, 1}, format).value());
        }
        const auto experts = on.PackExperts(std::move(matrices)).value();
        const OwnedTensor begin = Make(on, DType::kI32, {num_experts + 1});
        const OwnedTensor chosen = Make(on, DType::kI32, {num_experts});
        const OwnedTensor tokens = Make(on, DType::kI32, {num_pairs});
        const OwnedTensor of_token = Make(on, DType::kI32, {num_tokens, top_k});
        const OwnedTensor pair_weights = Make(on, DType::kF32, {num_tokens, top_k});
        const ExpertPairs pairs = {begin, chosen, tokens, of_token, pair_weights};
        const OwnedTensor id_rows = UploadInts(on, ids, {num_tokens, top_k});
        on.ops().GroupByExpert(pairs, id_rows,
                               Upload(on, weights, {num_tokens, top_k}, DType::kF32));
        const OwnedTensor out = Make(on, on.activation_dtype(), {num_pairs, n / 2});
        on.ops().ExpertLinear(out, UploadAct(on, x, {num_pairs, k}), *experts, pairs,
                              LinearEpilogue::kSiluAndMul);
        return Floats(on, out);
      };
      CHECK(MaxError(run(*backend, WeightFormat::kStored),
                     run(*reference, WeightFormat::kCompute)) < 3e-2f);
    }
  }
}

TEST_CASE("CUDA: --quantization keeps integers, which are those of the reference") {
  const auto backend = Cuda();
  Draw draw(9);
  const int64_t n = 50, k = 256;
  auto numbers = draw.Normals(n * k);
  const MatrixSource source = View(numbers, {n, k});
  struct Case {
    WeightFormat format;
    double bits;
  };
  for (const Case& wanted :
       {Case{WeightFormat::kInt8, 8.125}, Case{WeightFormat::kInt4Group32, 5.25},
        Case{WeightFormat::kInt4Group128, 4.3125}}) {
    const auto packed = backend->Pack({&source, 1}, wanted.format).value();
    CHECK(static_cast<double>(packed->num_bytes()) * 8 == wanted.bits * 64 * k);
    const auto reference = MakeReferenceBackend();
    const auto integers = reference->Pack({&source, 1}, wanted.format).value();
    std::vector<int32_t> ids(static_cast<size_t>(n));
    std::iota(ids.begin(), ids.end(), 0);
    const OwnedTensor rows = Make(*reference, DType::kF32, {n, k});
    reference->ops().Embedding(rows, View(ids, {n}), *integers);
    const std::vector<float> w = Floats(*reference, rows);
    const Product product = Product::Make(draw, 6, n, k);
    product.Check(product.On(*backend, *packed, false), w, false, kSumError);
  }
}

TEST_CASE("CUDA: what kernels do not take is multiplied as numbers") {
  Draw draw(3);
  const auto backend = Cuda();
  RandomCodes odd(draw, 20, 250, 0, 15, 0, false), narrow(draw, 20, 256, 0, 15, 8, true);
  for (const MatrixSource& source : {odd.source(), narrow.source()}) {
    const auto packed = backend->Pack({&source, 1}, WeightFormat::kStored).value();
    CHECK(packed->num_bytes() >= 20 * source.columns() * 2);
    CheckProducts(draw, {&source, 1}, 3, kRoundedError);
  }
  // A code that is no number.
  std::vector<int8_t> codes(64 * 256, 0x7f);
  std::vector<float> scales(64, 1);
  MatrixSource nan(Tensor(codes.data(), DType::kI8, {64, 256}));
  nan.scales = View(scales, {64, 1});
  nan.code_kind = CodeKind::kFloat8;
  CHECK(backend->Pack({&nan, 1}, WeightFormat::kStored).value()->num_bytes() == 64 * 256 * 2);
  // In float32 all are numbers.
  RandomCodes plain(draw, 16, 256, 0, 15, 32, false);
  const MatrixSource source = plain.source();
  CHECK(Cuda(DType::kF32)->Pack({&source, 1}, WeightFormat::kStored).value()->num_bytes() ==
        16 * 256 * 4);
}

// By cuBLASLt, where there is one, activations are rounded to e4m3 as well.
TEST_CASE("CUDA: products of many rows in e4m3 by the scheme of their checkpoint") {
  for (const int64_t m : {int64_t{3}, kManyRows}) {
    Draw draw(m);
    CAPTURE(m);
    RandomMatrix matrix(draw, kCodedCases[0], 64, 256);
    std::vector<MatrixSource> sources = matrix.sources();
    for (MatrixSource& source : sources) source.is_w8a8 = true;
    CheckProducts(draw, sources, m, m < kManyRows ? kSumError : kFloat8Error);
  }
}

TEST_CASE("CUDA: rows of x that are not aligned") {
  Draw draw(4);
  const int64_t m = 3, n = 20, k = 64;
  RandomCodes codes(draw, n, k, 0, 15, 32, true);
  const MatrixSource source = codes.source();
  const auto backend = Cuda();
  const auto packed = backend->Pack({&source, 1}, WeightFormat::kStored).value();
  const auto x = draw.Normals(m * (k + 3));
  const OwnedTensor wide = UploadAct(*backend, x, {m, k + 3});
  const OwnedTensor out = Make(*backend, DType::kF32, {m, n});
  backend->ops().Linear(out, wide.view().Columns(1, k), *packed);
  Product product = {.x = {}, .bias = std::vector<float>(n), .before = {}, .m = m, .n = n, .k = k};
  for (int64_t t = 0; t < m; ++t) {
    product.x.insert(product.x.end(), x.begin() + t * (k + 3) + 1, x.begin() + t * (k + 3) + 1 + k);
  }
  product.Check(Floats(*backend, out), Numbers({&source, 1}), false, kRoundedError);
}

}  // namespace
}  // namespace tandem
