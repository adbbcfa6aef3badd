#include "deploy/cli/bench/random_image.h"

#include <string>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

TEST_CASE("Buckets of images are read as vLLM writes them") {
  const auto buckets = ParseImageBuckets(" {(256, 128, 1): 0.5,(720,1280,1):2, (9, 9, 16): 0.0} ");
  REQUIRE(buckets.ok());
  REQUIRE(buckets->size() == 2);
  CHECK(buckets->at(0).height == 256);
  CHECK(buckets->at(0).width == 128);
  CHECK(buckets->at(1).weight == 2);
  CHECK(ParseImageBuckets("{(1, 1, 1): 1}")->size() == 1);
  for (const char* bad :
       {"", "{", "{}", "{(1, 1): 1}", "{(1, 1, 1): -1}", "{(0, 1, 1): 1}", "{(1.5, 1, 1): 1}",
        "{(1, 1, 2): 1}", "{(1, 1, 1): 0}", "{(1, 1, 1): 1} x", "{(1, 1, 1): 1 (1, 1, 1): 1}",
        "{(1, 99999, 1): 1}", "{(1, 1, 1): nan}", "{(1, 1, 1) 1}"}) {
    CAPTURE(bad);
    CHECK_THAT(ParseImageBuckets(bad).status().message(),
               Catch::Contains("--random-mm-bucket-config"));
  }
}

// The reader of images itself is in tests/integration/bench_test.py.
TEST_CASE("Random images have their size, and the same seed gives the same one") {
  const std::string png = RandomPng(3, 5, 7);
  CHECK(png.starts_with("\x89PNG\r\n"));
  CHECK(png.substr(16, 8) == std::string("\0\0\0\5\0\0\0\3", 8));
  CHECK(png == RandomPng(3, 5, 7));
  CHECK(png != RandomPng(3, 5, 8));
  CHECK(RandomImageUrl(1, 1, 1).starts_with("data:image/png;base64,iVBORw0KGgo"));
}

}  // namespace
}  // namespace tandem
