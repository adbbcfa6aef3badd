#include "kernels/host_memory.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "common/unique_fd.h"
#include "kernels/host_pages.h"

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

TEST_CASE("pages that are given back are zero, and what lies beside them stays") {
  const int64_t shape[] = {int64_t{3} << 20};
  const OwnedTensor tensor = AllocateHost(DType::kI8, shape).value();
  const std::span memory(static_cast<std::byte*>(tensor.view().data), size_t{3} << 20);
  const auto count_of = [](std::span<const std::byte> bytes, int value) {
    return std::count(bytes.begin(), bytes.end(), static_cast<std::byte>(value));
  };
  std::fill(memory.begin(), memory.end(), std::byte{7});
  GiveBackPages(memory.subspan(100, 4096));  // no whole page
  CHECK(count_of(memory, 7) == 3 << 20);
  GiveBackPages(memory.subspan(100, 3 * 4096));
  CHECK(count_of(memory, 0) == 2 * 4096);
  CHECK(count_of(memory.first(4096), 7) == 4096);
  CHECK(memory[3 * 4096] == std::byte{7});
}

TEST_CASE("pages of a file in memory are given back for all that map it") {
  const size_t bytes = 8 * 4096;
  const UniqueFd file(memfd_create("test", MFD_CLOEXEC));
  REQUIRE(ftruncate(file.get(), bytes) == 0);
  std::span<std::byte> views[2];
  for (auto& view : views) {
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    REQUIRE(memory != MAP_FAILED);
    view = {static_cast<std::byte*>(memory), bytes};
  }
  std::fill(views[0].begin(), views[0].end(), std::byte{7});
  GiveBackPages(views[1]);
  struct stat about {};
  REQUIRE(fstat(file.get(), &about) == 0);
  CHECK(about.st_blocks == 0);  // until it is read
  CHECK(std::count(views[0].begin(), views[0].end(), std::byte{0}) == bytes);
  for (auto& view : views) munmap(view.data(), bytes);
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
