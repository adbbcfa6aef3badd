// The integer formats: sums are exact, so every instruction set gives the reference's bits, for
// every row, in any batch and on any number of threads.

#include <cstdint>

#include "tests/support/kernels/kernel_cases.h"

#include <catch2/catch.hpp>

namespace tandem {

namespace {

// Numbers of a few orders of magnitude, and some columns of zeros.
std::vector<float> Weights(Draw& draw, int64_t n, int64_t k) {
  std::vector<float> w = draw.Normals(n * k);
  for (int64_t i = 0; i < n; ++i) {
    const float scale = draw.Int(0, 9) == 0 ? 0 : std::exp2(static_cast<float>(draw.Int(-8, 2)));
    for (int64_t j = 0; j < k; ++j) {
      const bool is_outlier = draw.Int(0, 50) == 0;
      w[i * k + j] = ToFloat(ToBf16(w[i * k + j] * scale * (is_outlier ? 8 : 1)));
    }
  }
  return w;
}

}  // namespace

TEST_CASE("integer Linear has the reference's bits on every instruction set") {
  const int rows[] = {1, 2, 4, 5, 6, 7, 8, 9, 31, 64, 259};
  const int columns[] = {1, 48, 64, 96, 130, 200};
  const int depths[] = {1, 3, 8, 31, 32, 96, 128, 200, 333};
  auto reference = MakeReferenceBackend();
  for (const BackendCase& backend_case : BackendCases()) {
    auto cpu = backend_case.make(2);
    for (const FormatCase& format : kIntegerFormats) {
      for (int seed = 1; seed <= 8; ++seed) {
        Draw draw(seed);
        const int64_t m = rows[draw.Int(0, 10)];
        const int64_t n = columns[draw.Int(0, 5)];
        const int64_t k = depths[draw.Int(0, 8)];
        INFO(backend_case.name << ", " << format.name << ", seed " << seed);
        CAPTURE(m, n, k);
        const auto w = Weights(draw, n, k);
        auto x = draw.Normals(m * k, 3);
        std::fill_n(x.begin(), k, 0.0f);
        if (m > 2) x[2 * k] = INFINITY;
        const auto bias = draw.Normals(n);
        const auto before = draw.Normals(m * n);
        for (bool add : {false, true}) {
          auto run = [&](Backend& backend) {
            const auto packed = Pack(backend, w, n, k, format.format);
            const OwnedTensor out = Upload(backend, before, {m, n}, DType::kF32);
            backend.ops().Linear(out, UploadAct(backend, x, {m, k}), *packed,
                                 add ? Tensor() : Upload(backend, bias, {n}, DType::kF32).view(),
                                 add ? LinearEpilogue::kAddResidual : LinearEpilogue::kStore);
            return Floats(backend, out);
          };
          const auto ours = run(*cpu);
          const auto expected = run(*reference);
          for (int64_t i = 0; i < m * n; ++i) {
            CAPTURE(i / n, i % n, ours[i], expected[i]);
            REQUIRE((ours[i] == expected[i] || (std::isnan(ours[i]) && std::isnan(expected[i]))));
          }
          CHECK((m <= 2 || std::isnan(ours[2 * n])));
        }
      }
    }
  }
}

TEST_CASE(
    "integer Linear: each row alone has the bits it has in every batch, in several K blocks") {
  for (const BackendCase& backend_case : BackendCases()) {
    for (const FormatCase& format : kIntegerFormats) {
      INFO(backend_case.name << ", " << format.name);
      Draw draw(5);
      const bool is_slow = backend_case.is_scalar;
      const int64_t m = is_slow ? 10 : 300;
      const int64_t n = is_slow ? 70 : 130;
      const int64_t k = 6500;  // two blocks of 4096, the second ends inside a group
      const auto w = draw.Normals(n * k);
      const auto x = draw.Normals(m * k);
      auto run = [&](Backend& backend, const PackedMatrix& packed, int64_t begin, int64_t count) {
        const OwnedTensor all = UploadAct(backend, x, {m, k});
        const OwnedTensor out = Make(backend, DType::kF32, {count, n});
        backend.ops().Linear(out, all.view().Rows(begin, count), packed);
        return Floats(backend, out);
      };
      auto one = backend_case.make(1);
      const auto packed_one = Pack(*one, w, n, k, format.format);
      const auto together = run(*one, *packed_one, 0, m);
      for (int threads = 1; threads <= 3; threads += 2) {
        auto backend = backend_case.make(threads);
        const auto packed = Pack(*backend, w, n, k, format.format);
        for (int64_t row = 0; row < m;) {
          const int64_t count = std::min<int64_t>(m - row, draw.Int(1, 40));
          CAPTURE(threads, row, count);
          REQUIRE(SameBits(run(*backend, *packed, row, count),
                           {together.begin() + row * n, together.begin() + (row + count) * n}));
          row += count;
        }
      }
      auto reference = MakeReferenceBackend();
      const auto packed = Pack(*reference, w, n, k, format.format);
      CHECK(SameBits(run(*reference, *packed, 3, 1),
                     {together.begin() + 3 * n, together.begin() + 4 * n}));
    }
  }
}

TEST_CASE("integer Embedding reads rows back as the reference does, near the weights") {
  auto reference = MakeReferenceBackend();
  for (const BackendCase& backend_case : BackendCases()) {
    auto cpu = backend_case.make(2);
    for (const FormatCase& format : kIntegerFormats) {
      INFO(backend_case.name << ", " << format.name);
      Draw draw(2);
      const int64_t n = 131;
      const int64_t k = draw.Int(1, 300);
      CAPTURE(k);
      const auto w = draw.Normals(n * k);
      std::vector<int32_t> ids(n);
      std::iota(ids.begin(), ids.end(), 0);
      draw.Shuffle(&ids);
      auto run = [&](Backend& backend) {
        const auto packed = Pack(backend, w, n, k, format.format);
        const OwnedTensor out = Make(backend, DType::kF32, {n, k});
        backend.ops().Embedding(out, View(ids, {n}), *packed, 0.5f);
        return Floats(backend, out);
      };
      const auto ours = run(*cpu);
      CHECK(SameBits(ours, run(*reference)));
      const float step = format.format == WeightFormat::kInt8 ? 0.02f : 0.35f;
      for (int64_t i = 0; i < n * k; ++i) {
        REQUIRE(std::abs(ours[i] - 0.5f * w[ids[i / k] * k + i % k]) < step);
      }
    }
  }
}

}  // namespace tandem
