// The reference backend against values computed by hand.

#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/backend.h"

#include <catch2/catch.hpp>

namespace tandem {

namespace {

Tensor F32(std::vector<float>& values, std::initializer_list<int64_t> shape) {
  return Tensor(values.data(), DType::kF32, shape);
}

Tensor I32(std::vector<int32_t>& values, std::initializer_list<int64_t> shape) {
  return Tensor(values.data(), DType::kI32, shape);
}

}  // namespace

TEST_CASE("reference: Linear stacks row blocks, adds bias and residual") {
  auto backend = MakeReferenceBackend();
  std::vector<float> first = {1, 2};
  std::vector<float> second = {3, 4, 5, 6};
  const MatrixSource blocks[] = {F32(first, {1, 2}), F32(second, {2, 2})};
  auto packed = backend->Pack(blocks);
  REQUIRE(packed.ok());
  CHECK((*packed)->n() == 3);

  std::vector<float> x = {1, 10};
  std::vector<float> bias = {0.5f, 0, 0};
  std::vector<float> out = {100, 100, 100};
  backend->ops().Linear(F32(out, {1, 3}), F32(x, {1, 2}), **packed, F32(bias, {3}),
                        LinearEpilogue::kAddResidual);
  CHECK(out == std::vector<float>{121.5f, 143, 165});

  std::vector<int32_t> ids = {2, 0};
  std::vector<float> rows(4);
  backend->ops().Embedding(F32(rows, {2, 2}), I32(ids, {2}), **packed, 2);
  CHECK(rows == std::vector<float>{10, 12, 2, 4});
}

TEST_CASE("reference: RmsNorm") {
  auto backend = MakeReferenceBackend();
  std::vector<float> x = {3, 4};
  std::vector<float> weight = {1, 2};
  backend->ops().RmsNorm(F32(x, {1, 2}), F32(x, {1, 2}), F32(weight, {2}), 0);
  const float rms = std::sqrt(12.5f);
  CHECK(x[0] == Approx(3 / rms));
  CHECK(x[1] == Approx(8 / rms));
}

TEST_CASE("reference: SiluAndMul") {
  auto backend = MakeReferenceBackend();
  std::vector<float> gate_up = {0, 1, 5, 2};
  std::vector<float> out(2);
  backend->ops().SiluAndMul(F32(out, {1, 2}), F32(gate_up, {1, 4}));
  CHECK(out[0] == 0);
  CHECK(out[1] == Approx(2 / (1 + std::exp(-1.0f))));
}

TEST_CASE("reference: RoPE turns half pairs, norms per head, and attention reads what it wrote") {
  auto backend = MakeReferenceBackend();
  constexpr int kDim = 4;
  auto kv = backend->AllocateKvCache(
      {.num_layers = 2, .num_kv_heads = 1, .head_dim = kDim, .block_size = 2, .num_blocks = 4});
  REQUIRE(kv.ok());
  // A quarter turn per position for the only rotated pair (dimensions 0 and 1).
  std::vector<float> cos = {1, 0, -1};
  std::vector<float> sin = {0, 1, 0};
  QkRope rope;
  rope.cos = F32(cos, {3, 1});
  rope.sin = F32(sin, {3, 1});
  rope.rotary_dim = 2;

  // Three tokens, two query heads, one KV head; the request's blocks are 3 then 1.
  std::vector<float> qkv(3 * 16);
  std::iota(qkv.begin(), qkv.end(), 1.0f);
  std::vector<int32_t> positions = {0, 1, 2};
  std::vector<int32_t> slots = {6, 7, 2};
  std::vector<int32_t> blocks = {3, 1};
  const std::vector<int32_t> query_start = {0, 3};
  const std::vector<int32_t> context_len = {3};
  auto plan = backend->MakeAttentionPlan({2, 1, kDim}, 8, 4).value();
  AttentionBatch batch;
  batch.query_start = query_start;
  batch.context_len = context_len;
  batch.positions = I32(positions, {3});
  batch.slot_mapping = I32(slots, {3});
  batch.block_table = I32(blocks, {1, 2});
  plan->Fill(batch);
  std::vector<float> q(3 * 8);
  backend->ops().QkNormRopeWriteKv(F32(q, {3, 8}), F32(qkv, {3, 16}), rope, (*kv)->layer(1), *plan);
  CHECK(std::vector<float>(q.begin() + 8, q.begin() + 12) == std::vector<float>{-18, 17, 19, 20});

  // q alone is the same, and V stays as it is.
  std::vector<float> alone, turned(3 * 8);
  for (size_t t = 0; t < 3; ++t) {
    alone.insert(alone.end(), qkv.begin() + static_cast<int64_t>(t) * 16,
                 qkv.begin() + static_cast<int64_t>(t) * 16 + 8);
  }
  rope.is_of_q_alone = true;
  backend->ops().QkNormRopeWriteKv(F32(turned, {3, 8}), F32(alone, {3, 8}), rope, (*kv)->layer(1),
                                   *plan);
  CHECK(turned == q);

  // A scale of 0 gives all visible keys equal weight: the mean of V.
  std::vector<float> out(3 * 8);
  backend->ops().PagedAttention(F32(out, {3, 8}), F32(q, {3, 8}), (*kv)->layer(1), {.scale = 0},
                                *plan);
  CHECK(out[0] == Approx(13));  // token 0: V of itself
  CHECK(out[8 + 4] == Approx((13 + 29) / 2.0));
  CHECK(out[16 + 3] == Approx((16 + 32 + 48) / 3.0));
  backend->ops().PagedAttention(F32(out, {3, 8}), F32(q, {3, 8}), (*kv)->layer(1),
                                {.scale = 0, .sliding_window = 2}, *plan);
  CHECK(out[16 + 3] == Approx((32 + 48) / 2.0));
}

TEST_CASE(
    "a KV cache whose layers have sizes of their own, one that reads another's, and a state") {
  auto backend = MakeReferenceBackend();
  const KvCacheSpec spec = {.num_layers = 4,
                            .num_kv_heads = 2,
                            .head_dim = 4,
                            .block_size = 8,
                            .num_blocks = 3,
                            .layers = {{},
                                       {.num_kv_heads = 1, .head_dim = 16},
                                       {.has_kv = false, .kv_of = 0},
                                       {.has_kv = false, .has_state = true}},
                            .state_size = 5};
  CHECK(backend->KvBytesPerBlock(spec) == 4 * (2 * 8 * (2 * 4 + 16) + 5));
  const auto cache = backend->AllocateKvCache(spec).value();
  const auto at = [&](const void* place) {
    return static_cast<const float*>(place) - static_cast<const float*>(cache->layer(0).k);
  };
  CHECK(at(cache->layer(0).v) == 3 * 8 * 2 * 4);
  CHECK(at(cache->layer(1).k) == 2 * 3 * 8 * 2 * 4);
  CHECK(cache->layer(1).num_kv_heads == 1);
  CHECK(cache->layer(1).head_dim == 16);
  CHECK(at(cache->layer(1).v) == 2 * 3 * 8 * 2 * 4 + 3 * 8 * 16);
  CHECK(cache->layer(2).k == cache->layer(0).k);
  CHECK(cache->layer(2).v == cache->layer(0).v);
  CHECK(cache->layer(2).head_dim == 4);
  CHECK(spec.kv_owner(2) == 0);
  CHECK(spec.kv_owner(1) == 1);
  CHECK(cache->layer(3).k == nullptr);
  CHECK(at(cache->layer(3).states) == 2 * 3 * 8 * (2 * 4 + 16));
}

TEST_CASE("a KV cache with states in place: a block's keys, values or state lie in one piece") {
  auto backend = MakeReferenceBackend();
  KvCacheSpec spec = {.num_layers = 2,
                      .num_kv_heads = 1,
                      .head_dim = 4,
                      .block_size = 8,
                      .num_blocks = 3,
                      .state_size = 70,
                      .has_states_in_place = true};
  constexpr int64_t kKeys = 8 * 4;  // floats of a block's keys
  CHECK(spec.num_with_state(2) == 2);
  CHECK(backend->KvBytesPerBlock(spec) == 4 * 2 * 3 * kKeys);  // a state takes three such parts
  const auto cache = backend->AllocateKvCache(spec).value();
  CHECK(cache->numbers_per_block() == 3);
  const LayerKv &first = cache->layer(0), &second = cache->layer(1);
  CHECK(first.num_blocks == 9);
  CHECK(first.states == first.k);
  CHECK(static_cast<const float*>(first.v) == first.states + kKeys);
  CHECK((first.state_size == 70 && first.state_stride == kKeys));
  CHECK(second.states == first.states + 9 * kKeys);
  spec.state_size = 10;
  CHECK(backend->KvBytesPerBlock(spec) == 4 * 2 * 2 * kKeys);
  CHECK(backend->AllocateKvCache(spec).value()->numbers_per_block() == 2);
  spec.is_latent = true;
  CHECK(backend->AllocateKvCache(spec).value()->numbers_per_block() == 1);
  spec.num_blocks = int64_t{1} << 28;
  CHECK(backend->AllocateKvCache(spec).status().code() == StatusCode::kResourceExhausted);
}

}  // namespace tandem
