#include "kernels/host_memory.h"

#include <algorithm>
#include <optional>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

TEST_CASE("an arena's tensors are zero, aligned, apart from one another, and may outlive it") {
  std::vector<OwnedTensor> tensors;
  {
    HostArena arena;
    for (int64_t i = 1; i < 200; ++i) {
      const int64_t shape[] = {i % 7 + 1, 1000 * (i % 31)};
      tensors.push_back(arena.Allocate(i % 2 == 0 ? DType::kF32 : DType::kBf16, shape).value());
    }
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& view = tensors[i].view();
    CHECK(reinterpret_cast<uintptr_t>(view.data) % 64 == 0);
    auto* bytes = static_cast<uint8_t*>(view.data);
    CHECK(std::count(bytes, bytes + view.NumBytes(), 0) == view.NumBytes());
    std::fill_n(bytes, view.NumBytes(), static_cast<uint8_t>(i + 1));
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& view = tensors[i].view();
    const auto* bytes = static_cast<const uint8_t*>(view.data);
    CHECK(std::count(bytes, bytes + view.NumBytes(), static_cast<uint8_t>(i + 1)) ==
          view.NumBytes());
  }
}

TEST_CASE("an arena's small tensors follow one another, large ones have memory of their own") {
  HostArena arena;
  const int64_t small[] = {100}, large[] = {int64_t{8} << 20};
  const OwnedTensor a = arena.Allocate(DType::kF32, small).value();
  const OwnedTensor b = arena.Allocate(DType::kI8, large).value();
  const OwnedTensor c = arena.Allocate(DType::kF32, small).value();
  CHECK(static_cast<std::byte*>(c.view().data) - static_cast<std::byte*>(a.view().data) == 448);
  CHECK(reinterpret_cast<uintptr_t>(a.view().data) % (2 << 20) == 0);
  CHECK(reinterpret_cast<uintptr_t>(b.view().data) % (2 << 20) == 0);
  const int64_t too_much[] = {int64_t{1} << 62};
  CHECK(arena.Allocate(DType::kF32, too_much).status().code() == StatusCode::kResourceExhausted);
}

TEST_CASE("an arena gives several threads different memory") {
  HostArena arena;
  std::vector<std::vector<OwnedTensor>> tensors(4);
  std::vector<std::thread> threads;
  for (auto& own : tensors) {
    threads.emplace_back([&arena, &own] {
      const int64_t shape[] = {3000};
      for (int i = 0; i < 500; ++i) own.push_back(arena.Allocate(DType::kF32, shape).value());
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<const void*> places;
  for (const auto& own : tensors) {
    for (const OwnedTensor& tensor : own) places.push_back(tensor.view().data);
  }
  std::ranges::sort(places);
  CHECK(std::ranges::adjacent_find(places) == places.end());
}

}  // namespace
}  // namespace tandem
