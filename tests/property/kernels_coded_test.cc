// Matrices that stay codes (kernels/cpu/coded_panel.h): products, gates, norms and embeddings have
// the bits of the same matrices packed as numbers, in less memory, on every instruction set.

#include <cstdint>
#include <functional>
#include <vector>

#include "kernels/packed_form.h"
#include "tests/support/kernels/kernel_cases.h"
#include "tests/support/kernels/random_sources.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

// What the products of `packed` give, one after another.
std::vector<float> Products(Backend& backend, const PackedMatrix& packed, Draw draw, int64_t m) {
  const int64_t n = packed.n(), k = packed.k(), columns = packed.is_gated() ? n / 2 : n;
  const auto x = draw.Normals(m * k), bias = draw.Normals(n), norm = draw.Normals(k);
  const OwnedTensor input = UploadAct(backend, x, {m, k});
  const OwnedTensor biases = Upload(backend, bias, {n}, DType::kF32);
  const OwnedTensor weight = Upload(backend, norm, {k}, DType::kF32);
  const LinearEpilogue epilogue =
      packed.is_gated() ? LinearEpilogue::kSiluAndMul : LinearEpilogue::kStore;
  const OwnedTensor out = Make(backend, backend.activation_dtype(), {m, columns});
  backend.ops().Linear(out, input, packed, biases, epilogue);
  std::vector<float> all = Floats(backend, out);
  backend.ops().RmsNormLinear(out, input, weight, 1e-5f, packed, biases, epilogue);
  const auto normed = Floats(backend, out);
  all.insert(all.end(), normed.begin(), normed.end());
  if (packed.is_gated()) return all;
  const OwnedTensor rows = Make(backend, backend.residual_dtype(), {2, k});
  backend.ops().Embedding(rows, UploadInts(backend, {0, static_cast<int32_t>(n - 1)}, {2}), packed,
                          2);
  const auto embedded = Floats(backend, rows);
  all.insert(all.end(), embedded.begin(), embedded.end());
  return all;
}

TEST_CASE("codes have the bits of their numbers on every instruction set") {
  const int rows[] = {1, 2, 6, 7, 40, 130};
  const int columns[] = {2, 48, 130, 200};
  const int depths[] = {16, 33, 200, 256};
  for (const BackendCase& backend_case : BackendCases()) {
    auto cpu = backend_case.make(2);
    for (const CodedCase& kind : kCodedCases) {
      for (int seed = 1; seed <= 6; ++seed) {
        Draw draw(seed);
        const int64_t m = rows[draw.Int(0, 5)], n = columns[draw.Int(0, 3)],
                      k = depths[draw.Int(0, 3)];
        INFO(backend_case.name << ", " << kind.name << ", seed " << seed);
        CAPTURE(m, n, k);
        RandomMatrix matrix(draw, kind, n, k);
        const auto sources = matrix.sources();
        for (const bool is_gated : {false, true}) {
          const auto pack = [&](WeightFormat format) {
            return (is_gated ? cpu->PackGated(sources, format) : cpu->Pack(sources, format))
                .value();
          };
          const auto kept = pack(WeightFormat::kStored), numbers = pack(WeightFormat::kCompute);
          CHECK(Products(*cpu, *kept, Draw(seed), m) == Products(*cpu, *numbers, Draw(seed), m));
        }
      }
    }
  }
}

TEST_CASE("codes take the memory that they have in the file") {
  auto cpu = MakeCpuBackend({.dtype = DType::kBf16, .num_threads = 1}).value();
  for (const CodedCase& kind : kCodedCases) {
    INFO(kind.name);
    Draw draw(1);
    RandomMatrix matrix(draw, kind, 512, 256);
    const auto kept = cpu->Pack(matrix.sources(), WeightFormat::kStored).value();
    CHECK(static_cast<double>(kept->num_bytes()) * 8 / (512 * 256) <= kind.most_bits);
  }
}

TEST_CASE("codes that are not alike are packed as numbers") {
  auto cpu = MakeCpuBackend({.dtype = DType::kBf16, .num_threads = 1}).value();
  Draw draw(1);
  RandomMatrix rows(draw, kCodedCases[0], 64, 256), blocks(draw, kCodedCases[1], 64, 256);
  const std::vector<MatrixSource> mixed = {rows.sources()[0], blocks.sources()[0]};
  const auto packed = cpu->Pack(mixed, WeightFormat::kStored).value();
  CHECK(packed->num_bytes() == 64 * 256 * 2);
  // The arithmetic of products knows no NaN.
  std::vector<int8_t> codes(64 * 256, 0x7f);
  std::vector<float> scales(64, 1);
  MatrixSource source(Tensor(codes.data(), DType::kI8, {64, 256}));
  source.scales = View(scales, {64, 1});
  source.code_kind = CodeKind::kFloat8;
  CHECK(cpu->Pack({&source, 1}, WeightFormat::kStored).value()->num_bytes() == 64 * 256 * 2);
}

TEST_CASE("codes: a mapped matrix is the packed one, and foreign groups are refused") {
  auto cpu = MakeCpuBackend({.dtype = DType::kF32, .num_threads = 1}).value();
  Draw draw(1);
  RandomMatrix matrix(draw, kCodedCases[3], 130, 256);
  const auto packed = cpu->Pack(matrix.sources(), WeightFormat::kStored).value();
  PackedBytes bytes;
  PackedForm form = FormOf(*packed, DType::kF32, &bytes);
  // The memory of a matrix is aligned to pages as it would be in a file.
  const auto mapped = MapMatrix(form, bytes, nullptr);
  REQUIRE(mapped.ok());
  CHECK(Products(*cpu, **mapped, Draw(1), 3) == Products(*cpu, *packed, Draw(1), 3));
  form.codes->num_groups = 2;
  CHECK(!MapMatrix(form, bytes, nullptr).ok());
  form.codes->bits = 5;
  CHECK(!SizesOf(form).ok());
}

}  // namespace
}  // namespace tandem
