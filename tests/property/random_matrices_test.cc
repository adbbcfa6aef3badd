// Matrices that the cuda backend draws on the device, against the same numbers made on the host.

#include <cmath>
#include <numeric>

#include "common/random.h"
#include "tests/support/cuda_emulation/emulated_cuda_backend.h"
#include "tests/support/kernels/kernel_cases.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

constexpr RandomMatrices kRandom = {.seed = 77, .deviation = 0.05f};

std::unique_ptr<Backend> MakeRandomBackend(DType dtype, const RandomMatrices& random) {
  return MakeEmulatedCudaBackend({.dtype = dtype, .num_threads = 1, .random = random}).value();
}

std::unique_ptr<PackedMatrix> PackShapes(Backend& backend, std::initializer_list<int64_t> rows,
                                         int64_t columns) {
  std::vector<MatrixSource> blocks;
  for (const int64_t count : rows)
    blocks.emplace_back(Tensor(nullptr, DType::kBf16, {count, columns}));
  return backend.Pack(blocks).value();
}

// All numbers of a matrix, read by an embedding.
std::vector<float> NumbersOf(Backend& backend, const PackedMatrix& matrix) {
  std::vector<int32_t> rows(static_cast<size_t>(matrix.n()));
  std::iota(rows.begin(), rows.end(), 0);
  const OwnedTensor ids = UploadInts(backend, rows, {matrix.n()});
  const OwnedTensor out = Make(backend, DType::kF32, {matrix.n(), matrix.k()});
  backend.ops().Embedding(out, ids, matrix);
  return Floats(backend, out);
}

std::vector<float> Expected(DType dtype, uint64_t matrix, int64_t count) {
  std::vector<float> numbers;
  for (int64_t i = 0; i < count; ++i) {
    const auto words = Philox4x32(kRandom.seed, static_cast<uint64_t>(i / 4), matrix);
    const float number =
        RandomMatrices::NumberOf(words[static_cast<size_t>(i % 4)], kRandom.width());
    numbers.push_back(dtype == DType::kBf16 ? ToFloat(ToBf16(number)) : number);
  }
  return numbers;
}

}  // namespace

TEST_CASE("random matrices: each number equals the host's, for any shape") {
  for (const DType dtype : {DType::kBf16, DType::kF32}) {
    CAPTURE(DTypeName(dtype));
    const auto backend = MakeRandomBackend(dtype, kRandom);
    // Odd widths are padded; the last is more than one round of all blocks.
    const std::pair<int64_t, int64_t> shapes[] = {{1, 1}, {3, 5}, {7, 33}, {40, 64}, {1031, 67}};
    uint64_t matrix = 0;
    for (const auto& [rows, columns] : shapes) {
      CAPTURE(rows, columns);
      const auto packed = PackShapes(*backend, {rows}, columns);
      CHECK(SameBits(NumbersOf(*backend, *packed), Expected(dtype, matrix, rows * columns)));
      ++matrix;
    }
  }
}

TEST_CASE("random matrices: blocks are one matrix, and padding is not part of it") {
  const auto backend = MakeRandomBackend(DType::kBf16, kRandom);
  const auto packed = PackShapes(*backend, {4, 2, 3}, 13);
  const std::vector<float> numbers = Expected(DType::kBf16, 0, 9 * 13);
  CHECK(SameBits(NumbersOf(*backend, *packed), numbers));
  const std::vector<float> x(13, 1.0f);
  const OwnedTensor out = Make(*backend, DType::kF32, {1, 9});
  backend->ops().Linear(out, UploadAct(*backend, x, {1, 13}), *packed);
  const std::vector<float> sums = Floats(*backend, out);
  for (size_t n = 0; n < 9; ++n) {
    const auto begin = numbers.begin() + static_cast<std::ptrdiff_t>(13 * n);
    CHECK(sums[n] == Approx(std::accumulate(begin, begin + 13, 0.0)).margin(1e-5));
  }
}

TEST_CASE("random matrices: the asked deviation, and other numbers per matrix and seed") {
  const auto backend = MakeRandomBackend(DType::kF32, kRandom);
  const auto first = PackShapes(*backend, {128}, 64), second = PackShapes(*backend, {128}, 64);
  const std::vector<float> numbers = NumbersOf(*backend, *first);
  double sum = 0, squares = 0;
  for (const float x : numbers) {
    sum += x;
    squares += double{x} * x;
  }
  const auto count = static_cast<double>(numbers.size());
  CHECK(std::abs(sum / count) < 4 * kRandom.deviation / std::sqrt(count));
  CHECK(std::sqrt(squares / count) == Approx(kRandom.deviation).epsilon(0.03));
  CHECK_FALSE(SameBits(NumbersOf(*backend, *second), numbers));
  const auto other = MakeRandomBackend(DType::kF32, {.seed = 78, .deviation = 0.05f});
  CHECK_FALSE(SameBits(NumbersOf(*other, *PackShapes(*other, {128}, 64)), numbers));
  const auto same = MakeRandomBackend(DType::kF32, kRandom);
  CHECK(SameBits(NumbersOf(*same, *PackShapes(*same, {128}, 64)), numbers));
}

}  // namespace tandem
