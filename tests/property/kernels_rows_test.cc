// Products of rows with NaN, infinite, denormal and huge numbers, at the numbers of rows where
// kernels take other tiles and passes: a row has the numbers that it has alone, so what is wrong
// with one reaches no other.

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tests/support/environment.h"
#include "tests/support/kernels/kernel_cases.h"
#include "tests/support/kernels/random_sources.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

constexpr int64_t kBoundaries[] = {1,  2,  3,  4,   5,   6,   7,   8,   9,   12, 13,
                                   15, 16, 17, 18,  19,  31,  32,  33,  63,  64, 65,
                                   95, 96, 97, 203, 204, 205, 255, 256, 257, 409};
constexpr int64_t kMostRows = 409;

// A matrix that each backend packs for itself.
struct Product {
  std::string name;
  int64_t n = 0, k = 0;
  bool is_gated = false;
  std::function<std::unique_ptr<PackedMatrix>(Backend&)> pack = {};
};

std::unique_ptr<PackedMatrix> PackHalves(Backend& backend, const MatrixSource& whole, bool is_gated,
                                         WeightFormat format) {
  const int64_t n = whole.rows();
  const MatrixSource halves[] = {whole.Rows(0, n / 2), whole.Rows(n / 2, n - n / 2)};
  return (is_gated ? backend.PackGated(halves, format) : backend.Pack(halves, format)).value();
}

void DrawBlocks(Draw& draw, Product* product) {
  const Layout& layout = kLayouts[static_cast<size_t>(draw.Int(0, 12))];
  product->name = layout.name;
  product->k = 256 * draw.Int(1, 3);
  auto blocks = std::make_shared<RandomBlocks>(draw, layout, product->n, product->k,
                                               /*is_hostile=*/draw.Int(0, 2) == 0);
  product->pack = [blocks, is_gated = product->is_gated](Backend& backend) {
    return PackHalves(backend, blocks->source(), is_gated, WeightFormat::kStored);
  };
}

void DrawCodes(Draw& draw, Product* product) {
  const CodedCase& kind = kCodedCases[draw.Int(0, 5)];
  product->name = kind.name;
  auto codes = std::make_shared<RandomMatrix>(draw, kind, product->n, product->k);
  product->pack = [codes, is_gated = product->is_gated](Backend& backend) {
    const auto sources = codes->sources();
    return (is_gated ? backend.PackGated(sources, WeightFormat::kStored)
                     : backend.Pack(sources, WeightFormat::kStored))
        .value();
  };
}

// In three of the formats integers; of numbers, one may be infinite or NaN.
void DrawNumbers(Draw& draw, Product* product) {
  const int kind = draw.Int(0, 3);
  const FormatCase format =
      kind == 3 ? FormatCase{"numbers", WeightFormat::kCompute} : kIntegerFormats[kind];
  product->name = format.name;
  auto numbers = std::make_shared<std::vector<float>>(draw.Normals(product->n * product->k));
  if (kind == 3 && draw.Int(0, 1) == 0) {
    const int place = draw.Int(0, static_cast<int>(numbers->size()) - 1);
    (*numbers)[static_cast<size_t>(place)] = draw.Int(0, 1) == 0 ? INFINITY : NAN;
  }
  product->pack = [numbers, format = format.format, n = product->n, k = product->k,
                   is_gated = product->is_gated](Backend& backend) {
    return PackHalves(backend, View(*numbers, {n, k}), is_gated, format);
  };
}

Product DrawProduct(Draw& draw) {
  Product product;
  product.n = 2 * draw.Int(1, 100);
  product.k = draw.Int(1, 300);
  product.is_gated = draw.Int(0, 2) == 0;
  const int kind = draw.Int(0, 5);
  kind == 0   ? DrawBlocks(draw, &product)
  : kind == 1 ? DrawCodes(draw, &product)
              : DrawNumbers(draw, &product);
  return product;
}

// Half of the rows are ordinary.
std::vector<float> DrawRows(Draw& draw, int64_t m, int64_t k) {
  const float kHuge = ToFloat(ToBf16(3e38f));
  std::vector<float> x = draw.Normals(m * k, 2);
  for (int64_t row = 0; row < m; ++row) {
    const std::span<float> numbers(x.data() + row * k, static_cast<size_t>(k));
    const auto put = [&](float number) {
      numbers[static_cast<size_t>(draw.Int(0, static_cast<int>(k) - 1))] = number;
    };
    const int kind = draw.Int(0, 15);
    if (kind == 0 || kind == 3) put(NAN);
    if (kind == 1 || kind == 3) put(INFINITY);
    if (kind == 2 || kind == 3) put(-INFINITY);
    for (int i = 0; kind == 4 && i < 4; ++i) put(draw.Int(0, 1) == 0 ? kHuge : -kHuge);
    for (float& number : numbers) {
      if (kind == 5) number *= 1e-39f;
      if (kind == 6 || kind == 7) number = kind == 6 ? 0.0f : -0.0f;
    }
  }
  return x;
}

// Which NaN it is depends on the order of an addition's operands.
bool SameNumbers(std::span<const float> a, std::span<const float> b) {
  return std::ranges::equal(a, b, [](float left, float right) {
    return std::isnan(left) ? std::isnan(right)
                            : std::bit_cast<uint32_t>(left) == std::bit_cast<uint32_t>(right);
  });
}

void CheckRows(const BackendCase& backend_case, const Product& product, const std::vector<float>& x,
               const std::vector<float>& bias, Draw& draw) {
  const int64_t n = product.n, k = product.k, columns = product.is_gated ? n / 2 : n;
  const auto run = [&](Backend& backend, const PackedMatrix& packed, int64_t begin, int64_t count) {
    const OwnedTensor rows =
        UploadAct(backend, {x.begin() + begin * k, x.begin() + (begin + count) * k}, {count, k});
    const DType dtype = product.is_gated ? backend.activation_dtype() : DType::kF32;
    const OwnedTensor out = Make(backend, dtype, {count, columns});
    backend.ops().Linear(out, rows, packed, Upload(backend, bias, {n}, DType::kF32),
                         product.is_gated ? LinearEpilogue::kSiluAndMul : LinearEpilogue::kStore);
    return Floats(backend, out);
  };
  const auto one = backend_case.make(1), several = backend_case.make(draw.Int(2, 3));
  const auto packed = product.pack(*one), packed_several = product.pack(*several);
  const int64_t num_rows = backend_case.is_scalar ? 33 : kMostRows;
  std::vector<float> alone;
  for (int64_t row = 0; row < num_rows; ++row) {
    const auto numbers = run(*one, *packed, row, 1);
    alone.insert(alone.end(), numbers.begin(), numbers.end());
  }
  for (const int64_t count : kBoundaries) {
    if (count > num_rows) break;
    const int64_t begin = draw.Int(0, static_cast<int>(num_rows - count));
    CAPTURE(count, begin);
    const auto together = run(*several, *packed_several, begin, count);
    const std::span<const float> expected(alone.data() + begin * columns, together.size());
    REQUIRE(SameNumbers(together, expected));
  }
}

TEST_CASE("Linear at the boundaries of rows: NaN and infinities stay in their rows") {
  const uint64_t first = FromEnvironment("TANDEM_SEED", 20261127);
  const uint64_t num_cases = FromEnvironment("TANDEM_CASES", 10);
  const std::vector<BackendCase> backend_cases = BackendCases();
  for (uint64_t seed = first; seed < first + num_cases; ++seed) {
    Draw draw(seed);
    const Product product = DrawProduct(draw);
    const auto bias = draw.Normals(product.n), x = DrawRows(draw, kMostRows, product.k);
    CAPTURE(seed, product.name, product.n, product.k, product.is_gated);
    for (const BackendCase& backend_case : backend_cases) {
      INFO(backend_case.name);
      CheckRows(backend_case, product, x, bias, draw);
    }
  }
}

}  // namespace
}  // namespace tandem
