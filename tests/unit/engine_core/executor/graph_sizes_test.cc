#include "engine_core/executor/graph_sizes.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Sizes = std::vector<int64_t>;

TEST_CASE("graph sizes: 1024 requests on an H200 make 51 sizes up to 512") {
  const Sizes sizes = GraphSizes({.max_num_seqs = 1024, .max_num_batched_tokens = 8192});
  CHECK(sizes.size() == 51);
  CHECK(Sizes(sizes.begin(), sizes.begin() + 6) == Sizes{1, 2, 4, 8, 16, 24});
  CHECK(sizes.back() == 512);
  CHECK(sizes[sizes.size() - 2] == 496);
  CHECK(std::ranges::is_sorted(sizes));
}

TEST_CASE("graph sizes: with few requests, the largest batches are sizes of their own") {
  CHECK(GraphSizes({.max_num_seqs = 1, .max_num_batched_tokens = 2048}) == Sizes{1, 2});
  CHECK(GraphSizes({.max_num_seqs = 5, .max_num_batched_tokens = 2048}) == Sizes{1, 2, 4, 5, 8});
  CHECK(GraphSizes({.max_num_seqs = 9, .max_num_batched_tokens = 17}) ==
        Sizes{1, 2, 4, 8, 9, 16, 17});
  const Sizes sizes = GraphSizes({.max_num_seqs = 250, .max_num_batched_tokens = 2048});
  CHECK(std::ranges::count(sizes, 250) == 1);
  CHECK(sizes.back() == 496);  // 500 is no multiple of 16
}

TEST_CASE("graph sizes: a largest size, a list, no sizes") {
  GraphSizeOptions options = {.max_num_seqs = 1024, .max_num_batched_tokens = 8192, .max_size = 20};
  CHECK(GraphSizes(options) == Sizes{1, 2, 4, 8, 16});
  options.max_size = 0;
  CHECK(GraphSizes(options).empty());
  options = {.max_num_seqs = 8, .max_num_batched_tokens = 64, .sizes = {32, 1, 32, 0, 65}};
  CHECK(GraphSizes(options) == Sizes{1, 32});
}

TEST_CASE("graph sizes: a batch takes the next size, one that is too large takes none") {
  const Sizes sizes = {1, 2, 4, 8};
  CHECK(GraphSizeFor(sizes, 1) == 0);
  CHECK(GraphSizeFor(sizes, 3) == 2);
  CHECK(GraphSizeFor(sizes, 8) == 3);
  CHECK_FALSE(GraphSizeFor(sizes, 9));
  CHECK_FALSE(GraphSizeFor({}, 1));
}

}  // namespace
}  // namespace tandem
