// Rows of a cache against what QkNormRopeWriteKv was given, for every layout.

#include "kernels/kv_rows.h"

#include "tests/support/environment.h"
#include "tests/support/kernels/kernel_cases.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

constexpr int kBlocks = 5, kLayer = 1;

struct Layout {
  std::string name;
  std::unique_ptr<Backend> backend;
  int block_size;
};

std::vector<Layout> Layouts() {
  std::vector<Layout> layouts;
  layouts.push_back({"reference", MakeReferenceBackend(), 6});
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    auto backend = MakeCpuBackend({.dtype = dtype, .num_threads = 1});
    REQUIRE(backend.ok());
    layouts.push_back({std::string(DTypeName(dtype)), *std::move(backend), 64});
  }
  return layouts;
}

std::unique_ptr<KvCache> MakeCache(Backend* backend, int block_size, int num_heads, int dim) {
  auto cache = backend->AllocateKvCache({.num_layers = 2,
                                         .num_kv_heads = num_heads,
                                         .head_dim = dim,
                                         .block_size = block_size,
                                         .num_blocks = kBlocks});
  REQUIRE(cache.ok());
  return *std::move(cache);
}

// K and V of every token of all blocks, [tokens][2 * num_heads][dim], as the model would write
// them.
void FillByOp(Backend* backend, std::vector<float> kv_rows, int num_heads, int dim,
              KvCache* cache) {
  const int num_tokens = kBlocks * cache->spec().block_size;
  const int64_t row = int64_t{3} * num_heads * dim;
  std::vector<float> qkv;
  for (int t = 0; t < num_tokens; ++t) {
    qkv.insert(qkv.end(), static_cast<size_t>(num_heads * dim), 0.0f);
    const auto begin = kv_rows.begin() + int64_t{t} * 2 * num_heads * dim;
    qkv.insert(qkv.end(), begin, begin + int64_t{2} * num_heads * dim);
  }
  std::vector<int32_t> positions(static_cast<size_t>(num_tokens)), table(kBlocks);
  std::iota(positions.begin(), positions.end(), 0);
  std::iota(table.begin(), table.end(), 0);
  std::vector<int32_t> slots = positions;
  const std::vector<int32_t> query_start = {0, num_tokens}, context_len = {num_tokens};
  auto plan = backend->MakeAttentionPlan({num_heads, num_heads, dim}, num_tokens, 1).value();
  AttentionBatch batch;
  batch.query_start = query_start;
  batch.context_len = context_len;
  batch.positions = View(positions, {num_tokens});
  batch.slot_mapping = View(slots, {num_tokens});
  batch.block_table = View(table, {1, kBlocks});
  plan->Fill(batch);
  const OwnedTensor in = UploadAct(*backend, qkv, {num_tokens, row});
  const OwnedTensor q = Make(*backend, backend->activation_dtype(), {num_tokens, num_heads * dim});
  backend->ops().QkNormRopeWriteKv(q, in, QkRope(), cache->layer(kLayer), *plan);
}

float At(const std::vector<std::byte>& rows, DType dtype, size_t i) {
  return dtype == DType::kF32 ? reinterpret_cast<const float*>(rows.data())[i]
                              : ToFloat(reinterpret_cast<const Bf16*>(rows.data())[i]);
}

TEST_CASE("kv rows: of each token and head its K, then its V, as the model wrote them") {
  const uint64_t seed = FromEnvironment("TANDEM_SEED", 7);
  INFO("TANDEM_SEED=" << seed);
  Draw draw(seed);
  for (Layout& layout : Layouts()) {
    const int num_heads = draw.Int(1, 3), dim = 2 * draw.Int(1, 20), size = layout.block_size;
    INFO(layout.name << ", heads " << num_heads << " of " << dim);
    const auto cache = MakeCache(layout.backend.get(), size, num_heads, dim);
    const std::vector<float> numbers = draw.Normals(int64_t{2} * kBlocks * size * num_heads * dim);
    FillByOp(layout.backend.get(), numbers, num_heads, dim, cache.get());
    const auto rows = KvRows::Of(*layout.backend, {{.cache = cache.get()}});
    REQUIRE(rows.ok());
    REQUIRE(rows->layers() == std::vector<int>{0, 1});
    std::vector<std::byte> block(static_cast<size_t>(size * rows->BytesPerToken(kLayer)));
    const int number = draw.Int(0, kBlocks - 1);
    rows->Read(kLayer, BlockId{number}, block.data());
    size_t num_wrong = 0;
    for (int t = 0; t < size; ++t) {
      for (int h = 0; h < num_heads; ++h) {
        for (int i = 0; i < 2 * dim; ++i) {
          const int part = i / dim;  // K, V
          const int64_t token = int64_t{number} * size + t;
          const auto from =
              static_cast<size_t>(((token * 2 + part) * num_heads + h) * dim + i % dim);
          const auto to = static_cast<size_t>((t * num_heads + h) * 2 * dim + i);
          if (At(block, rows->dtype(), to) != numbers[from]) ++num_wrong;
        }
      }
    }
    CHECK(num_wrong == 0);
  }
}

TEST_CASE("kv rows: written to another cache they make the same bytes") {
  Draw draw(8);
  for (Layout& layout : Layouts()) {
    INFO(layout.name);
    const int size = layout.block_size;
    const auto from = MakeCache(layout.backend.get(), size, 2, 24);
    const auto to = MakeCache(layout.backend.get(), size, 2, 24);
    FillByOp(layout.backend.get(), draw.Normals(int64_t{2} * kBlocks * size * 2 * 24), 2, 24,
             from.get());
    const KvRows source = KvRows::Of(*layout.backend, {{.cache = from.get()}}).value();
    const KvRows target = KvRows::Of(*layout.backend, {{.cache = to.get()}}).value();
    for (size_t layer = 0; layer < 2; ++layer) {
      std::vector<std::byte> rows(static_cast<size_t>(size * source.BytesPerToken(layer)));
      for (int block = 0; block < kBlocks; ++block) {
        source.Read(layer, BlockId{block}, rows.data());
        target.Write(layer, BlockId{block}, rows.data());
      }
    }
    const void* first = from->layer(0).k;  // of all of the cache
    CHECK(std::memcmp(first, to->layer(0).k, static_cast<size_t>(from->num_bytes())) == 0);
  }
}

TEST_CASE("kv rows: ranks that divide layers and heads have the rows of one") {
  struct Ranks {
    int stages, shares;
  };
  const auto [stages, shares] = GENERATE(Ranks{1, 2}, Ranks{2, 1}, Ranks{2, 2}, Ranks{1, 8});
  INFO(stages << " stages, " << shares << " ranks of each");
  Draw draw(9);
  constexpr int kHeads = 4, kDim = 6, kLayers = 2;
  for (Layout& layout : Layouts()) {
    INFO(layout.name);
    const int size = layout.block_size;
    const auto whole = MakeCache(layout.backend.get(), size, kHeads, kDim);
    FillByOp(layout.backend.get(), draw.Normals(int64_t{2} * kBlocks * size * kHeads * kDim),
             kHeads, kDim, whole.get());
    std::vector<std::unique_ptr<KvCache>> owned;
    KvCaches parts;
    for (int rank = 0; rank < stages * shares; ++rank) {
      const int share = rank % shares;
      const Slice heads = {int64_t{share} * kHeads / shares, std::max(kHeads / shares, 1)};
      owned.push_back(layout.backend
                          ->AllocateKvCache({.num_layers = kLayers / stages,
                                             .num_kv_heads = static_cast<int>(heads.count),
                                             .head_dim = kDim,
                                             .block_size = size,
                                             .num_blocks = kBlocks})
                          .value());
      const auto num_layers = static_cast<size_t>(kLayers / stages);
      parts.push_back({.cache = owned.back().get(),
                       .first_layer = rank / shares * kLayers / stages,
                       .kv_heads = std::vector<Slice>(num_layers, heads)});
    }
    const KvRows one = KvRows::Of(*layout.backend, {{.cache = whole.get()}}).value();
    const KvRows all = KvRows::Of(*layout.backend, parts).value();
    REQUIRE(all.layers() == one.layers());
    for (size_t layer = 0; layer < kLayers; ++layer) {
      REQUIRE(all.num_kv_heads(layer) == kHeads);
      std::vector<std::byte> rows(static_cast<size_t>(size * one.BytesPerToken(layer)));
      std::vector<std::byte> again(rows.size());
      one.Read(layer, BlockId{3}, rows.data());
      all.Write(layer, BlockId{3}, rows.data());
      all.Read(layer, BlockId{3}, again.data());
      CHECK(again == rows);
      // Each rank has what is its own, copies too.
      for (const KvCachePart& part : parts) {
        const int own = static_cast<int>(layer) - part.first_layer;
        if (own < 0 || own >= part.cache->spec().num_layers) continue;
        const KvRows of_rank = KvRows::Of(*layout.backend, {{.cache = part.cache}}).value();
        const auto index = static_cast<size_t>(own);
        std::vector<std::byte> few(static_cast<size_t>(size * of_rank.BytesPerToken(index)));
        of_rank.Read(index, BlockId{3}, few.data());
        const int64_t head_bytes = one.BytesPerToken(layer) / kHeads;
        const std::byte* first = rows.data() + part.kv_heads[index].begin * head_bytes;
        CHECK(std::memcmp(few.data(), first, static_cast<size_t>(of_rank.BytesPerToken(index))) ==
              0);
      }
    }
  }
}

TEST_CASE("kv rows: what has other rows is refused") {
  const auto backend = MakeReferenceBackend();
  KvCacheSpec spec = {
      .num_layers = 1, .num_kv_heads = 1, .head_dim = 2, .block_size = 4, .num_blocks = 2};
  SECTION("int8") { spec.format = KvFormat::kInt8; }
  SECTION("int4") { spec.format = KvFormat::kInt4; }
  SECTION("fp8") { spec.format = KvFormat::kFloat8; }
  SECTION("latents") { spec.is_latent = true; }
  SECTION("states") {
    spec.layers = {{.has_kv = true, .has_state = true}};
    spec.state_size = 4;
  }
  const auto cache = backend->AllocateKvCache(spec).value();
  CHECK(KvRows::Of(*backend, {{.cache = cache.get()}}).status().code() ==
        StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace tandem
