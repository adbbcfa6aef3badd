// Each op of each backend against the reference backend on odd shapes: the cpu's on every
// instruction set of this machine, the cuda kernels on an emulated device; in both compute types.

#include "tests/support/kernels/kernel_cases.h"

#include <catch2/catch.hpp>

namespace tandem {

namespace {

// Runs check(case, cpu backend, reference backend, draw) for each case and some seeds.
template <class F>
void ForEachCase(int num_seeds, F check) {
  auto reference = MakeReferenceBackend();
  for (const BackendCase& backend_case : BackendCases()) {
    auto cpu = backend_case.make(2);
    for (int seed = 1; seed <= num_seeds; ++seed) {
      INFO(backend_case.name << " seed " << seed);
      Draw draw(seed);
      check(backend_case, *cpu, *reference, draw);
    }
  }
}

}  // namespace

TEST_CASE("Linear equals the reference: rows, columns and depth that fill no tile") {
  const int rows[] = {1, 2, 5, 6, 7, 12, 31, 64, 259};
  const int columns[] = {1, 48, 64, 96, 130, 517};
  const int depths[] = {1, 2, 31, 48, 96, 128, 333};
  ForEachCase(12, [&](const BackendCase& backend_case, Backend& cpu, Backend& reference,
                      Draw& draw) {
    const int64_t m = rows[draw.Int(0, 8)];
    const int64_t n = columns[draw.Int(0, 5)];
    const int64_t k = depths[draw.Int(0, 6)];
    CAPTURE(m, n, k);
    const auto w = draw.Normals(n * k, 1 / std::sqrt(static_cast<float>(k)));
    const auto x = draw.Normals(m * k);
    const auto bias = draw.Normals(n);
    const auto before = draw.Normals(m * n);
    for (int variant = 0; variant < 3; ++variant) {
      CAPTURE(variant);
      auto run = [&](Backend& backend) {
        const auto packed = Pack(backend, w, n, k);
        const DType out_type = variant == 0 ? backend.activation_dtype() : DType::kF32;
        const OwnedTensor out = Upload(backend, before, {m, n}, out_type);
        backend.ops().Linear(
            out, UploadAct(backend, x, {m, k}), *packed,
            variant == 1 ? Tensor() : Upload(backend, bias, {n}, DType::kF32).view(),
            variant == 2 ? LinearEpilogue::kAddResidual : LinearEpilogue::kStore);
        return Floats(backend, out);
      };
      CHECK(MaxError(run(cpu), run(reference)) < (variant == 0 ? backend_case.tolerance() : 2e-5f));
    }
  });
}

TEST_CASE("Linear into a gate equals the reference, with and without a norm before it") {
  const int rows[] = {1, 3, 6, 7, 13, 64, 230};
  const int columns[] = {2, 30, 64, 66, 128, 340};
  const int depths[] = {1, 2, 31, 64, 97, 256};
  ForEachCase(
      10, [&](const BackendCase& backend_case, Backend& cpu, Backend& reference, Draw& draw) {
        const int64_t m = rows[draw.Int(0, 6)];
        const int64_t n = columns[draw.Int(0, 5)];
        const int64_t k = depths[draw.Int(0, 5)];
        CAPTURE(m, n, k);
        const auto w = draw.Normals(n * k, 1 / std::sqrt(static_cast<float>(k)));
        const auto x = draw.Normals(m * k);
        const auto norm_weight = draw.Normals(k);
        const auto bias = draw.Normals(n);
        for (const auto epilogue : {LinearEpilogue::kSiluAndMul, LinearEpilogue::kGeluAndMul}) {
          for (const bool has_norm : {false, true}) {
            CAPTURE(has_norm, epilogue == LinearEpilogue::kSiluAndMul);
            auto run = [&](Backend& backend) {
              const auto packed = PackGated(backend, w, n, k);
              const OwnedTensor out = Make(backend, backend.activation_dtype(), {m, n / 2});
              if (has_norm) {
                const OwnedTensor norm = Upload(backend, norm_weight, {k}, DType::kF32);
                backend.ops().RmsNormLinear(out, Upload(backend, x, {m, k}, DType::kF32), norm,
                                            1e-5f, *packed, {}, epilogue);
              } else {
                backend.ops().Linear(out, UploadAct(backend, x, {m, k}), *packed,
                                     Upload(backend, bias, {n}, DType::kF32), epilogue);
              }
              return Floats(backend, out);
            };
            // The norm rounds the input, and the product of two sums doubles an error.
            CHECK(MaxError(run(cpu), run(reference)) < 4 * backend_case.tolerance());
          }
        }
      });
}

TEST_CASE("Linear of few rows equals the reference, into a gate as well") {
  ForEachCase(1, [&](const BackendCase& backend_case, Backend& cpu, Backend& reference,
                     Draw& draw) {
    for (const int64_t m : {2, 4, 5, 8, 9, 16, 17}) {
      // Depths that end inside a step of 32, columns that end inside a tile of 16.
      const int64_t n = m % 2 == 0 ? 54 : 32, k = m % 3 == 0 ? 712 : 40 + 8 * m;
      CAPTURE(m, n, k);
      const auto w = draw.Normals(n * k, 1 / std::sqrt(static_cast<float>(k)));
      const auto x = draw.Normals(m * k);
      const auto bias = draw.Normals(n);
      const auto before = draw.Normals(m * n);
      for (const bool is_gated : {false, true}) {
        CAPTURE(is_gated);
        auto run = [&](Backend& backend) {
          const OwnedTensor b = Upload(backend, bias, {n}, DType::kF32);
          const OwnedTensor in = UploadAct(backend, x, {m, k});
          if (is_gated) {
            const OwnedTensor out = Make(backend, backend.activation_dtype(), {m, n / 2});
            backend.ops().Linear(out, in, *PackGated(backend, w, n, k), b,
                                 LinearEpilogue::kSiluAndMul);
            return Floats(backend, out);
          }
          const OwnedTensor out = Upload(backend, before, {m, n}, DType::kF32);
          backend.ops().Linear(out, in, *Pack(backend, w, n, k), b, LinearEpilogue::kAddResidual);
          return Floats(backend, out);
        };
        CHECK(MaxError(run(cpu), run(reference)) <
              (is_gated ? 4 * backend_case.tolerance() : 2e-5f));
      }
    }
  });
}

TEST_CASE("RmsNormLinear has the bits of RmsNorm and Linear one after the other") {
  const int rows[] = {1, 2, 6, 7, 40, 250};
  ForEachCase(6, [&](const BackendCase&, Backend& cpu, Backend&, Draw& draw) {
    const int64_t m = rows[draw.Int(0, 5)];
    const int64_t n = draw.Int(1, 200);
    const int64_t k = draw.Int(1, 400);
    const bool is_f32 = draw.Int(0, 2) > 0;
    CAPTURE(m, n, k, is_f32);
    const auto packed = Pack(cpu, draw.Normals(n * k), n, k);
    const OwnedTensor x =
        Upload(cpu, draw.Normals(m * k), {m, k}, is_f32 ? DType::kF32 : cpu.activation_dtype());
    const OwnedTensor weight = Upload(cpu, draw.Normals(k), {k}, DType::kF32);
    const OwnedTensor bias = Upload(cpu, draw.Normals(n), {n}, DType::kF32);
    const OwnedTensor normed = Make(cpu, cpu.activation_dtype(), {m, k});
    const OwnedTensor apart = Make(cpu, DType::kF32, {m, n});
    const OwnedTensor together = Make(cpu, DType::kF32, {m, n});
    cpu.ops().RmsNorm(normed, x, weight, 1e-5f);
    cpu.ops().Linear(apart, normed, *packed, bias);
    cpu.ops().RmsNormLinear(together, x, weight, 1e-5f, *packed, bias);
    CHECK(SameBits(Floats(cpu, together), Floats(cpu, apart)));
  });
}

TEST_CASE("Linear with a depth of several K blocks equals the reference") {
  ForEachCase(1, [&](const BackendCase&, Backend& cpu, Backend& reference, Draw& draw) {
    const int64_t m = 13, n = 330, k = 5001;  // more panels than run together
    const auto w = draw.Normals(n * k, 0.015f);
    const auto x = draw.Normals(m * k);
    auto run = [&](Backend& backend) {
      const OwnedTensor out = Make(backend, DType::kF32, {m, n});
      backend.ops().Linear(out, UploadAct(backend, x, {m, k}), *Pack(backend, w, n, k));
      return Floats(backend, out);
    };
    CHECK(MaxError(run(cpu), run(reference)) < 5e-5f);
  });
}

TEST_CASE("Pack stacks row blocks of any float type, and Embedding reads rows back exactly") {
  ForEachCase(2, [&](const BackendCase& backend_case, Backend& cpu, Backend&, Draw& draw) {
    const int64_t k = draw.Int(1, 300);
    auto first = draw.Normals(70 * k);
    std::vector<Bf16> second(9 * k);
    for (Bf16& value : second) value = ToBf16(draw.Normal());
    std::vector<uint16_t> third(3 * k);
    for (uint16_t& value : third) value = static_cast<uint16_t>(draw.Int(0x3000, 0x3fff));
    const MatrixSource blocks[] = {View(first, {70, k}),
                                   Tensor(second.data(), DType::kBf16, {9, k}),
                                   Tensor(third.data(), DType::kF16, {3, k})};
    const auto packed = cpu.Pack(blocks).value();
    REQUIRE(packed->n() == 82);
    std::vector<int32_t> ids(82);
    std::iota(ids.begin(), ids.end(), 0);
    draw.Shuffle(&ids);
    const OwnedTensor out = Make(cpu, DType::kF32, {82, k});
    cpu.ops().Embedding(out, UploadInts(cpu, ids, {82}), *packed, 0.5f);
    const std::vector<float> rows = Floats(cpu, out);
    for (int64_t i = 0; i < 82; ++i) {
      for (int64_t h = 0; h < k; ++h) {
        const int id = ids[i];
        float expected = id < 70   ? first[id * k + h]
                         : id < 79 ? ToFloat(second[(id - 70) * k + h])
                                   : HalfToFloat(third[(id - 79) * k + h]);
        if (backend_case.dtype == DType::kBf16) expected = ToFloat(ToBf16(expected));
        REQUIRE(rows[i * k + h] == expected * 0.5f);
      }
    }
  });
}

TEST_CASE("RmsNorm, Add and SiluAndMul equal the reference") {
  ForEachCase(6, [&](const BackendCase& backend_case, Backend& cpu, Backend& reference,
                     Draw& draw) {
    const int64_t t = draw.Int(1, 9);
    const int64_t h = draw.Int(1, 200);
    CAPTURE(t, h);
    const auto x = draw.Normals(t * 2 * h, 3);
    const auto stream = draw.Normals(t * h, 3);
    const auto w = draw.Normals(h);
    for (bool f32_in : {false, true}) {
      auto run = [&](Backend& backend) {
        auto input = [&](const std::vector<float>& values, int64_t columns) {
          return Upload(backend, values, {t, columns},
                        f32_in ? DType::kF32 : backend.activation_dtype());
        };
        const OwnedTensor weight = Upload(backend, w, {h}, DType::kF32);
        const OwnedTensor merged = input(x, 2 * h);
        const OwnedTensor residual = Upload(backend, stream, {t, h}, DType::kF32);
        const OwnedTensor out = Make(backend, backend.activation_dtype(), {3 * t, h});
        const OwnedTensor wide = Make(backend, DType::kF32, {t, h});
        backend.ops().RmsNorm(out.view().Rows(0, t), merged.view().Columns(0, h), weight, 1e-5f);
        backend.ops().Add(residual, merged.view().Columns(h, h));
        backend.ops().RmsNorm(out.view().Rows(t, t), residual, weight, 1e-5f);
        backend.ops().SiluAndMul(out.view().Rows(2 * t, t), merged);
        backend.ops().RmsNorm(wide, merged.view().Columns(0, h), weight, 1e-5f);
        return std::vector{Floats(backend, out), Floats(backend, residual), Floats(backend, wide)};
      };
      const auto ours = run(cpu);
      const auto expected = run(reference);
      CHECK(MaxError(ours[0], expected[0]) < backend_case.tolerance());
      CHECK(SameBits(ours[1], expected[1]));
      CHECK(MaxError(ours[2], expected[2]) < 1e-5f);
    }
  });
}

TEST_CASE("LayerNorm, Gelu, GeluAndMul, Add, Convert and SoftCap equal the reference") {
  ForEachCase(6, [&](const BackendCase& backend_case, Backend& cpu, Backend& reference,
                     Draw& draw) {
    const int64_t t = draw.Int(1, 9);
    const int64_t h = draw.Int(2, 200);
    CAPTURE(t, h);
    const auto x = draw.Normals(t * 2 * h, 3);
    const auto stream = draw.Normals(t * h, 3);
    const auto w = draw.Normals(h);
    const auto b = draw.Normals(h);
    const auto nonlinearity = static_cast<Nonlinearity>(draw.Int(0, 4));
    CAPTURE(static_cast<int>(nonlinearity));
    auto run = [&](Backend& backend) {
      const OwnedTensor weight = Upload(backend, w, {h}, DType::kF32);
      const OwnedTensor bias = Upload(backend, b, {h}, DType::kF32);
      const OwnedTensor merged = UploadAct(backend, x, {t, 2 * h});
      const OwnedTensor residual = Upload(backend, stream, {t, h}, DType::kF32);
      const OwnedTensor capped = Upload(backend, stream, {t, h}, DType::kF32);
      const OwnedTensor out = Make(backend, backend.activation_dtype(), {4 * t, h});
      const OwnedTensor wide = Make(backend, DType::kF32, {2 * t, h});
      backend.ops().LayerNorm(wide.view().Rows(0, t), residual, weight, bias, 1e-5f);
      backend.ops().Activate(out.view().Rows(0, t), merged.view().Columns(0, h), nonlinearity);
      backend.ops().GeluAndMul(out.view().Rows(t, t), merged);
      backend.ops().Convert(out.view().Rows(2 * t, t), residual);
      backend.ops().Convert(wide.view().Rows(t, t), merged.view().Columns(0, h));
      backend.ops().Add(residual, merged.view().Columns(h, h));
      backend.ops().SoftCap(capped, 4.0f);
      backend.ops().Scale(capped, 0.3f);
      backend.ops().ClampedSiluAndMul(out.view().Rows(3 * t, t), merged, 2.5f);
      backend.ops().Scale(out.view().Rows(t, t), 0.7f);
      return std::vector{Floats(backend, out), Floats(backend, wide), Floats(backend, residual),
                         Floats(backend, capped)};
    };
    const auto ours = run(cpu);
    const auto expected = run(reference);
    const float rounding = backend_case.dtype == DType::kBf16 ? backend_case.tolerance() : 1e-5f;
    CHECK(MaxError(ours[0], expected[0]) < rounding);
    CHECK(MaxError(ours[1], expected[1]) < rounding);
    CHECK(MaxError(ours[2], expected[2]) < rounding);
    CHECK(MaxError(ours[3], expected[3]) < 1e-5f);
  });
}

TEST_CASE("SiluAndMul is finite and right at the ends of exp's range") {
  ForEachCase(1, [&](const BackendCase&, Backend& cpu, Backend&, Draw&) {
    const std::vector<float> gates = {-1000, -100, -88, -20, -0.0f, 20, 88, 100, 1000};
    std::vector<float> row = gates;
    row.insert(row.end(), gates.size(), 1.0f);
    const auto size = static_cast<int64_t>(gates.size());
    const OwnedTensor out = Make(cpu, cpu.activation_dtype(), {1, size});
    cpu.ops().SiluAndMul(out, Upload(cpu, row, {1, 2 * size}, DType::kF32));
    for (int64_t i = 0; i < size; ++i) {
      const float expected = static_cast<float>(gates[i] / (1 + std::exp(-double{gates[i]})));
      CHECK(Floats(cpu, out)[i] == Approx(expected).epsilon(0.01).margin(1e-6));
    }
  });
}

TEST_CASE("QkNormRopeWriteKv and PagedAttention equal the reference under any schedule") {
  ForEachCase(10, [&](const BackendCase& backend_case, Backend& cpu, Backend& reference,
                      Draw& draw) {
    AttentionModel model = AttentionModel::Random(draw, 400);
    const int format = draw.Int(0, 5);
    if (format < 2) model.kv_format = KvFormat::kInt8;
    if (format == 3 && backend_case.has_int8) model.kv_format = KvFormat::kInt4;
    if (format == 2) {
      model.kv_format = KvFormat::kFloat8;
      model.k_scale = static_cast<float>(draw.Int(1, 30)) / 16;
      model.v_scale = static_cast<float>(draw.Int(1, 30)) / 16;
    }
    CAPTURE(model.shape.num_heads, model.shape.num_kv_heads, model.shape.head_dim, model.rotary_dim,
            model.block_size, model.options.sliding_window, model.options.soft_cap,
            model.options.chunk, model.has_sinks, model.has_slopes, model.is_interleaved);
    std::vector<std::vector<float>> qkv;
    for (int r = 0; r < 3; ++r) qkv.push_back(draw.Normals(draw.Int(1, 160) * model.qkv_size()));
    AttentionRun expected(reference, model, qkv, draw);
    expected.RunAtOnce();
    AttentionRun ours(cpu, model, qkv, draw);
    ours.RunRandomly(draw);
    for (int r = 0; r < 3; ++r) {
      // A sum in another order may round a number of an int8 cache the other way, of float8 by
      // 1/16, of int4 by 1/15 of its group's range.
      const bool is_coarse =
          backend_case.dtype == DType::kBf16 || model.kv_format == KvFormat::kInt8;
      const bool is_int4 = model.kv_format == KvFormat::kInt4;
      const float bound = is_int4                                ? 0.5f
                          : model.kv_format == KvFormat::kFloat8 ? 0.1f
                          : is_coarse                            ? 0.05f
                                                                 : 2e-5f;
      CHECK(MaxError(ours.output(r), expected.output(r)) < bound);
      if (is_int4) {
        CHECK(MeanError(ours.output(r), expected.output(r)) <
              (backend_case.dtype == DType::kBf16 ? 0.02 : 1e-3));
      }
    }
  });
}

TEST_CASE("LatentRopeWriteKv and PagedAttention of latents equal the reference") {
  ForEachCase(8,
              [&](const BackendCase& backend_case, Backend& cpu, Backend& reference, Draw& draw) {
                AttentionModel model = AttentionModel::RandomLatent(draw, 400);
                // A wide latent with a narrow pe, as models have them; or what is left of a small
                // head.
                if (!backend_case.is_scalar && draw.Int(0, 3) == 0) model.shape.head_dim = 240;
                if (model.rotary_dim == model.shape.head_dim)
                  model.rotary_dim = model.shape.head_dim / 4 * 2;
                model.options.scale = 1 / std::sqrt(static_cast<float>(model.shape.head_dim));
                const auto positions = static_cast<size_t>(400 * (model.rotary_dim / 2));
                model.cos.resize(positions, 0.6f);
                model.sin.resize(positions, 0.8f);
                model.k_norm = draw.Normals(model.shape.head_dim);
                const int format = draw.Int(0, 5);
                if (format < 2 && backend_case.has_int8) model.kv_format = KvFormat::kInt8;
                if (format == 2 && backend_case.has_int8) model.kv_format = KvFormat::kInt4;
                CAPTURE(model.shape.num_heads, model.shape.head_dim, model.rotary_dim,
                        model.is_interleaved, model.block_size, model.options.sliding_window);
                std::vector<std::vector<float>> rows;
                for (int r = 0; r < 3; ++r)
                  rows.push_back(draw.Normals(draw.Int(1, 160) * model.qkv_size()));
                AttentionRun expected(reference, model, rows, draw);
                expected.RunAtOnce();
                AttentionRun ours(cpu, model, rows, draw);
                ours.RunRandomly(draw);
                for (int r = 0; r < 3; ++r) {
                  const bool is_coarse =
                      backend_case.dtype == DType::kBf16 || model.kv_format == KvFormat::kInt8;
                  const bool is_int4 = model.kv_format == KvFormat::kInt4;
                  CHECK(MaxError(ours.output(r), expected.output(r)) < (is_int4     ? 0.5f
                                                                        : is_coarse ? 0.05f
                                                                                    : 2e-5f));
                  if (is_int4) {
                    CHECK(MeanError(ours.output(r), expected.output(r)) <
                          (backend_case.dtype == DType::kBf16 ? 0.02 : 1e-3));
                  }
                }
              });
}

// A token that sees itself alone has its value as output.
TEST_CASE(
    "an int4 cache keeps a head to a part of its root mean square, with a channel far above") {
  ForEachCase(2,
              [&](const BackendCase& backend_case, Backend& cpu, Backend& reference, Draw& draw) {
                if (!backend_case.has_int8) return;
                AttentionModel model = AttentionModel::Random(draw, 40);
                model.shape = {.num_heads = 1, .num_kv_heads = 1, .head_dim = 64};
                model.rotary_dim = 0;
                model.q_norm = model.k_norm = std::vector<float>(64);
                model.has_sinks = false;
                model.kv_format = KvFormat::kInt4;
                const auto error_of = [&](Backend& backend, float outlier) {
                  std::vector<std::vector<float>> qkv = {draw.Normals(model.qkv_size())};
                  float* const value = qkv[0].data() + 2 * model.shape.head_dim;
                  if (outlier > 0) value[draw.Int(0, 63)] = outlier;
                  AttentionRun run(backend, model, qkv, draw);
                  run.RunAtOnce();
                  double sum = 0;
                  for (int i = 0; i < 64; ++i) {
                    const double error = run.output(0)[static_cast<size_t>(i)] - value[i];
                    sum += error * error / 64;
                  }
                  return std::sqrt(sum);
                };
                for (Backend* backend : {&cpu, &reference}) {
                  CHECK(error_of(*backend, 0) < 0.15);
                  CHECK(error_of(*backend, 0) > 0.02);
                  // Without a rotation: 30 / 15 / sqrt(12) in the half with the channel, 0.41 in
                  // all.
                  CHECK(error_of(*backend, 30) < 0.32);
                }
              });
}

TEST_CASE("PagedAttention of texts whose tokens see those after them equals the reference") {
  ForEachCase(10,
              [&](const BackendCase& backend_case, Backend& cpu, Backend& reference, Draw& draw) {
                AttentionModel model = AttentionModel::Random(draw, 400);
                model.options.is_bidirectional = true;
                CAPTURE(model.shape.num_heads, model.shape.num_kv_heads, model.shape.head_dim,
                        model.block_size, model.options.sliding_window, model.options.soft_cap);
                std::vector<std::vector<float>> qkv;
                for (int r = 0; r < 3; ++r)
                  qkv.push_back(draw.Normals(draw.Int(1, 290) * model.qkv_size()));
                AttentionRun expected(reference, model, qkv, draw);
                expected.RunAtOnce();
                AttentionRun ours(cpu, model, qkv, draw);
                ours.RunAtOnce();
                AttentionRun alone(cpu, model, qkv, draw);
                for (int r = 0; r < 3; ++r) {
                  alone.Step({{r, alone.length(r)}});
                  const float limit = backend_case.dtype == DType::kBf16 ? 0.05f : 2e-5f;
                  CHECK(MaxError(ours.output(r), expected.output(r)) < limit);
                  CHECK(MaxError(alone.output(r), expected.output(r)) < limit);
                  if (cpu.device().memory_is_host()) {
                    CHECK(SameBits(ours.output(r), alone.output(r)));
                  }
                }
              });
}

TEST_CASE(
    "PagedAttention of texts with images, whose tokens see each other, equals the reference") {
  ForEachCase(10,
              [&](const BackendCase& backend_case, Backend& cpu, Backend& reference, Draw& draw) {
                AttentionModel model = AttentionModel::Random(draw, 400);
                model.options.chunk = 0;
                model.run_size = draw.Int(1, 90);
                if (draw.Int(0, 2) == 0 && backend_case.has_int8) model.kv_format = KvFormat::kInt8;
                CAPTURE(model.shape.num_heads, model.shape.num_kv_heads, model.shape.head_dim,
                        model.block_size, model.options.sliding_window, model.run_size);
                std::vector<std::vector<float>> qkv;
                for (int r = 0; r < 3; ++r)
                  qkv.push_back(draw.Normals(draw.Int(1, 290) * model.qkv_size()));
                AttentionRun expected(reference, model, qkv, draw);
                expected.RunAtOnce();
                AttentionRun ours(cpu, model, qkv, draw);
                ours.RunAtOnce();
                // In chunks between images.
                AttentionRun parts(cpu, model, qkv, draw);
                for (int r = 0; r < 3; ++r) {
                  for (int done = 0; done < parts.length(r); done += 2 * model.run_size) {
                    parts.Step({{r, std::min(2 * model.run_size, parts.length(r) - done)}});
                  }
                  const bool is_coarse =
                      backend_case.dtype == DType::kBf16 || model.kv_format == KvFormat::kInt8;
                  const float limit = is_coarse ? 0.05f : 2e-5f;
                  CHECK(MaxError(ours.output(r), expected.output(r)) < limit);
                  CHECK(MaxError(parts.output(r), expected.output(r)) < limit);
                  if (cpu.device().memory_is_host()) {
                    CHECK(SameBits(ours.output(r), parts.output(r)));
                  }
                }
              });
}

TEST_CASE("QkNormRopeWriteKv takes angles from the rows that it is given") {
  ForEachCase(6, [&](const BackendCase&, Backend& cpu, Backend& reference, Draw& draw) {
    for (Backend* backend : {&cpu, &reference}) {
      AttentionModel model = AttentionModel::Random(draw, 400);
      model.has_q_scale = false;
      const std::vector<std::vector<float>> qkv = {draw.Normals(40 * model.qkv_size())};
      AttentionRun by_position(*backend, model, qkv, draw);
      by_position.RunAtOnce();
      AttentionModel turned = model;
      turned.has_rope_rows = true;
      AttentionRun by_row(*backend, turned, qkv, draw);
      by_row.RunAtOnce();
      CHECK(SameBits(by_row.output(0), by_position.output(0)));
    }
  });
}

TEST_CASE("ErfGeluAndMul equals the reference") {
  ForEachCase(6,
              [&](const BackendCase& backend_case, Backend& cpu, Backend& reference, Draw& draw) {
                const int64_t t = draw.Int(1, 9), h = draw.Int(2, 200);
                const auto x = draw.Normals(t * 2 * h, 3);
                auto run = [&](Backend& backend) {
                  const OwnedTensor merged = UploadAct(backend, x, {t, 2 * h});
                  const OwnedTensor out = Make(backend, backend.activation_dtype(), {t, h});
                  backend.ops().ErfGeluAndMul(out, merged);
                  return Floats(backend, out);
                };
                CHECK(MaxError(run(cpu), run(reference)) <
                      (backend_case.dtype == DType::kBf16 ? backend_case.tolerance() : 1e-5f));
              });
}

TEST_CASE("PagedAttention over a long context, all at once and token by token at its end") {
  ForEachCase(2,
              [&](const BackendCase& backend_case, Backend& cpu, Backend& reference, Draw& draw) {
                AttentionModel model = AttentionModel::Random(draw, 1);
                model.has_q_scale = false;  // there are positions beyond it
                model.shape = {.num_heads = 2, .num_kv_heads = 1, .head_dim = 16};
                model.rotary_dim = 0;
                model.options = {.scale = 0.25f, .sliding_window = draw.Int(0, 1) * 700};
                model.q_norm = model.k_norm = draw.Normals(16);
                CAPTURE(model.options.sliding_window, model.block_size);
                const std::vector<std::vector<float>> qkv = {draw.Normals(1100 * model.qkv_size()),
                                                             draw.Normals(40 * model.qkv_size())};
                AttentionRun expected(reference, model, qkv, draw);
                expected.RunAtOnce();
                AttentionRun ours(cpu, model, qkv, draw);
                ours.Step({{0, 1095}, {1, 38}});
                for (int i = 0; i < 5; ++i) ours.Step({{0, 1}});
                ours.Step({{1, 2}});
                for (int r = 0; r < 2; ++r) {
                  CHECK(MaxError(ours.output(r), expected.output(r)) <
                        (backend_case.dtype == DType::kBf16 ? 0.05f : 2e-5f));
                }
              });
}

TEST_CASE("PagedAttention of one query per request equals the reference") {
  const int groups[] = {1, 2, 3, 4, 7, 8, 9};
  ForEachCase(
      5, [&](const BackendCase& backend_case, Backend& cpu, Backend& reference, Draw& draw) {
        AttentionModel model = AttentionModel::Random(draw, 400);
        model.shape = {.num_heads = 2 * groups[draw.Int(0, 6)],
                       .num_kv_heads = 2,
                       .head_dim = draw.Int(0, 1) == 0 ? 64 : 128};
        model.rotary_dim = 0;
        model.qk_norm = false;
        CAPTURE(model.shape.num_heads, model.shape.head_dim, model.block_size,
                model.options.sliding_window, model.options.soft_cap, model.options.chunk,
                model.has_sinks, model.has_slopes, model.is_interleaved);
        std::vector<std::vector<float>> qkv;
        const int longest = draw.Int(0, 1) == 0 ? 40 : 220;
        for (int r = 0; r < 3; ++r) {
          qkv.push_back(draw.Normals(draw.Int(4, longest) * model.qkv_size()));
        }
        AttentionRun expected(reference, model, qkv, draw);
        expected.RunAtOnce();
        AttentionRun ours(cpu, model, qkv, draw);
        ours.Step({{0, ours.length(0) - 3}, {1, ours.length(1) - 3}, {2, ours.length(2) - 3}});
        ours.Step({{2, 1}, {0, 1}});
        ours.Step({{1, 1}});
        for (int i = 0; i < 2; ++i) ours.Step({{0, 1}, {1, 1}, {2, 1}});
        for (int r = 0; r < 3; ++r) {
          CHECK(MaxError(ours.output(r), expected.output(r)) <
                (backend_case.dtype == DType::kBf16 ? 0.05f : 2e-5f));
        }
      });
}

TEST_CASE("GatherRows equals the reference") {
  ForEachCase(4, [&](const BackendCase&, Backend& cpu, Backend& reference, Draw& draw) {
    const int64_t rows = draw.Int(1, 5);
    const int64_t size = draw.Int(1, 1000);
    auto logits = draw.Normals(rows * size, 8);
    std::vector<int32_t> wanted(rows);
    for (int32_t& row : wanted) row = draw.Int(0, static_cast<int>(rows) - 1);
    auto run = [&](Backend& backend) {
      const OwnedTensor input = Upload(backend, logits, {rows, size}, DType::kF32);
      const OwnedTensor gathered = Make(backend, DType::kF32, {rows, size});
      backend.ops().GatherRows(gathered, input, UploadInts(backend, wanted, {rows}));
      return Floats(backend, gathered);
    };
    CHECK(run(cpu) == run(reference));
  });
}

TEST_CASE("ArgMax, FillIds and GatherColumns equal the reference") {
  ForEachCase(6, [&](const BackendCase&, Backend& cpu, Backend& reference, Draw& draw) {
    const int64_t rows = draw.Int(1, 6), size = draw.Int(1, 1500), known = draw.Int(1, 7);
    // Few values, so that many are equal; some rows have nothing but NaN and -infinity.
    std::vector<float> logits;
    for (int64_t i = 0; i < rows * size; ++i) {
      const int kind = draw.Int(0, 20);
      const bool is_empty = i / size == 1;
      logits.push_back(kind == 0 || (is_empty && kind < 10) ? NAN
                       : kind == 1 || is_empty              ? -INFINITY
                                                            : static_cast<float>(draw.Int(-3, 3)));
    }
    std::vector<int32_t> given, columns;
    for (int i = 0; i < 300; ++i) given.push_back(draw.Int(-static_cast<int>(known), 500));
    for (int i = 0; i < 700; ++i) columns.push_back(draw.Int(-1, static_cast<int>(size) - 1));
    std::vector<int32_t> ids_of(static_cast<size_t>(known));
    std::iota(ids_of.begin(), ids_of.end(), 100);
    struct Results {
      std::vector<int32_t> best, filled;
      std::vector<float> gathered;
    };
    const auto run = [&](Backend& backend) {
      const OwnedTensor x = Upload(backend, logits, {rows, size}, DType::kF32);
      const OwnedTensor best = Make(backend, DType::kI32, {rows});
      const OwnedTensor filled = UploadInts(backend, given, {300});
      const OwnedTensor out = Make(backend, DType::kF32, {rows, 700});
      backend.ops().ArgMax(best, x);
      backend.ops().FillIds(filled, UploadInts(backend, ids_of, {known}));
      backend.ops().GatherColumns(out, x, UploadInts(backend, columns, {700}), -7);
      return Results{Ints(backend, best), Ints(backend, filled), Floats(backend, out)};
    };
    const Results got = run(cpu), expected = run(reference);
    CHECK(got.best == expected.best);
    CHECK(got.filled == expected.filled);
    CHECK(SameBits(got.gathered, expected.gathered));
    CHECK(std::ranges::none_of(got.filled, [](int32_t id) { return id < 0; }));
  });
}

TEST_CASE("GatherAngles takes each angle from the row of its axis, as the reference does") {
  ForEachCase(6, [&](const BackendCase&, Backend& cpu, Backend& reference, Draw& draw) {
    const int64_t tokens = draw.Int(1, 40), size = draw.Int(1, 300), rows = draw.Int(1, 50);
    CAPTURE(tokens, size, rows);
    const auto table = draw.Normals(rows * size);
    std::vector<int32_t> positions, axes;
    for (int64_t i = 0; i < 3 * tokens; ++i) {
      positions.push_back(draw.Int(0, static_cast<int>(rows) - 1));
    }
    for (int64_t i = 0; i < size; ++i) axes.push_back(draw.Int(0, 2));
    const auto run = [&](Backend& backend) {
      const OwnedTensor out = Make(backend, DType::kF32, {tokens, size});
      backend.ops().GatherAngles(out, Upload(backend, table, {rows, size}, DType::kF32),
                                 UploadInts(backend, positions, {3, tokens}),
                                 UploadInts(backend, axes, {size}));
      return Floats(backend, out);
    };
    const std::vector<float> expected = run(reference);
    CHECK(SameBits(run(cpu), expected));
    for (int64_t i = 0; i < tokens * size; ++i) {
      const int64_t position =
          positions[static_cast<size_t>(axes[static_cast<size_t>(i % size)] * tokens + i / size)];
      CHECK(expected[static_cast<size_t>(i)] ==
            table[static_cast<size_t>(position * size + i % size)]);
    }
  });
}

TEST_CASE("RouteTopK and SoftCap of strided rows and of logits of any size") {
  ForEachCase(6, [&](const BackendCase&, Backend& cpu, Backend& reference, Draw& draw) {
    const int64_t rows = draw.Int(2, 6), size = draw.Int(2, 1200), gap = draw.Int(1, 9);
    const int num_experts = draw.Int(2, 60), top_k = draw.Int(1, num_experts);
    CAPTURE(rows, size, gap, num_experts, top_k);
    auto logits = draw.Normals(rows * (size + gap), 3);
    for (int64_t r = 0; r < rows; ++r) {
      const float height = static_cast<float>(draw.Int(-1, 1)) * 200;
      float* row = logits.data() + r * (size + gap);
      for (int64_t i = 0; i < size; ++i) row[i] += height;
      row[draw.Int(0, static_cast<int>(size) - 1)] += 100;
    }
    std::vector<float> of_experts(rows * (num_experts + gap));
    for (float& logit : of_experts) logit = static_cast<float>(draw.Int(-6, 6));
    auto run = [&](Backend& backend) {
      const OwnedTensor wide = Upload(backend, logits, {rows, size + gap}, DType::kF32);
      const OwnedTensor experts =
          Upload(backend, of_experts, {rows, num_experts + gap}, DType::kF32);
      const std::vector<int32_t> no_ids(rows * (top_k + gap), -1);
      const OwnedTensor expert_ids = UploadInts(backend, no_ids, {rows, top_k + gap});
      const std::vector<float> no_weights(no_ids.size(), -1);
      const OwnedTensor weights = Upload(backend, no_weights, {rows, top_k + gap}, DType::kF32);
      const Tensor input = wide.view().Columns(0, size);
      backend.ops().RouteTopK(expert_ids.view().Columns(0, top_k), weights.view().Columns(0, top_k),
                              experts.view().Columns(0, num_experts), {.renormalize = true});
      backend.ops().SoftCap(input, 4.0f);
      return std::tuple(Ints(backend, expert_ids), Floats(backend, weights), Floats(backend, wide));
    };
    const auto ours = run(cpu), expected = run(reference);
    CHECK(std::get<0>(ours) == std::get<0>(expected));
    CHECK(MaxError(std::get<1>(ours), std::get<1>(expected)) < 1e-6f);
    CHECK(MaxError(std::get<2>(ours), std::get<2>(expected)) < 1e-5f);
  });
}

TEST_CASE("RouteTopK equals the reference, the lowest id of equals first") {
  ForEachCase(6, [&](const BackendCase&, Backend& cpu, Backend& reference, Draw& draw) {
    const int64_t tokens = draw.Int(1, 40);
    const int num_experts = draw.Int(1, 130);
    const int64_t top_k = draw.Int(1, num_experts);
    const bool renormalize = draw.Int(0, 1) == 1;
    CAPTURE(tokens, num_experts, top_k, renormalize);
    // Few distinct values: most of them are ties. Far apart: equal exponentials mean equal logits.
    std::vector<float> logits(tokens * num_experts);
    for (float& logit : logits) logit = static_cast<float>(draw.Int(-6, 6));
    auto run = [&](Backend& backend) {
      const OwnedTensor ids = Make(backend, DType::kI32, {tokens, top_k});
      const OwnedTensor weights = Make(backend, DType::kF32, {tokens, top_k});
      backend.ops().RouteTopK(ids, weights,
                              Upload(backend, logits, {tokens, num_experts}, DType::kF32),
                              {.renormalize = renormalize});
      return std::pair(Ints(backend, ids), Floats(backend, weights));
    };
    const auto [ids, weights] = run(cpu);
    const auto [expected_ids, expected_weights] = run(reference);
    CHECK(ids == expected_ids);
    CHECK(MaxError(weights, expected_weights) < 1e-6f);
    for (int64_t t = 0; t < tokens; ++t) {
      float sum = 0;
      for (int64_t k = 0; k < top_k; ++k) {
        sum += weights[t * top_k + k];
        if (k == 0) continue;
        const int32_t last = ids[t * top_k + k - 1], id = ids[t * top_k + k];
        const float before = logits[t * num_experts + last], now = logits[t * num_experts + id];
        REQUIRE((before > now || (before == now && last < id)));
      }
      if (renormalize || top_k == num_experts) CHECK(sum == Approx(1.0f));
    }
  });
}

TEST_CASE("RouteTopK of sigmoids, with a bias and of the best groups alone") {
  ForEachCase(8, [&](const BackendCase&, Backend& cpu, Backend& reference, Draw& draw) {
    const int64_t tokens = draw.Int(1, 40);
    const int num_groups = draw.Int(1, 9), group_size = draw.Int(2, 12);
    const int64_t num_experts = num_groups * group_size;
    RouteOptions options;
    options.score = draw.Int(0, 2) > 0 ? RouterScore::kSigmoid : RouterScore::kSoftmax;
    options.renormalize = draw.Int(0, 1) == 1;
    options.scale = draw.Int(0, 1) == 1 ? 2.5f : 1.0f;
    options.num_groups = num_groups;
    options.top_groups = draw.Int(1, num_groups);
    options.group_best = draw.Int(1, 2);
    const int64_t top_k = draw.Int(1, options.top_groups * group_size);
    const bool has_bias = draw.Int(0, 2) > 0, has_expert_scale = draw.Int(0, 2) == 0;
    CAPTURE(tokens, num_groups, group_size, top_k, options.top_groups, options.group_best, has_bias,
            options.scale, has_expert_scale);
    const auto expert_scale = draw.Normals(num_experts, 0.5f);
    std::vector<float> logits(tokens * num_experts), bias(num_experts);
    // Few values and exact sums: most of the choices are between equals.
    for (float& logit : logits) logit = static_cast<float>(draw.Int(-3, 3));
    for (float& number : bias) number = static_cast<float>(draw.Int(-2, 2));
    // But sums that are equal only when rounded would be chosen by their rounding.
    if (has_bias && options.group_best == 2) logits = draw.Normals(tokens * num_experts);
    if (has_bias && options.group_best == 2) bias = draw.Normals(num_experts);
    auto run = [&](Backend& backend) {
      const OwnedTensor ids = Make(backend, DType::kI32, {tokens, top_k});
      const OwnedTensor weights = Make(backend, DType::kF32, {tokens, top_k});
      const OwnedTensor biases = Upload(backend, bias, {num_experts}, DType::kF32);
      RouteOptions own = options;
      if (has_bias) own.bias = biases;
      const OwnedTensor scales = Upload(backend, expert_scale, {num_experts}, DType::kF32);
      if (has_expert_scale) own.expert_scale = scales;
      backend.ops().RouteTopK(ids, weights,
                              Upload(backend, logits, {tokens, num_experts}, DType::kF32), own);
      return std::pair(Ints(backend, ids), Floats(backend, weights));
    };
    const auto [ids, weights] = run(cpu);
    const auto [expected_ids, expected_weights] = run(reference);
    CHECK(ids == expected_ids);
    CHECK(MaxError(weights, expected_weights) < 1e-6f);
    for (int64_t t = 0; t < tokens; ++t) {
      std::vector<int32_t> groups;
      float sum = 0;
      for (int64_t k = 0; k < top_k; ++k) {
        groups.push_back(ids[t * top_k + k] / group_size);
        sum += weights[t * top_k + k] / (has_expert_scale ? expert_scale[ids[t * top_k + k]] : 1);
      }
      std::sort(groups.begin(), groups.end());
      groups.erase(std::unique(groups.begin(), groups.end()), groups.end());
      REQUIRE(static_cast<int>(groups.size()) <= options.top_groups);
      if (options.renormalize) CHECK(sum == Approx(options.scale));
    }
  });
}

TEST_CASE("RouteTopK by the sparse mixer takes the best two, weighed among their like") {
  ForEachCase(8, [&](const BackendCase&, Backend& cpu, Backend& reference, Draw& draw) {
    const int64_t tokens = draw.Int(1, 40), num_experts = draw.Int(2, 70);
    CAPTURE(tokens, num_experts);
    const auto logits = draw.Normals(tokens * num_experts, 2);
    auto run = [&](Backend& backend) {
      const OwnedTensor ids = Make(backend, DType::kI32, {tokens, 2});
      const OwnedTensor weights = Make(backend, DType::kF32, {tokens, 2});
      backend.ops().RouteTopK(ids, weights,
                              Upload(backend, logits, {tokens, num_experts}, DType::kF32),
                              {.score = RouterScore::kSparseMixer, .jitter = 0.2f});
      return std::pair(Ints(backend, ids), Floats(backend, weights));
    };
    const auto [ids, weights] = run(cpu);
    const auto [expected_ids, expected_weights] = run(reference);
    CHECK(ids == expected_ids);
    CHECK(MaxError(weights, expected_weights) < 1e-5f);
  });
}

TEST_CASE("ScaleRows multiplies each row by the weight of its token") {
  ForEachCase(
      3, [&](const BackendCase& backend_case, Backend& cpu, Backend& reference, Draw& draw) {
        const int64_t rows = draw.Int(1, 9), size = draw.Int(1, 300), tokens = draw.Int(1, 5);
        const auto x = draw.Normals(rows * size);
        const auto of_tokens = draw.Normals(tokens * 3);
        std::vector<int32_t> ids(rows);
        for (int32_t& id : ids) id = draw.Int(0, static_cast<int>(tokens) - 1);
        auto run = [&](Backend& backend) {
          const OwnedTensor scaled = UploadAct(backend, x, {rows, size});
          const OwnedTensor weights = Upload(backend, of_tokens, {tokens, 3}, DType::kF32);
          backend.ops().ScaleRows(scaled, weights.view().Columns(1, 1),
                                  UploadInts(backend, ids, {rows}));
          return Floats(backend, scaled);
        };
        CHECK(MaxError(run(cpu), run(reference)) < backend_case.tolerance());
      });
}

TEST_CASE("RouteTopK returns valid ids even for NaN logits, each expert once") {
  ForEachCase(1, [&](const BackendCase&, Backend& cpu, Backend& reference, Draw&) {
    std::vector<float> logits = {NAN, 1, 2, 3, 1, NAN, 3, 2, NAN, NAN, NAN, NAN, 1, 2, INFINITY, 4};
    for (Backend* backend : {&cpu, &reference}) {
      const OwnedTensor ids = UploadInts(*backend, std::vector<int32_t>(4 * 2, -1), {4, 2});
      const OwnedTensor weights = Make(*backend, DType::kF32, {4, 2});
      backend->ops().RouteTopK(ids, weights, Upload(*backend, logits, {4, 4}, DType::kF32),
                               {.renormalize = true});
      const auto check_ids = [&] {
        const std::vector<int32_t> chosen = Ints(*backend, ids);
        for (int32_t id : chosen) CHECK((id >= 0 && id < 4));
        for (size_t t = 0; t < 4; ++t) CHECK(chosen[2 * t] != chosen[2 * t + 1]);
      };
      check_ids();
      for (float weight : Floats(*backend, weights)) CHECK(std::isnan(weight));
      backend->ops().RouteTopK(ids, weights, Upload(*backend, logits, {4, 4}, DType::kF32),
                               {.score = RouterScore::kSparseMixer, .jitter = 0.01f});
      check_ids();
    }
  });
}

namespace {

// Each token's experts and their weights.
struct Routing {
  int64_t num_tokens, num_experts, top_k;
  std::vector<int32_t> ids;  // [T, K]
  std::vector<float> weights;
};

// Some experts are likelier than others, so that some have no tokens and some many.
Routing DrawRouting(Draw& draw, int64_t num_tokens, int num_experts, int top_k) {
  Routing routing = {num_tokens, num_experts, top_k, {}, draw.Normals(num_tokens * top_k)};
  for (int64_t t = 0; t < num_tokens; ++t) {
    std::vector<int32_t> ids;
    while (static_cast<int>(ids.size()) < top_k) {
      const int liked = draw.Int(0, num_experts - 1);
      const int id = draw.Int(0, 2) == 0 ? liked : liked % (top_k + 1) % num_experts;
      if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
    }
    routing.ids.insert(routing.ids.end(), ids.begin(), ids.end());
  }
  return routing;
}

struct PairMemory {
  OwnedTensor begin, chosen, tokens, of_token, weights;
  ExpertPairs pairs() const { return {begin, chosen, tokens, of_token, weights}; }
};

PairMemory MakePairs(Backend& backend, const Routing& routing) {
  const int64_t tokens = routing.num_tokens, top_k = routing.top_k;
  return {Make(backend, DType::kI32, {routing.num_experts + 1}),
          Make(backend, DType::kI32, {routing.num_experts}),
          Make(backend, DType::kI32, {tokens * top_k}), Make(backend, DType::kI32, {tokens, top_k}),
          Make(backend, DType::kF32, {tokens, top_k})};
}

void Group(Backend& backend, const Routing& routing, const PairMemory& memory) {
  const int64_t tokens = routing.num_tokens, top_k = routing.top_k;
  backend.ops().GroupByExpert(memory.pairs(), UploadInts(backend, routing.ids, {tokens, top_k}),
                              Upload(backend, routing.weights, {tokens, top_k}, DType::kF32));
}

// The matrices [n, k] of all experts, one after another.
std::unique_ptr<PackedExperts> PackExperts(Backend& backend, const std::vector<float>& values,
                                           int64_t n, int64_t k, bool is_gated) {
  std::vector<std::unique_ptr<PackedMatrix>> experts;
  for (auto at = values.begin(); at != values.end(); at += n * k) {
    std::vector<float> matrix(at, at + n * k);
    experts.push_back(is_gated ? PackGated(backend, matrix, n, k) : Pack(backend, matrix, n, k));
  }
  return backend.PackExperts(std::move(experts)).value();
}

}  // namespace

TEST_CASE("GroupByExpert equals the reference") {
  ForEachCase(8, [&](const BackendCase&, Backend& cpu, Backend& reference, Draw& draw) {
    const int num_experts = draw.Int(1, 130);
    const int top_k = draw.Int(1, std::min(num_experts, 9));
    const Routing routing = DrawRouting(draw, draw.Int(1, 100), num_experts, top_k);
    CAPTURE(routing.num_tokens, num_experts, top_k);
    auto run = [&](Backend& backend) {
      const PairMemory memory = MakePairs(backend, routing);
      Group(backend, routing, memory);
      return std::tuple(Ints(backend, memory.begin), Ints(backend, memory.chosen),
                        Ints(backend, memory.tokens), Ints(backend, memory.of_token),
                        Floats(backend, memory.weights));
    };
    const auto ours = run(cpu), expected = run(reference);
    CHECK(std::get<0>(ours) == std::get<0>(expected));
    CHECK(std::get<1>(ours) == std::get<1>(expected));
    CHECK(std::get<2>(ours) == std::get<2>(expected));
    CHECK(std::get<3>(ours) == std::get<3>(expected));
    CHECK(std::get<4>(ours) == std::get<4>(expected));
  });
}

TEST_CASE("GroupByExpert: pairs by expert, then token, and a token's by rising expert") {
  ForEachCase(1, [&](const BackendCase&, Backend& cpu, Backend& reference, Draw&) {
    const Routing routing = {3, 5, 2, {4, 1, 1, 0, 4, 0}, {0.5f, 0.25f, 1, 2, 3, 4}};
    for (Backend* backend : {&cpu, &reference}) {
      const PairMemory memory = MakePairs(*backend, routing);
      Group(*backend, routing, memory);
      CHECK(Ints(*backend, memory.begin) == std::vector<int32_t>{0, 2, 4, 4, 4, 6});
      CHECK(Ints(*backend, memory.chosen) == std::vector<int32_t>{0, 1, 4, -1, -1});
      CHECK(Ints(*backend, memory.tokens) == std::vector<int32_t>{1, 2, 0, 1, 0, 2});
      CHECK(Ints(*backend, memory.of_token) == std::vector<int32_t>{2, 4, 0, 3, 1, 5});
      CHECK(Floats(*backend, memory.weights) == std::vector<float>{0.25f, 0.5f, 2, 1, 4, 3});
    }
  });
}

TEST_CASE("ExpertLinear equals the reference: few and many rows of an expert, or none") {
  const int columns[] = {2, 30, 64, 130};
  const int depths[] = {1, 31, 64, 96, 256, 333};
  ForEachCase(
      14, [&](const BackendCase& backend_case, Backend& cpu, Backend& reference, Draw& draw) {
        const int64_t n = columns[draw.Int(0, 3)], k = depths[draw.Int(0, 5)];
        const int num_experts = draw.Int(0, 2) == 0 ? 1 : draw.Int(2, 12);
        const int top_k = draw.Int(1, std::min(num_experts, 3));
        const Routing routing = DrawRouting(draw, draw.Int(1, 70), num_experts, top_k);
        const int64_t num_pairs = routing.num_tokens * top_k;
        CAPTURE(n, k, num_experts, top_k, routing.num_tokens);
        const auto w = draw.Normals(num_experts * n * k, 1 / std::sqrt(static_cast<float>(k)));
        const auto x = draw.Normals(num_pairs * k);
        const auto biases = draw.Normals(num_experts * n);
        for (const auto epilogue :
             {LinearEpilogue::kStore, LinearEpilogue::kSiluAndMul, LinearEpilogue::kGeluAndMul}) {
          CAPTURE(static_cast<int>(epilogue));
          const bool is_gated = epilogue != LinearEpilogue::kStore;
          auto run = [&](Backend& backend) {
            const auto experts = PackExperts(backend, w, n, k, is_gated);
            const PairMemory memory = MakePairs(backend, routing);
            Group(backend, routing, memory);
            const OwnedTensor out =
                Make(backend, backend.activation_dtype(), {num_pairs, is_gated ? n / 2 : n});
            const OwnedTensor bias = Upload(backend, biases, {num_experts, n}, DType::kF32);
            backend.ops().ExpertLinear(out, UploadAct(backend, x, {num_pairs, k}), *experts,
                                       memory.pairs(), epilogue,
                                       num_experts % 2 == 0 ? bias.view() : Tensor());
            return Floats(backend, out);
          };
          CHECK(MaxError(run(cpu), run(reference)) < (is_gated ? 4 : 1) * backend_case.tolerance());
        }
      });
}

TEST_CASE("a captured mixture replays with other choices of experts") {
  ForEachCase(
      3, [&](const BackendCase& backend_case, Backend& cpu, Backend& reference, Draw& draw) {
        if (!cpu.device().can_capture()) return;
        const int64_t hidden = 64, inner = 48;
        const int num_experts = draw.Int(1, 9), top_k = draw.Int(1, std::min(num_experts, 3));
        const int64_t num_tokens =
            draw.Int(1, 80);  // one expert may have more rows than eager launches
        CAPTURE(num_experts, top_k, num_tokens);
        const auto up = draw.Normals(num_experts * 2 * inner * hidden, 0.125f);
        const auto down = draw.Normals(num_experts * hidden * inner, 0.125f);
        const auto x = draw.Normals(num_tokens * hidden);
        const auto stream = draw.Normals(num_tokens * hidden);
        const std::vector<Routing> routings = {DrawRouting(draw, num_tokens, num_experts, top_k),
                                               DrawRouting(draw, num_tokens, num_experts, top_k)};
        auto run = [&](Backend& backend) {
          const auto up_experts = PackExperts(backend, up, 2 * inner, hidden, true);
          const auto down_experts = PackExperts(backend, down, hidden, inner, false);
          const PairMemory memory = MakePairs(backend, routings[0]);
          const ExpertPairs pairs = memory.pairs();
          const int64_t num_pairs = num_tokens * top_k;
          const DType act = backend.activation_dtype();
          const OwnedTensor normed = UploadAct(backend, x, {num_tokens, hidden});
          const OwnedTensor rows = Make(backend, act, {num_pairs, hidden});
          const OwnedTensor activated = Make(backend, act, {num_pairs, inner});
          const OwnedTensor ids = Make(backend, DType::kI32, {num_tokens, top_k});
          const OwnedTensor weights = Make(backend, DType::kF32, {num_tokens, top_k});
          const OwnedTensor residual = Make(backend, DType::kF32, {num_tokens, hidden});
          const auto mix = [&] {
            backend.ops().GroupByExpert(pairs, ids, weights);
            backend.ops().GatherRows(rows, normed, pairs.tokens);
            backend.ops().ExpertLinear(activated, rows, *up_experts, pairs,
                                       LinearEpilogue::kSiluAndMul);
            backend.ops().ExpertLinear(rows, activated, *down_experts, pairs);
            backend.ops().AddWeightedRows(residual, rows, pairs.of_token, pairs.weights);
          };
          std::unique_ptr<CapturedOps> captured;
          if (backend.device().can_capture()) {
            backend.device().BeginCapture();
            mix();
            captured = backend.device().EndCapture().value();
          }
          std::vector<float> results;
          for (const Routing& routing : routings) {
            backend.device().CopyIn(ids, UploadInts(reference, routing.ids, {num_tokens, top_k}));
            backend.device().CopyIn(
                weights, Upload(reference, routing.weights, {num_tokens, top_k}, DType::kF32));
            backend.device().CopyIn(residual,
                                    Upload(reference, stream, {num_tokens, hidden}, DType::kF32));
            if (captured != nullptr) {
              backend.device().Replay(*captured);
            } else {
              mix();
            }
            const auto result = Floats(backend, residual);
            results.insert(results.end(), result.begin(), result.end());
          }
          return results;
        };
        CHECK(MaxError(run(cpu), run(reference)) <
              (backend_case.dtype == DType::kBf16 ? 0.05f : 2e-5f));
      });
}

TEST_CASE("AddWeightedRows equals the reference, rows named several times or never") {
  ForEachCase(4, [&](const BackendCase&, Backend& cpu, Backend& reference, Draw& draw) {
    const int64_t tokens = draw.Int(1, 9), rows = draw.Int(1, 60);
    const int64_t count = draw.Int(1, 9), h = draw.Int(1, 700);
    CAPTURE(tokens, rows, count, h);
    const auto stream = draw.Normals(tokens * h);
    const auto x = draw.Normals(rows * h);
    const auto weights = draw.Normals(tokens * count);
    std::vector<int32_t> from(tokens * count);
    for (int32_t& row : from) row = draw.Int(0, static_cast<int>(rows) - 1);
    for (bool f32_in : {false, true}) {
      auto run = [&](Backend& backend) {
        const OwnedTensor residual = Upload(backend, stream, {tokens, h}, DType::kF32);
        const DType type = f32_in ? DType::kF32 : backend.activation_dtype();
        backend.ops().AddWeightedRows(residual, Upload(backend, x, {rows, h}, type),
                                      UploadInts(backend, from, {tokens, count}),
                                      Upload(backend, weights, {tokens, count}, DType::kF32));
        return Floats(backend, residual);
      };
      CHECK(MaxError(run(cpu), run(reference)) < 2e-6f * static_cast<float>(1 + count));
    }
  });
}

TEST_CASE("the cpu backend refuses unsupported options with a message") {
  CHECK_FALSE(MakeCpuBackend({.dtype = DType::kF16}).ok());
  CHECK_FALSE(MakeCpuBackend({.num_threads = -1}).ok());
  auto backend = MakeCpuBackend({.num_threads = 1}).value();
  CHECK(backend->AllocateKvCache({1, 1, 16, 16, 4}).status().message() ==
        "block size is 16, the cpu backend wants a multiple of 32");
}

}  // namespace tandem
