#include "engine_core/weights/dummy_weights.h"

#include <cmath>
#include <string>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

TEST_CASE("dummy weights: equal for equal seed and name, different otherwise, small") {
  const auto weights = MakeDummyWeights(1), same = MakeDummyWeights(1), other = MakeDummyWeights(2);
  const auto a = weights->Get("a", 7, 9), a2 = same->Get("a", 7, 9), b = weights->Get("b", 7, 9),
             c = other->Get("a", 7, 9);
  const auto bytes = [](const WeightTensor& t) {
    return std::string(static_cast<const char*>(t.view().data), static_cast<size_t>(63 * 2));
  };
  CHECK(bytes(*a) == bytes(*a2));
  CHECK(bytes(*a) != bytes(*b));
  CHECK(bytes(*a) != bytes(*c));
  for (int i = 0; i < 63; ++i) CHECK(std::abs(ToFloat(a->view().Data<Bf16>()[i])) <= 0.051f);
  const auto norm = weights->Get("norm", 0, 5);
  for (int i = 0; i < 5; ++i) CHECK(std::abs(ToFloat(norm->view().Data<Bf16>()[i]) - 1) < 0.02f);
}

}  // namespace
}  // namespace tandem
