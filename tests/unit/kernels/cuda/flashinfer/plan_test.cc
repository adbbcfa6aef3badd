#include "kernels/cuda/flashinfer/plan.h"

#include <map>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

struct Request {
  int32_t num_queries;
  int32_t context_len;
};

// A batch, its plan and the plan's words; unwritten words keep an odd value.
struct Planned {
  static constexpr int32_t kUnwritten = 0x7f7f7f7f;

  Planned(const FlashInferShape& shape_, const std::vector<Request>& requests,
          int64_t table_columns = 100, int64_t table_stride = 100)
      : shape(shape_) {
    query_start.push_back(0);
    for (const Request& request : requests) {
      query_start.push_back(query_start.back() + request.num_queries);
      context_len.push_back(request.context_len);
    }
    const auto num_requests = static_cast<int64_t>(requests.size());
    AttentionBatch batch;
    batch.query_start = query_start;
    batch.context_len = context_len;
    batch.block_table = Tensor(nullptr, DType::kI32, {num_requests, table_columns});
    batch.block_table.row_stride = table_stride;
    words.assign(static_cast<size_t>(FlashInferWorkSize(shape, query_start.back(), num_requests)),
                 kUnwritten);
    plan = PlanFlashInfer(shape, batch, words);
  }
  int32_t word(int64_t place, int64_t i) const { return words[static_cast<size_t>(place + i)]; }
  bool is_used(const FlashInferLaunch& launch, int64_t block) const {
    return reinterpret_cast<const char*>(words.data() + launch.is_used)[block] == 1;
  }

  FlashInferShape shape;
  std::vector<int32_t> query_start, context_len;
  std::vector<int32_t> words;
  FlashInferPlan plan;
};

FlashInferShape Shape(int num_heads, int num_kv_heads, int head_dim = 128,
                      int64_t decode_blocks = 132 * 8, int64_t prefill_blocks = 132 * 2) {
  return {.attention = {num_heads, num_kv_heads, head_dim},
          .decode_blocks = decode_blocks,
          .prefill_blocks = prefill_blocks};
}

// Every (query, head) row of the launch's requests is multiplied with every key of its context
// once.
void CheckCovers(const Planned& planned, const FlashInferLaunch& launch) {
  const int64_t group = planned.shape.group();
  const int64_t size = planned.word(launch.chunk_size, 0);
  std::set<std::vector<int64_t>> seen;
  std::map<std::pair<int64_t, int64_t>, int64_t> keys;  // (request, tile) -> keys covered
  for (int64_t block = 0; block < launch.num_blocks; ++block) {
    if (!planned.is_used(launch, block)) {
      CHECK(launch.is_padded);
      continue;
    }
    const int64_t request = planned.word(launch.request, block);
    const int64_t tile = planned.word(launch.query_tile, block);
    const int64_t chunk = planned.word(launch.chunk, block);
    REQUIRE((request >= 0 && request < launch.num_requests));
    CHECK(seen.insert({request, tile, chunk}).second);
    const int64_t length = planned.context_len[static_cast<size_t>(launch.first_request + request)];
    if (launch.is_split) {
      REQUIRE(chunk * size < length);
      keys[{request, tile}] += std::min(size, length - chunk * size);
    } else {
      CHECK(chunk == 0);
      keys[{request, tile}] += length;
    }
    if (launch.tile_rows > 0) {
      CHECK((block < launch.num_tiles) == (chunk == 0));
    }
  }
  int64_t num_tiles = 0;
  for (int64_t i = 0; i < launch.num_requests; ++i) {
    const auto r = static_cast<size_t>(launch.first_request + i);
    const int64_t rows = (planned.query_start[r + 1] - planned.query_start[r]) * group;
    const int64_t tiles =
        launch.tile_rows == 0 ? 1 : (rows + launch.tile_rows - 1) / launch.tile_rows;
    for (int64_t tile = 0; tile < tiles; ++tile) {
      const int64_t met = keys[{i, tile}];
      CHECK(met == planned.context_len[r]);
    }
    num_tiles += tiles;
  }
  CHECK(static_cast<int64_t>(keys.size()) == num_tiles);
  CHECK(launch.num_tiles == num_tiles);
}

// Partial results: each row once, and all of a token's next to each other.
void CheckPartials(const Planned& planned, const FlashInferLaunch& launch) {
  if (!launch.is_split) return;
  const int64_t size = planned.word(launch.chunk_size, 0);
  int64_t rows = 0;
  for (int64_t i = 0; i < launch.num_requests; ++i) {
    const auto r = static_cast<size_t>(launch.first_request + i);
    const int64_t queries = planned.query_start[r + 1] - planned.query_start[r];
    const int64_t chunks = (planned.context_len[r] + size - 1) / size;
    CHECK(planned.word(launch.partial_start, i) == rows);
    if (launch.tile_rows > 0) {
      const int64_t first = planned.word(launch.query_start, i);
      CHECK(first == planned.query_start[r] - launch.first_token);
      for (int64_t q = 0; q < queries; ++q) {
        CHECK(planned.word(launch.merge_start, first + q) == rows + q * chunks);
      }
    }
    rows += queries * chunks;
  }
  CHECK(planned.word(launch.partial_start, launch.num_requests) == rows);
  CHECK(rows <= FlashInferPartialRows(planned.shape));
}

void CheckLaunches(const Planned& planned) {
  for (const FlashInferLaunch* launch : {&planned.plan.decode, &planned.plan.prefill}) {
    if (launch->num_requests == 0) continue;
    CheckCovers(planned, *launch);
    CheckPartials(planned, *launch);
  }
}

TEST_CASE("leading requests of one token go to the decode kernel, the rest to prefill") {
  const Planned planned(Shape(16, 8), {{1, 700}, {1, 3}, {40, 40}, {1, 90}, {5, 300}});
  CHECK(planned.plan.decode.tile_rows == 0);
  CHECK(planned.plan.decode.num_requests == 2);
  CHECK(planned.plan.prefill.first_request == 2);
  CHECK(planned.plan.prefill.num_requests == 3);
  CHECK(planned.plan.prefill.first_token == 2);
  CHECK(planned.plan.prefill.num_tokens == 46);
  CheckLaunches(planned);
}

TEST_CASE("pages are the block table's rows, and end where its last row does") {
  const Planned planned(Shape(8, 8), {{1, 5}, {3, 9}, {1, 1}}, 7, 12);
  const std::vector<int32_t> starts(planned.words.begin() + planned.plan.page_start,
                                    planned.words.begin() + planned.plan.page_start + 4);
  CHECK(starts == std::vector<int32_t>{0, 12, 24, 31});
  CHECK(planned.word(planned.plan.context_len, 1) == 9);
}

TEST_CASE("tiles are as tall as the queries are long, within the limit of the head size") {
  const auto tile_rows = [](int head_dim, int32_t num_queries) {
    return Planned(Shape(8, 4, head_dim), {{num_queries, 4000}}).plan.prefill.tile_rows;
  };
  CHECK(tile_rows(128, 8) == 16);
  CHECK(tile_rows(128, 9) == 64);
  CHECK(tile_rows(128, 32) == 64);
  CHECK(tile_rows(128, 33) == 128);
  CHECK(tile_rows(64, 500) == 128);
  CHECK(tile_rows(256, 500) == 64);
}

TEST_CASE("many heads per KV head decode by the prefill kernel") {
  const Planned planned(Shape(28, 4), {{1, 9000}, {1, 20}, {600, 600}});
  CHECK(planned.plan.decode.tile_rows == 16);
  CHECK(planned.plan.decode.num_requests == 2);
  CHECK(planned.plan.decode.is_split);
  CHECK(planned.plan.prefill.tile_rows == 128);
  CheckLaunches(planned);
}

TEST_CASE("few blocks are split to fill the device, many are not") {
  const FlashInferShape shape = Shape(32, 8);  // 132 decode blocks at once, 33 others
  const Planned one(shape, {{1, 16384}});
  CHECK(one.plan.decode.num_blocks == 132);
  CHECK(one.word(one.plan.decode.chunk_size, 0) == 128);
  CHECK(one.word(one.plan.decode.partial_start, 1) == 128);
  const Planned many(shape, std::vector<Request>(200, {1, 16384}));
  CHECK_FALSE(many.plan.decode.is_split);
  CHECK(many.plan.decode.num_blocks == 200);
  const Planned prompt(shape, {{64, 8192}});
  CHECK(prompt.plan.prefill.is_split);
  CHECK(prompt.plan.prefill.num_tiles == 2);
  CHECK(prompt.plan.prefill.num_blocks <= 33);
  CHECK(prompt.plan.prefill.num_blocks > 25);
  const Planned prompts(shape, {{2048, 8192}});
  CHECK_FALSE(prompts.plan.prefill.is_split);
  const Planned brief(shape, {{4, 100}});
  CHECK_FALSE(brief.plan.prefill.is_split);
  CHECK(brief.plan.prefill.num_blocks == 1);
  for (const Planned* planned : {&one, &many, &prompt, &prompts, &brief}) CheckLaunches(*planned);
}

TEST_CASE("sizes and places of a plan of single tokens depend on their number alone") {
  std::mt19937_64 random(7);
  for (const int num_heads : {8, 16, 32, 56}) {
    for (const int count : {1, 2, 31, 132, 300}) {
      CAPTURE(num_heads, count);
      const Planned first(Shape(num_heads, 8),
                          std::vector<Request>(static_cast<size_t>(count), {1, 1}));
      for (int round = 0; round < 3; ++round) {
        std::vector<Request> requests;
        for (int i = 0; i < count; ++i) {
          requests.push_back({1, static_cast<int32_t>(1 + random() % 20000)});
        }
        const Planned other(Shape(num_heads, 8), requests, 2000, 2000);
        const FlashInferLaunch &a = first.plan.decode, &b = other.plan.decode;
        CHECK(a.tile_rows == b.tile_rows);
        CHECK(a.num_blocks == b.num_blocks);
        CHECK(a.num_tiles == b.num_tiles);
        CHECK(a.is_split == b.is_split);
        CHECK(a.is_padded == b.is_padded);
        CHECK(a.request == b.request);
        CHECK(a.chunk == b.chunk);
        CHECK(a.is_used == b.is_used);
        CHECK(a.chunk_size == b.chunk_size);
        CHECK(a.partial_start == b.partial_start);
        CHECK(a.merge_start == b.merge_start);
        CHECK(a.query_start == b.query_start);
        CheckLaunches(other);
      }
    }
  }
}

TEST_CASE("any batch fits, covers every key once and separates partial results") {
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    const auto draw = [&](int64_t low, int64_t high) {
      return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
    };
    const int kv_heads = static_cast<int>(draw(1, 8)), group = static_cast<int>(draw(1, 9));
    const int head_dims[] = {64, 128, 256};
    const FlashInferShape shape =
        Shape(kv_heads * group, kv_heads, head_dims[draw(0, 2)], draw(1, 2000), draw(1, 400));
    std::vector<Request> requests;
    const int64_t count = draw(0, 40), share_of_decodes = draw(0, 100);
    for (int64_t i = 0; i < count; ++i) {
      const auto queries = static_cast<int32_t>(draw(0, 99) < share_of_decodes ? 1 : draw(1, 300));
      requests.push_back({queries, queries + static_cast<int32_t>(draw(0, 3) * draw(0, 3000))});
    }
    CheckLaunches(Planned(shape, requests));
  }
}

TEST_CASE("two launches that both fill the device fit") {
  CheckLaunches(Planned(Shape(7, 1, 128, 1), {{1, 33000}, {2, 33000}}));
}

TEST_CASE("the chosen attention kernels, and the reason") {
  using enum AttentionBackend;
  const AttentionShape fits = {32, 8, 128}, odd = {32, 8, 80};
  const auto choose = [](AttentionBackend wanted, bool is_built, DType dtype,
                         const AttentionShape& shape) {
    return ChooseAttention(wanted, is_built, dtype, shape);
  };
  CHECK(choose(kAuto, true, DType::kBf16, fits)->is_flashinfer);
  CHECK(choose(kFlashInfer, true, DType::kBf16, fits)->is_flashinfer);
  CHECK_FALSE(choose(kTandem, true, DType::kBf16, fits)->is_flashinfer);
  CHECK(choose(kAuto, false, DType::kBf16, fits)->reason == "this build has no FlashInfer");
  CHECK(choose(kAuto, true, DType::kBf16, odd)->reason ==
        "FlashInfer is not built for bfloat16 with heads of 80 numbers");
  CHECK_FALSE(choose(kAuto, true, DType::kF32, fits)->is_flashinfer);
  const auto wide = choose(kAuto, false, DType::kBf16, {16, 1, 576});
  REQUIRE_FALSE(wide.ok());
  CHECK(wide.status().message().find("this model's have 576") != std::string::npos);
  for (const auto& refused : {choose(kFlashInfer, false, DType::kBf16, fits),
                              choose(kFlashInfer, true, DType::kF32, fits),
                              choose(kFlashInfer, true, DType::kBf16, odd)}) {
    REQUIRE_FALSE(refused.ok());
    CHECK(refused.status().message().find("--attention-backend flashinfer: ") == 0);
    CHECK(refused.status().message().find("take tandem or auto") != std::string::npos);
  }
}

TEST_CASE("FlashInfer has kernels for bf16 of three head sizes") {
  for (const int head_dim : {64, 128, 256}) {
    CHECK(FlashInferTakes(DType::kBf16, {8, 8, head_dim}));
    CHECK_FALSE(FlashInferTakes(DType::kF32, {8, 8, head_dim}));
  }
  for (const int head_dim : {32, 80, 96, 192, 512}) {
    CHECK_FALSE(FlashInferTakes(DType::kBf16, {8, 8, head_dim}));
  }
  CHECK(FlashInferDecodes({32, 8, 128}));
  CHECK_FALSE(FlashInferDecodes({40, 8, 128}));
  CHECK_FALSE(FlashInferDecodes({28, 4, 128}));
}

}  // namespace
}  // namespace tandem
