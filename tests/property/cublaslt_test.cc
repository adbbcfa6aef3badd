// What the cuda backend gives cuBLASLt to do, and what it does itself around it: the same products
// as without it.

#include <cstdint>
#include <vector>

#include "tests/support/cuda_emulation/emulated_cuda_backend.h"
#include "tests/support/kernels/kernel_cases.h"
#include "tests/support/kernels/random_sources.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

constexpr int64_t kManyRows = 100;  // more than are multiplied as codes

class WithCublasLt {
 public:
  WithCublasLt() { SetEmulatedCublasLt(true); }
  ~WithCublasLt() { SetEmulatedCublasLt(false); }
};

std::unique_ptr<Backend> Cuda() {
  return MakeEmulatedCudaBackend({.dtype = DType::kBf16, .num_threads = 1}).value();
}

struct Case {
  DType out;
  LinearEpilogue epilogue;
  bool has_bias;
};
constexpr Case kEpilogues[] = {{DType::kF32, LinearEpilogue::kStore, true},
                               {DType::kBf16, LinearEpilogue::kStore, false},
                               {DType::kF32, LinearEpilogue::kAddResidual, false},
                               {DType::kBf16, LinearEpilogue::kSiluAndMul, true}};

// Products of many rows with and without the library, which was asked.
void CheckAlike(std::span<const MatrixSource> sources, WeightFormat format, int64_t m,
                float x_scale, float tolerance) {
  Draw draw(m);
  const StackedRows rows(sources);
  const int64_t n = rows.rows(), k = rows.columns();
  const auto x = draw.Normals(m * k, x_scale), bias = draw.Normals(n), before = draw.Normals(m * n);
  for (const Case& wanted : kEpilogues) {
    const bool is_gated = wanted.epilogue == LinearEpilogue::kSiluAndMul;
    const auto run = [&](Backend& backend) {
      const auto packed =
          (is_gated ? backend.PackGated(sources, format) : backend.Pack(sources, format)).value();
      const int64_t columns = is_gated ? n / 2 : n;
      const OwnedTensor out =
          Upload(backend, {before.begin(), before.begin() + m * columns}, {m, columns}, wanted.out);
      const OwnedTensor biases = Upload(backend, bias, {n}, DType::kF32);
      backend.ops().Linear(out, UploadAct(backend, x, {m, k}), *packed,
                           wanted.has_bias ? biases.view() : Tensor(), wanted.epilogue);
      return Floats(backend, out);
    };
    const std::vector<float> expected = run(*Cuda());
    const WithCublasLt installed;
    const int64_t num_before = NumEmulatedGemms();
    CHECK(MaxError(run(*Cuda()), expected) < tolerance);
    CHECK(NumEmulatedGemms() > num_before);
  }
}

TEST_CASE("cuBLASLt: products of numbers") {
  Draw draw(1);
  auto numbers = draw.Normals(48 * 128);
  const MatrixSource source = View(numbers, {48, 128});
  CheckAlike({&source, 1}, WeightFormat::kCompute, 40, 0.1f, 3e-2f);
}

// The emulated one is better than our kernel where the number of rows is even.
TEST_CASE("cuBLASLt: products of few rows where it is the faster one") {
  Draw draw(5);
  auto numbers = draw.Normals(48 * 128);
  const MatrixSource source = View(numbers, {48, 128});
  for (const int64_t m : {2, 6, 16})
    CheckAlike({&source, 1}, WeightFormat::kCompute, m, 0.1f, 3e-2f);
  const WithCublasLt installed;
  const auto backend = Cuda();
  const auto packed = backend->Pack({&source, 1}, WeightFormat::kCompute).value();
  const int64_t num_before = NumEmulatedGemms();
  for (const int64_t m : {1, 3, 7, 15}) {
    const OwnedTensor out = Make(*backend, DType::kF32, {m, 48});
    backend->ops().Linear(out, UploadAct(*backend, draw.Normals(m * 128), {m, 128}), *packed);
    Floats(*backend, out);
  }
  CHECK(NumEmulatedGemms() == num_before);
}

TEST_CASE("cuBLASLt: products of codes that are made into numbers") {
  Draw draw(2);
  RandomBlocks first(draw, kLayouts[7], 20, 256), second(draw, kLayouts[9], 28, 256);
  const MatrixSource sources[] = {first.source(), second.source()};
  CheckAlike(sources, WeightFormat::kStored, kManyRows, 1e-3f, 3e-2f);
}

// Activations are rounded to e4m3, each by up to a sixteenth.
TEST_CASE("cuBLASLt: products of e4m3 with activations in e4m3") {
  Draw draw(3);
  RandomMatrix matrix(draw, kCodedCases[0], 48, 256);
  std::vector<MatrixSource> sources = matrix.sources();
  for (MatrixSource& source : sources) source.is_w8a8 = true;
  // The numbers of the matrix are up to some tens.
  CheckAlike(sources, WeightFormat::kStored, kManyRows, 2e-3f, 0.1f);
}

// Their scheme scales activations by blocks, which cuBLASLt's rows do not have.
TEST_CASE("cuBLASLt: activations of e4m3 in blocks are not rounded, not even of a single block") {
  Draw draw(5);
  for (const int64_t k : {int64_t{128}, int64_t{256}}) {
    CAPTURE(k);
    RandomMatrix matrix(draw, kCodedCases[1], 48, k);
    std::vector<MatrixSource> sources = matrix.sources();
    for (MatrixSource& source : sources) source.is_w8a8 = true;
    CheckAlike(sources, WeightFormat::kStored, kManyRows, 2e-3f, 3e-2f);
  }
}

TEST_CASE("cuBLASLt: a row of x that is zero or not finite stays its own matter") {
  const WithCublasLt installed;
  const auto backend = Cuda();
  Draw draw(4);
  const int64_t m = kManyRows, n = 16, k = 64;
  RandomMatrix matrix(draw, kCodedCases[0], n, k);
  std::vector<MatrixSource> sources = matrix.sources();
  for (MatrixSource& source : sources) source.is_w8a8 = true;
  const auto packed = backend->Pack(sources, WeightFormat::kStored).value();
  auto x = draw.Normals(m * k);
  std::fill_n(x.begin(), k, 0.0f);
  x[static_cast<size_t>(k) + 5] = NAN;
  const OwnedTensor out = Make(*backend, DType::kF32, {m, n});
  backend->ops().Linear(out, UploadAct(*backend, x, {m, k}), *packed);
  const std::vector<float> y = Floats(*backend, out);
  for (int64_t i = 0; i < m * n; ++i) {
    CAPTURE(i / n, i % n);
    if (i < n) CHECK(y[static_cast<size_t>(i)] == 0);
    CHECK(std::isnan(y[static_cast<size_t>(i)]) == (i / n == 1));
  }
}

}  // namespace
}  // namespace tandem
