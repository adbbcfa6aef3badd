// Matrices that stay codes (kernels/cpu/coded_panel.h): products, gates, norms and embeddings have
// the bits of the same matrices packed as numbers, in less memory, on every instruction set.

#include <cstdint>
#include <functional>
#include <vector>

#include "kernels/float8.h"
#include "kernels/packed_form.h"
#include "tests/support/kernels/kernel_cases.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

struct CodedCase {
  const char* name;
  CodeKind kind;
  int low, high;  // of integers
  int64_t group;  // 0: rows, -1: the columns' groups in any order
  bool has_zeros;
  double most_bits;  // at 256 columns
};
constexpr CodedCase kCases[] = {
    {"FP8 rows", CodeKind::kFloat8, 0, 0, 0, false, 8.4},
    {"FP8 blocks", CodeKind::kFloat8, 0, 0, 128, false, 8.5},
    {"nf4", CodeKind::kTable, 0, 15, 64, false, 4.8},
    {"4 bits in activation order", CodeKind::kInteger, 0, 15, -1, true, 6.3},
    {"8 bits in activation order", CodeKind::kInteger, -128, 127, -1, true, 10.3},
    {"NVFP4", CodeKind::kInteger, -12, 12, 16, false, 6.3},
};
const std::vector<int8_t> kE2m1 = {0, 1, 2, 3, 4, 6, 8, 12, -1, -2, -3, -4, -6, -8, -12};

class RandomMatrix {
 public:
  RandomMatrix(Draw& draw, const CodedCase& kind, int64_t n, int64_t k) : n_(n), k_(k) {
    source_.group_size = std::max<int64_t>(0, kind.group);
    const int64_t num_groups = kind.group < 0    ? 4
                               : kind.group == 0 ? 1
                                                 : (k + kind.group - 1) / kind.group;
    for (int64_t i = 0; i < n * k; ++i) codes_.push_back(Code(draw, kind));
    for (int64_t i = 0; i < n * num_groups; ++i) {
      scales_.push_back(draw.Normal() * 0.1f);
      if (kind.has_zeros) zeros_.push_back(static_cast<float>(draw.Int(kind.low, kind.high)));
    }
    source_.code_kind = kind.kind;
    if (kind.group < 0) {
      for (int64_t i = 0; i < k; ++i) groups_.push_back(draw.Int(0, 3));
    }
    for (int i = 0; i < 16; ++i) table_.push_back(draw.Normal());
  }
  // The second half of the rows is another source.
  std::vector<MatrixSource> sources() {
    source_.values = Tensor(codes_.data(), DType::kI8, {n_, k_});
    const auto num_groups = static_cast<int64_t>(scales_.size()) / n_;
    source_.scales = View(scales_, {n_, num_groups});
    if (!zeros_.empty()) source_.zeros = View(zeros_, {n_, num_groups});
    if (!groups_.empty()) source_.column_groups = View(groups_, {k_});
    source_.table = source_.code_kind == CodeKind::kTable ? table_.data() : nullptr;
    return {source_.Rows(0, n_ / 2), source_.Rows(n_ / 2, n_ - n_ / 2)};
  }

 private:
  static int8_t Code(Draw& draw, const CodedCase& kind) {
    if (kind.kind == CodeKind::kFloat8) {
      const int code = draw.Int(0, 255);
      return static_cast<int8_t>(IsFloat8Nan(static_cast<uint8_t>(code)) ? 0 : code);
    }
    if (kind.group == 16) {
      return kE2m1[static_cast<size_t>(draw.Int(0, static_cast<int>(kE2m1.size()) - 1))];
    }
    return static_cast<int8_t>(draw.Int(kind.low, kind.high));
  }

  int64_t n_, k_;
  MatrixSource source_;
  std::vector<int8_t> codes_;
  std::vector<float> scales_, zeros_, table_;
  std::vector<int32_t> groups_;
};

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
    for (const CodedCase& kind : kCases) {
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
  for (const CodedCase& kind : kCases) {
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
  RandomMatrix rows(draw, kCases[0], 64, 256), blocks(draw, kCases[1], 64, 256);
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
  RandomMatrix matrix(draw, kCases[3], 130, 256);
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
