#include "tests/gpu/product_figures.h"

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace tandem {
namespace {

constexpr int64_t kGroup = 64;

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Codes that are neither NaN nor all alike, and their scales.
class Codes {
 public:
  explicit Codes(int64_t n)
      : n_(n),
        codes_(static_cast<size_t>(n * n)),
        scales_(static_cast<size_t>(n * n / kGroup), 0.01f) {
    for (size_t i = 0; i < codes_.size(); ++i) codes_[i] = static_cast<int8_t>(i % 15);
  }
  MatrixSource OfRows(CodeKind kind) {
    MatrixSource source(Tensor(codes_.data(), DType::kI8, {n_, n_}));
    source.scales = Tensor(scales_.data(), DType::kF32, {n_, 1});
    source.code_kind = kind;
    source.is_w8a8 = kind == CodeKind::kFloat8;
    return source;
  }
  MatrixSource OfGroups() {
    MatrixSource source(Tensor(codes_.data(), DType::kI8, {n_, n_}));
    source.scales = Tensor(scales_.data(), DType::kF32, {n_, n_ / kGroup});
    source.group_size = kGroup;
    return source;
  }

 private:
  int64_t n_;
  std::vector<int8_t> codes_;
  std::vector<float> scales_;
};

// Median seconds of a product of m rows.
double TimeProduct(Backend* backend, const PackedMatrix& matrix, int64_t m) {
  constexpr int kRounds = 10, kProducts = 8;
  const OwnedTensor x = backend->device().Allocate(DType::kBf16, {m, matrix.k()}).value();
  const OwnedTensor out = backend->device().Allocate(DType::kBf16, {m, matrix.n()}).value();
  std::vector<double> times;
  for (int round = 0; round <= kRounds; ++round) {
    const double begin = Now();
    for (int i = 0; i < kProducts; ++i) backend->ops().Linear(out, x, matrix);
    backend->device().WaitFor(backend->device().SetMark());
    if (round > 0) times.push_back((Now() - begin) / kProducts);
  }
  std::ranges::sort(times);
  return times[times.size() / 2];
}

}  // namespace

std::vector<ProductFigure> MeasureProducts(Backend* backend, bool is_tiny) {
  const int64_t n = is_tiny ? 64 : 8192;
  Codes codes(n);
  struct Form {
    const char* name;
    MatrixSource source;
    WeightFormat format;
  };
  const Form forms[] = {{"bf16", codes.OfRows(CodeKind::kInteger), WeightFormat::kCompute},
                        {"4 bits", codes.OfGroups(), WeightFormat::kStored},
                        {"e4m3", codes.OfRows(CodeKind::kFloat8), WeightFormat::kStored}};
  std::vector<ProductFigure> figures;
  for (const Form& form : forms) {
    const auto matrix = backend->Pack({&form.source, 1}, form.format).value();
    for (const int64_t m : {1, 4, 8, 16, 32, 64, 128, 512, 2048, 8192}) {
      if (is_tiny && m > 128) continue;
      figures.push_back({.name = "product of " + std::to_string(m) + " rows, " + form.name,
                         .seconds = TimeProduct(backend, *matrix, m),
                         .bytes = static_cast<double>(matrix->num_bytes()),
                         .flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) *
                                  static_cast<double>(n)});
    }
  }
  return figures;
}

}  // namespace tandem
