#include "kernels/matrix_source.h"

#include <vector>

#include "kernels/packed_matrix.h"
#include "tests/support/kernels/kernel_cases.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

std::vector<float> ReadAll(const MatrixSource& source) {
  std::vector<float> values;
  for (int64_t n = 0; n < source.rows(); ++n) {
    values.resize(values.size() + static_cast<size_t>(source.columns()));
    source.Read(n, 0, source.columns(), DType::kF32,
                values.data() + values.size() - source.columns());
  }
  return values;
}

std::unique_ptr<Backend> MakeBackend(bool is_reference) {
  if (is_reference) return MakeReferenceBackend();
  return MakeCpuBackend({.dtype = DType::kF32, .num_threads = 1}).value();
}

// x W^T
std::vector<float> Product(Backend& backend, std::span<const MatrixSource> blocks,
                           WeightFormat format, std::vector<float> x) {
  const auto weight = backend.Pack(blocks, format).value();
  const auto rows = static_cast<int64_t>(x.size()) / weight->k();
  const OwnedTensor in = UploadAct(backend, x, {rows, weight->k()});
  const OwnedTensor out = Make(backend, DType::kF32, {rows, weight->n()});
  backend.ops().Linear(out, in, *weight);
  return Floats(backend, out);
}

// 4-bit codes with a scale and a zero for each group of three of five columns, and their weights.
struct Codes {
  std::vector<int8_t> codes = {1, 2, 3, 4, 5, 15, 14, 0, 12, 11};
  std::vector<float> scales = {0.5f, 2, 1, 0.25f}, zeros = {8, 7, 0, 11};
  std::vector<float> weights = {-3.5f, -3, -2.5f, -6, -4, 15, 14, 0, 0.25f, 0};

  MatrixSource source() {
    MatrixSource source(Tensor(codes.data(), DType::kI8, {2, 5}));
    source.scales = View(scales, {2, 2});
    source.zeros = View(zeros, {2, 2});
    source.group_size = 3;
    return source;
  }
};

TEST_CASE("matrix source: codes are read as numbers, and so are their parts") {
  Codes codes;
  const MatrixSource source = codes.source();
  CHECK(ReadAll(source) == codes.weights);
  CHECK(ReadAll(source.Rows(1, 1)) == std::vector<float>{15, 14, 0, 0.25f, 0});
  CHECK(ReadAll(source.Columns(3, 2)) == std::vector<float>{-6, -4, 0.25f, 0});
  CHECK(ReadAll(source.Columns(0, 2).Rows(1, 1)) == std::vector<float>{15, 14});
  std::vector<Bf16> rounded(2);
  source.Read(0, 1, 2, DType::kBf16, rounded.data());
  CHECK(rounded == std::vector<Bf16>{ToBf16(-3), ToBf16(-2.5f)});
}

TEST_CASE("matrix source: codes pack as the numbers that they stand for") {
  const bool is_reference = GENERATE(true, false);
  const auto backend = MakeBackend(is_reference);
  Codes codes;
  const MatrixSource coded[] = {codes.source()}, dense[] = {View(codes.weights, {2, 5})};
  const std::vector<float> x = {1, -2, 3, 0.5f, -0.25f};
  for (const WeightFormat format :
       {WeightFormat::kCompute, WeightFormat::kInt8, WeightFormat::kInt4Group32}) {
    CHECK(Product(*backend, coded, format, x) == Product(*backend, dense, format, x));
  }
}

TEST_CASE("matrix source: int8 rows keep their integers and scales") {
  const bool is_reference = GENERATE(true, false);
  const auto backend = MakeBackend(is_reference);
  // No row reaches 127: quantizing the weights again would choose other integers.
  std::vector<int8_t> integers = {1, -7, 33, -128, 5, 100};
  std::vector<float> scales = {0.37f, 0.011f};
  MatrixSource source(Tensor(integers.data(), DType::kI8, {2, 3}));
  source.scales = View(scales, {2, 1});
  for (int64_t k = 0; k < 3; ++k) {
    std::vector<float> x(3);
    x[static_cast<size_t>(k)] = 127;  // becomes the integer 127 with a scale of 1
    const std::vector<float> y = Product(*backend, {&source, 1}, WeightFormat::kInt8, x);
    for (int64_t n = 0; n < 2; ++n) {
      const auto integer = static_cast<float>(integers[static_cast<size_t>(n * 3 + k)]);
      CHECK(y[static_cast<size_t>(n)] == 127 * integer * scales[static_cast<size_t>(n)]);
    }
  }
}

TEST_CASE("matrix source: the parts of a matrix give the products of its slices") {
  const bool is_reference = GENERATE(true, false);
  const auto backend = MakeBackend(is_reference);
  const auto format =
      GENERATE(WeightFormat::kCompute, WeightFormat::kInt8, WeightFormat::kInt4Group32);
  constexpr int64_t kRows = 70, kColumns = 96, kFirstRows = 19, kFirstColumns = 33;
  Draw draw(3);
  std::vector<float> w = draw.Normals(kRows * kColumns), x = draw.Normals(2 * kColumns);
  const MatrixSource whole(View(w, {kRows, kColumns}));
  const std::vector<float> expected = Product(*backend, {&whole, 1}, format, x);

  const MatrixSource stacked[] = {whole.Rows(0, kFirstRows),
                                  whole.Rows(kFirstRows, kRows - kFirstRows)};
  CHECK(Product(*backend, stacked, format, x) == expected);

  const auto columns_of = [](const std::vector<float>& matrix, int64_t begin, int64_t count) {
    std::vector<float> slice;
    for (size_t row = 0; row < matrix.size() / kColumns; ++row) {
      const auto from = matrix.begin() + static_cast<int64_t>(row) * kColumns + begin;
      slice.insert(slice.end(), from, from + count);
    }
    return slice;
  };
  for (const auto& [begin, count] :
       {std::pair{int64_t{0}, kFirstColumns}, {kFirstColumns, kColumns - kFirstColumns}}) {
    std::vector<float> copy = columns_of(w, begin, count);
    const MatrixSource slice(View(copy, {kRows, count})), part = whole.Columns(begin, count);
    const std::vector<float> x_part = columns_of(x, begin, count);
    CHECK(Product(*backend, {&part, 1}, format, x_part) ==
          Product(*backend, {&slice, 1}, format, x_part));
  }
}

}  // namespace
}  // namespace tandem
