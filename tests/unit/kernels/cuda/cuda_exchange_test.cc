// What ranks on devices exchange, by NCCL and through each other's memory: parts of every width and
// type, with the norm that follows and without, in and out of captures. Devices are emulated, or
// those of a host with several GPUs (tests/gpu).

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "kernels/host_memory.h"
#include "tests/support/rank_devices.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

constexpr int64_t kManyRows = 65;  // one more than goes through the ranks' memory

std::unique_ptr<Backend> MakeBackend(int rank, bool uses_peers) {
  return MakeEmulatedCudaBackend(RankDevices::OptionsOf(rank, DType::kBf16, uses_peers)).value();
}

// Runs work on a thread for each rank, of which each has a device; what it returns by rank. Without
// CHECK: Catch2 has one thread.
using Numbers = std::vector<float>;
std::vector<Numbers> RunRanks(int size, bool uses_peers,
                              const std::function<Numbers(Backend*, int rank)>& work) {
  const std::string place = MakeBackend(0, uses_peers)->MakeMeetingPlace().value();
  std::vector<Numbers> results(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      const auto backend = MakeBackend(rank, uses_peers);
      if (!backend->JoinRanks(rank, size, place).ok()) return;
      results[static_cast<size_t>(rank)] = work(backend.get(), rank);
    });
  }
  for (std::thread& thread : threads) thread.join();
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

void Append(Numbers* all, const Numbers& more) {
  all->insert(all->end(), more.begin(), more.end());
}

float NumberAt(int64_t row, int64_t column) {
  return static_cast<float>(row % 15 * 16 + column % 13);
}

// Writes this rank's columns of such numbers to `to`.
void Write(Backend* backend, const Tensor& to, int64_t first_column, float factor = 1) {
  Numbers numbers;
  for (int64_t t = 0; t < to.rows(); ++t) {
    for (int64_t c = 0; c < to.shape[1]; ++c) {
      numbers.push_back(factor * NumberAt(t, first_column + c));
    }
  }
  if (numbers.empty()) return;
  const OwnedTensor uploaded =
      backend->device().Upload(HostView(&numbers, to.rows()), DType::kF32).value();
  backend->ops().Convert(to, uploaded);
  backend->device().WaitFor(backend->device().SetMark());
}

struct Split {
  int64_t width;
  std::vector<Slice> of_rank;
};

TEST_CASE("cuda exchange: parts become whole, in place or not, wide or not, few rows or many") {
  const std::vector<Split> splits = {
      {64, {{0, 32}, {32, 32}}},                     // wide units
      {6, {{0, 3}, {3, 3}}},                         // single numbers
      {10, {{0, 4}, {4, 4}, {8, 2}}},                // the last rank has fewer
      {8, {{0, 4}, {4, 4}, {8, 0}}},                 // and none
      {32, {{0, 16}, {0, 16}, {16, 16}, {16, 16}}},  // copies
  };
  const RankDevices devices;
  for (const Split& split : splits) {
    const int size = static_cast<int>(split.of_rank.size());
    if (!devices.are_at_least(size)) continue;
    for (const DType dtype : {DType::kF32, DType::kBf16}) {
      for (const bool in_place : {false, true}) {
        for (const int64_t num_rows : {int64_t{5}, kManyRows}) {
          for (const bool uses_peers : {false, true}) {
            CAPTURE(split.width, size, DTypeName(dtype), in_place, num_rows, uses_peers);
            const auto got = RunRanks(size, uses_peers, [&](Backend* backend, int rank) {
              RankExchange* exchange = backend->exchange();
              // Columns of a wider tensor, as those of a buffer for the widest layer are.
              const OwnedTensor memory =
                  exchange->Allocate(dtype, {num_rows, split.width + 8}).value();
              const Tensor x = memory.view().Columns(0, split.width);
              const RankColumns columns = {.of_rank = split.of_rank, .rank = rank};
              const Slice own = columns.own();
              const Tensor part =
                  in_place ? x.Columns(own.begin, own.count) : exchange->Part(x, columns);
              Write(backend, part, own.begin);
              exchange->Gather(x, part, columns);
              return Fetch(backend, memory);
            });
            Numbers expected;
            for (int64_t t = 0; t < num_rows; ++t) {
              for (int64_t c = 0; c < split.width + 8; ++c) {
                expected.push_back(c < split.width ? NumberAt(t, c) : 0);
              }
            }
            for (const Numbers& numbers : got) CHECK(numbers == expected);
          }
        }
      }
    }
  }
}

TEST_CASE("cuda exchange: with the norm that follows, the bits of both one after the other") {
  const RankDevices devices;
  for (const int size : {2, 4}) {
    if (!devices.are_at_least(size)) continue;
    for (const DType dtype : {DType::kF32, DType::kBf16}) {
      CAPTURE(size, DTypeName(dtype));
      constexpr int64_t kWidth = 352;
      // The first half of what a rank returns is of one kernel.
      const auto got = RunRanks(size, /*uses_peers=*/true, [&](Backend* backend, int rank) {
        Device& device = backend->device();
        RankExchange* exchange = backend->exchange();
        RankColumns columns = {.of_rank = {}, .rank = rank};
        for (int r = 0; r < size; ++r)
          columns.of_rank.push_back({r * kWidth / size, kWidth / size});
        Numbers weights(kWidth);
        for (size_t i = 0; i < weights.size(); ++i) weights[i] = 0.5f + static_cast<float>(i % 7);
        const OwnedTensor weight =
            device.Upload(Tensor(weights.data(), DType::kF32, {kWidth}), DType::kF32).value();
        Numbers fused, apart;
        // Of changing size, so that rows without a block in one exchange have one in the next.
        for (const int64_t rows : {7, 1, 33, 64, 2, 9, 64, 1}) {
          const OwnedTensor x = exchange->Allocate(dtype, {rows, kWidth}).value();
          const OwnedTensor normed = device.Allocate(DType::kBf16, {rows, kWidth}).value();
          const Slice own = columns.own();
          const Tensor part = x.view().Columns(own.begin, own.count);
          Write(backend, part, own.begin, 0.37f * static_cast<float>(rows));
          if (!exchange->GathersNormed(x, columns)) return Numbers{};
          exchange->GatherNormed(x, part, columns, {normed, weight, 1e-5f});
          Append(&fused, Fetch(backend, x));
          Append(&fused, Fetch(backend, normed));
          const OwnedTensor again = exchange->Allocate(dtype, {rows, kWidth}).value();
          const Tensor other_part = again.view().Columns(own.begin, own.count);
          Write(backend, other_part, own.begin, 0.37f * static_cast<float>(rows));
          exchange->Gather(again, other_part, columns);
          backend->ops().RmsNorm(normed, again, weight, 1e-5f);
          Append(&apart, Fetch(backend, again));
          Append(&apart, Fetch(backend, normed));
        }
        Append(&fused, apart);
        return fused;
      });
      for (const Numbers& numbers : got) {
        REQUIRE_FALSE(numbers.empty());
        const auto half = numbers.begin() + static_cast<int64_t>(numbers.size() / 2);
        CHECK(std::vector<float>(numbers.begin(), half) == std::vector<float>(half, numbers.end()));
        CHECK(numbers == got[0]);
      }
    }
  }
}

TEST_CASE("cuda exchange: sums, ids of the first rank, and ids less a number") {
  const RankDevices devices;
  if (!devices.are_at_least(3)) return;
  const auto got = RunRanks(3, /*uses_peers=*/true, [](Backend* backend, int rank) {
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
  const RankDevices devices;
  if (!devices.are_at_least(2)) return;
  for (const bool uses_peers : {false, true}) {
    CAPTURE(uses_peers);
    const auto got = RunRanks(2, uses_peers, [](Backend* backend, int rank) {
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
      for (const float factor : {1.0f, 5.0f, 2.0f}) {
        Numbers numbers = {factor * static_cast<float>(1 + rank), factor * 10};
        device.CopyIn(own, HostView(&numbers, 1));
        device.Replay(*captured);
        Append(&all, Fetch(backend, x));
      }
      return all;
    });
    for (const Numbers& numbers : got) {
      CHECK(numbers == Numbers{1, 10, 2, 10, 5, 50, 10, 50, 2, 20, 4, 20});
    }
  }
}

TEST_CASE("cuda exchange: without NCCL there is no place to meet") {
  const RankDevices devices;
  if (!devices.are_at_least(1)) return;
  const auto backend = MakeEmulatedCudaBackend({.nccl_library = "libno_nccl.so.2"}).value();
  CHECK(backend->exchange() == nullptr);
  const auto place = backend->MakeMeetingPlace();
  REQUIRE_FALSE(place.ok());
  CHECK_THAT(place.status().message(), Catch::Matchers::Contains("install libnccl2"));
}

}  // namespace
}  // namespace tandem
