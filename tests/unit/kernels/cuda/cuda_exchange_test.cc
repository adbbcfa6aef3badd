// What ranks on emulated devices exchange: parts of every width and type, in and out of captures.

#include <bit>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "kernels/cuda/libraries/shared_library.h"
#include "kernels/host_memory.h"
#include "tests/support/cuda_emulation/emulated_cuda_backend.h"
#include "tests/support/fake_nccl.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

std::unique_ptr<Backend> MakeBackend() {
  return MakeEmulatedCudaBackend(
             {.dtype = DType::kBf16, .num_threads = 1, .nccl_library = TANDEM_FAKE_NCCL})
      .value();
}

// Runs work on a thread for each rank, of which each has a device; what it returns by rank. Without
// CHECK: Catch2 has one thread.
using Numbers = std::vector<float>;
std::vector<Numbers> RunRanks(int size, const std::function<Numbers(Backend*, int rank)>& work) {
  FakeNccl* fake = nullptr;
  REQUIRE(SharedLibrary::Open(TANDEM_FAKE_NCCL)->Find("fake_nccl", &fake).ok());
  fake->enqueue = EnqueueEmulatedExchange;
  const std::string place = MakeBackend()->MakeMeetingPlace().value();
  std::vector<Numbers> results(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      const auto backend = MakeBackend();
      if (!backend->JoinRanks(rank, size, place).ok()) return;
      results[static_cast<size_t>(rank)] = work(backend.get(), rank);
    });
  }
  for (std::thread& thread : threads) thread.join();
  fake->enqueue = {};
  return results;
}

Tensor HostView(Numbers* numbers, int64_t rows) {
  const auto size = static_cast<int64_t>(numbers->size());
  return Tensor(numbers->data(), DType::kF32, {rows, size / rows});
}

// On the host in float32.
Numbers Fetch(Backend* backend, const Tensor& x) {
  Device& device = backend->device();
  const OwnedTensor copy = device.Allocate(DType::kF32, {x.rows(), x.shape[1]}).value();
  backend->ops().Convert(copy, x);
  Numbers numbers(static_cast<size_t>(x.NumElements()));
  device.CopyOut(HostView(&numbers, x.rows()), copy);
  return numbers;
}

float NumberAt(int64_t row, int64_t column) { return static_cast<float>(row * 16 + column % 13); }

// Writes this rank's columns of such numbers to `to`.
void Write(Backend* backend, const Tensor& to, int64_t first_column) {
  Numbers numbers;
  for (int64_t t = 0; t < to.rows(); ++t) {
    for (int64_t c = 0; c < to.shape[1]; ++c) numbers.push_back(NumberAt(t, first_column + c));
  }
  const OwnedTensor uploaded =
      backend->device().Upload(HostView(&numbers, to.rows()), DType::kF32).value();
  backend->ops().Convert(to, uploaded);
  backend->device().WaitFor(backend->device().SetMark());
}

struct Split {
  int64_t width;
  std::vector<Slice> of_rank;
};

TEST_CASE("cuda exchange: parts become whole, in place or not, wide or not") {
  const std::vector<Split> splits = {
      {64, {{0, 32}, {32, 32}}},                     // wide units
      {6, {{0, 3}, {3, 3}}},                         // single numbers
      {10, {{0, 4}, {4, 4}, {8, 2}}},                // the last rank has fewer
      {8, {{0, 4}, {4, 4}, {8, 0}}},                 // and none
      {32, {{0, 16}, {0, 16}, {16, 16}, {16, 16}}},  // copies
  };
  for (const Split& split : splits) {
    for (const DType dtype : {DType::kF32, DType::kBf16}) {
      for (const bool in_place : {false, true}) {
        const int size = static_cast<int>(split.of_rank.size());
        CAPTURE(split.width, size, DTypeName(dtype), in_place);
        constexpr int64_t kRows = 5;
        const auto got = RunRanks(size, [&](Backend* backend, int rank) {
          RankExchange* exchange = backend->exchange();
          // Columns of a wider tensor, as those of a buffer for the widest layer are.
          const OwnedTensor memory = exchange->Allocate(dtype, {kRows, split.width + 8}).value();
          const Tensor x = memory.view().Columns(0, split.width);
          const RankColumns columns = {.of_rank = split.of_rank, .rank = rank};
          const Slice own = columns.own();
          const Tensor part =
              in_place ? x.Columns(own.begin, own.count) : exchange->Part(x, columns);
          Write(backend, part, own.begin);
          exchange->Gather(x, part, columns);
          return Fetch(backend, memory);
        });
        for (const Numbers& numbers : got) {
          REQUIRE(numbers.size() == static_cast<size_t>(kRows * (split.width + 8)));
          for (int64_t t = 0; t < kRows; ++t) {
            for (int64_t c = 0; c < split.width + 8; ++c) {
              CAPTURE(t, c);
              const float number = numbers[static_cast<size_t>(t * (split.width + 8) + c)];
              CHECK(number == (c < split.width ? NumberAt(t, c) : 0));
            }
          }
        }
      }
    }
  }
}

TEST_CASE("cuda exchange: sums, ids of the first rank, and ids less a number") {
  const auto got = RunRanks(3, [](Backend* backend, int rank) {
    RankExchange* exchange = backend->exchange();
    Numbers own = {static_cast<float>(rank), 10, -1};
    const OwnedTensor x = backend->device().Upload(HostView(&own, 1), DType::kF32).value();
    exchange->Sum(x);
    Numbers all = Fetch(backend, x);

    std::vector<int32_t> ids = {7 + 100 * rank, 500 + rank};
    const Tensor host_ids(ids.data(), DType::kI32, {2});
    const OwnedTensor on_device = backend->device().Allocate(DType::kI32, {2}).value();
    backend->device().CopyIn(on_device, host_ids);
    exchange->ShareIds(on_device);
    backend->device().CopyOut(host_ids, exchange->IdsFrom(on_device, 100));
    for (const int32_t id : ids) all.push_back(static_cast<float>(id));
    return all;
  });
  for (const Numbers& numbers : got) CHECK(numbers == Numbers{3, 30, -3, -93, 400});
}

TEST_CASE("cuda exchange: a capture is replayed with new numbers") {
  const auto got = RunRanks(2, [](Backend* backend, int rank) {
    RankExchange* exchange = backend->exchange();
    Device& device = backend->device();
    const RankColumns columns = {.of_rank = {{0, 2}, {2, 2}}, .rank = rank};
    const OwnedTensor x = exchange->Allocate(DType::kF32, {1, 4}).value();
    const OwnedTensor own = device.Allocate(DType::kF32, {1, 2}).value();
    const auto run = [&] {
      const Tensor part = exchange->Part(x, columns);
      backend->ops().Convert(part, own);
      exchange->Gather(x, part, columns);
    };
    run();
    device.BeginCapture();
    run();
    const auto captured = device.EndCapture().value();
    Numbers all;
    for (const float factor : {1.0f, 5.0f}) {
      Numbers numbers = {factor * static_cast<float>(1 + rank), factor * 10};
      device.CopyIn(own, HostView(&numbers, 1));
      device.Replay(*captured);
      for (const float number : Fetch(backend, x)) all.push_back(number);
    }
    return all;
  });
  for (const Numbers& numbers : got) CHECK(numbers == Numbers{1, 10, 2, 10, 5, 50, 10, 50});
}

TEST_CASE("cuda exchange: without NCCL there is no place to meet") {
  const auto backend = MakeEmulatedCudaBackend({.nccl_library = "libno_nccl.so.2"}).value();
  CHECK(backend->exchange() == nullptr);
  const auto place = backend->MakeMeetingPlace();
  REQUIRE_FALSE(place.ok());
  CHECK_THAT(place.status().message(), Catch::Matchers::Contains("install libnccl2"));
}

}  // namespace
}  // namespace tandem
