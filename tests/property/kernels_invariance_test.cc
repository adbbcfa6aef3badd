// Batch invariance, bit for bit: a row's or request's result does not depend on the rows it runs
// with, on their order, on chunking, on the number of threads or on its blocks.

#include "tests/support/kernels/kernel_cases.h"

#include <catch2/catch.hpp>

namespace tandem {

TEST_CASE("Linear: each row alone has the bits it has in every batch and on 1 to 4 threads") {
  for (const BackendCase& backend_case : BackendCases()) {
    std::vector<std::unique_ptr<Backend>> backends;
    for (int threads = 1; threads <= 4; ++threads) backends.push_back(backend_case.make(threads));
    for (int seed = 1; seed <= 3; ++seed) {
      INFO(backend_case.name << " seed " << seed);
      Draw draw(seed);
      const bool deep = seed == 3;  // several K blocks
      const int64_t m = deep ? 20 : 300;
      const int64_t n = draw.Int(1, 200);
      const int64_t k = deep ? 4444 : draw.Int(1, 300);
      CAPTURE(m, n, k);
      const auto w = draw.Normals(n * k);
      const auto x = draw.Normals(m * k);
      const auto bias = draw.Normals(n);
      auto run = [&](Backend& backend, const PackedMatrix& packed, const Tensor& rows) {
        const OwnedTensor out = Make(backend, DType::kF32, {rows.rows(), n});
        const OwnedTensor bias_tensor = Upload(backend, bias, {n}, DType::kF32);
        backend.ops().Linear(out, rows, packed, bias_tensor);
        return Floats(backend, out);
      };
      std::vector<float> alone;
      {
        const auto packed = Pack(*backends[0], w, n, k);
        const OwnedTensor all = UploadAct(*backends[0], x, {m, k});
        for (int64_t row = 0; row < m; ++row) {
          const auto bits = run(*backends[0], *packed, all.view().Rows(row, 1));
          alone.insert(alone.end(), bits.begin(), bits.end());
        }
      }
      for (auto& backend : backends) {
        const auto packed = Pack(*backend, w, n, k);
        const OwnedTensor all = UploadAct(*backend, x, {m, k});
        CHECK(SameBits(run(*backend, *packed, all), alone));
        for (int64_t row = 0; row < m;) {
          const int64_t count = std::min<int64_t>(m - row, draw.Int(1, 40));
          const auto bits = run(*backend, *packed, all.view().Rows(row, count));
          REQUIRE(SameBits(bits, {alone.begin() + row * n, alone.begin() + (row + count) * n}));
          row += count;
        }
      }
    }
  }
}

TEST_CASE("Linear: rows of several passes over the weights have the bits they have alone") {
  constexpr int64_t kRows = 1100, kColumns = 330, kDepth = 1130;  // more than one group and block
  for (const BackendCase& backend_case : BackendCases()) {
    if (backend_case.is_scalar) continue;
    INFO(backend_case.name);
    auto backend = backend_case.make(2);
    Draw draw(11);
    const auto packed = Pack(*backend, draw.Normals(kColumns * kDepth), kColumns, kDepth);
    const auto x = draw.Normals(kRows * kDepth);
    const OwnedTensor all = UploadAct(*backend, x, {kRows, kDepth});
    const auto run = [&](int64_t row, int64_t count) {
      const OwnedTensor out = Make(*backend, DType::kF32, {count, kColumns});
      backend->ops().Linear(out, all.view().Rows(row, count), *packed);
      return Floats(*backend, out);
    };
    const auto together = run(0, kRows);
    for (int64_t row = 0; row < kRows; row += draw.Int(1, 90)) {
      const auto alone = run(row, 1);
      REQUIRE(std::equal(alone.begin(), alone.end(), together.begin() + row * kColumns));
    }
    for (const int64_t count : {65, 130, 200, 400, 600}) {
      const auto some = run(3, count);
      REQUIRE(std::equal(some.begin(), some.end(), together.begin() + 3 * kColumns));
    }
  }
}

TEST_CASE("Linear into a gate, after a norm: each row alone has the bits it has in a batch") {
  for (const BackendCase& backend_case : BackendCases()) {
    auto one = backend_case.make(1);
    auto four = backend_case.make(4);
    for (int seed = 1; seed <= 2; ++seed) {
      INFO(backend_case.name << " seed " << seed);
      Draw draw(seed);
      const int64_t m = 230, n = 2 * draw.Int(1, 150), k = seed == 1 ? draw.Int(1, 300) : 2100;
      CAPTURE(m, n, k);
      const auto w = draw.Normals(n * k, 0.1f);
      const auto x = draw.Normals(m * k);
      const auto norm_weight = draw.Normals(k);
      auto run = [&](Backend& backend, int64_t begin, int64_t count) {
        const OwnedTensor all = Upload(backend, x, {m, k}, DType::kF32);
        const OwnedTensor norm = Upload(backend, norm_weight, {k}, DType::kF32);
        const OwnedTensor out = Make(backend, backend.activation_dtype(), {count, n / 2});
        backend.ops().RmsNormLinear(out, all.view().Rows(begin, count), norm, 1e-5f,
                                    *PackGated(backend, w, n, k), {}, LinearEpilogue::kSiluAndMul);
        return Floats(backend, out);
      };
      const auto together = run(*four, 0, m);
      for (int64_t row = 0; row < m; row += draw.Int(1, 40)) {
        const auto alone = run(*one, row, 1);
        REQUIRE(std::equal(alone.begin(), alone.end(), together.begin() + row * (n / 2)));
      }
    }
  }
}

TEST_CASE("row-wise ops: each row alone has the bits it has in a batch") {
  for (const BackendCase& backend_case : BackendCases()) {
    INFO(backend_case.name);
    Draw draw(7);
    const int64_t m = 50, h = 91;
    const auto x = draw.Normals(m * 2 * h);
    const auto w = draw.Normals(h);
    auto run = [&](Backend& backend, int64_t begin, int64_t count) {
      const OwnedTensor all = UploadAct(backend, x, {m, 2 * h});
      const OwnedTensor weight = Upload(backend, w, {h}, DType::kF32);
      const OwnedTensor out = Make(backend, backend.activation_dtype(), {2 * m, h});
      const Tensor rows = all.view().Rows(begin, count);
      backend.ops().RmsNorm(out.view().Rows(begin, count), rows.Columns(0, h), weight, 1e-6f);
      backend.ops().SiluAndMul(out.view().Rows(m + begin, count), rows);
      std::vector<float> result = Floats(backend, out.view().Rows(begin, count));
      const std::vector<float> activated = Floats(backend, out.view().Rows(m + begin, count));
      result.insert(result.end(), activated.begin(), activated.end());
      return result;
    };
    auto one = backend_case.make(1);
    auto four = backend_case.make(4);
    const auto together = run(*four, 0, m);
    for (int64_t row = 0; row < m; ++row) {
      const auto alone = run(*one, row, 1);
      REQUIRE(std::equal(alone.begin(), alone.begin() + h, together.begin() + row * h));
      REQUIRE(std::equal(alone.begin() + h, alone.end(), together.begin() + (m + row) * h));
    }
  }
}

TEST_CASE("mixture ops: a token alone has the bits it has in a batch and on 1 to 4 threads") {
  for (const BackendCase& backend_case : BackendCases()) {
    INFO(backend_case.name);
    Draw draw(9);
    const int64_t m = 60, h = 600, num_experts = 37, top_k = 5;
    auto logits = draw.Normals(m * num_experts);
    const auto stream = draw.Normals(m * h);
    const auto x = draw.Normals(m * top_k * h);
    struct Result {
      std::vector<int32_t> ids;
      std::vector<float> weights, sums;
    };
    // Tokens [begin, begin + count); the rows of x that they need, in an order of their own.
    auto run = [&](Backend& backend, int64_t begin, int64_t count) {
      Result result = {std::vector<int32_t>(count * top_k), std::vector<float>(count * top_k), {}};
      const Tensor ids = View(result.ids, {count, top_k});
      const Tensor weights = View(result.weights, {count, top_k});
      backend.ops().RouteTopK(ids, weights, View(logits, {m, num_experts}).Rows(begin, count),
                              {.renormalize = true});
      std::vector<int32_t> pair_begin(num_experts + 1), chosen(num_experts), tokens(count * top_k);
      std::vector<int32_t> of_token(count * top_k);
      std::vector<float> pair_weights(count * top_k);
      const ExpertPairs pairs = {View(pair_begin, {num_experts + 1}), View(chosen, {num_experts}),
                                 View(tokens, {count * top_k}), View(of_token, {count, top_k}),
                                 View(pair_weights, {count, top_k})};
      backend.ops().GroupByExpert(pairs, ids, weights);
      std::vector<float> rows(count * top_k * h);
      for (int64_t i = 0; i < count * top_k; ++i) {
        std::copy_n(x.begin() + (begin * top_k + i) * h, h, rows.begin() + of_token[i] * h);
      }
      const std::vector<float> before(stream.begin() + begin * h,
                                      stream.begin() + (begin + count) * h);
      const OwnedTensor residual = Upload(backend, before, {count, h}, DType::kF32);
      backend.ops().AddWeightedRows(residual, UploadAct(backend, rows, {count * top_k, h}),
                                    pairs.of_token, pairs.weights);
      result.sums = Floats(backend, residual);
      return result;
    };
    for (int threads = 1; threads <= 4; ++threads) {
      CAPTURE(threads);
      auto one = backend_case.make(1);
      auto several = backend_case.make(threads);
      const Result together = run(*several, 0, m);
      for (int64_t t = 0; t < m; ++t) {
        const Result alone = run(*one, t, 1);
        REQUIRE(std::equal(alone.ids.begin(), alone.ids.end(), together.ids.begin() + t * top_k));
        REQUIRE(SameBits(alone.weights, {together.weights.begin() + t * top_k,
                                         together.weights.begin() + (t + 1) * top_k}));
        REQUIRE(SameBits(alone.sums,
                         {together.sums.begin() + t * h, together.sums.begin() + (t + 1) * h}));
      }
    }
  }
}

TEST_CASE("attention: a request alone, token by token, has the bits it has in random batches") {
  for (const BackendCase& backend_case : BackendCases()) {
    const int num_seeds = backend_case.is_scalar ? 3 : 8;  // it is slow
    for (int seed = 1; seed <= num_seeds; ++seed) {
      INFO(backend_case.name << " seed " << seed);
      Draw draw(seed);
      AttentionModel model = AttentionModel::Random(draw, 400);
      constexpr KvFormat kFormats[] = {KvFormat::kFloat8, KvFormat::kInt4, KvFormat::kInt8,
                                       KvFormat::kCompute};
      model.kv_format = kFormats[seed % 4];
      CAPTURE(model.shape.num_heads, model.shape.num_kv_heads, model.shape.head_dim,
              model.block_size, model.options.sliding_window);
      std::vector<std::vector<float>> qkv;
      for (int r = 0; r < 4; ++r) qkv.push_back(draw.Normals(draw.Int(1, 290) * model.qkv_size()));

      auto one_thread = backend_case.make(1);
      AttentionRun alone(*one_thread, model, qkv, draw);
      for (int r = 0; r < 4; ++r) {
        for (int i = 0; i < alone.length(r); ++i) alone.Step({{r, 1}});
      }
      auto check = [&](AttentionRun& run) {
        for (int r = 0; r < 4; ++r) CHECK(SameBits(run.output(r), alone.output(r)));
      };
      AttentionRun at_once(*one_thread, model, qkv, draw);
      at_once.RunAtOnce();
      check(at_once);
      for (int threads = 2; threads <= 4; ++threads) {
        CAPTURE(threads);
        auto backend = backend_case.make(threads);
        AttentionRun mixed(*backend, model, qkv, draw);
        mixed.RunRandomly(draw);
        check(mixed);
      }
    }
  }
}

}  // namespace tandem
