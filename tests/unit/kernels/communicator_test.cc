#include "kernels/communicator.h"

#include <vector>

#include "kernels/backend.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

TEST_CASE("one rank: exchanges leave tensors as they are") {
  const std::vector<float> before = {1, -2, 3.5f};
  std::vector<float> x = before;
  const Tensor view(x.data(), DType::kF32, {1, 3});
  OneRank one;
  CHECK(one.rank() == 0);
  CHECK(one.size() == 1);
  one.AllReduce(view);
  one.AllGather(view);
  one.Broadcast(view, 0);
  CHECK(x == before);
  CHECK(one.status() == OkStatus());
}

TEST_CASE("a backend's model has one rank") {
  const auto backend = MakeReferenceBackend();
  CHECK(backend->communicator().rank() == 0);
  CHECK(backend->communicator().size() == 1);
}

}  // namespace
}  // namespace tandem
