#include "common/mailbox.h"

#include <atomic>
#include <thread>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

TEST_CASE("Mailbox delivers all items of several producers, each in its order") {
  Mailbox<std::pair<int, int>> box;
  constexpr int kProducers = 3, kItems = 2000;
  std::vector<std::thread> producers;
  for (int p = 0; p < kProducers; ++p) {
    producers.emplace_back([&box, p] {
      for (int i = 0; i < kItems; ++i) box.Push({p, i});
    });
  }
  std::vector<int> next(kProducers, 0);
  std::vector<std::pair<int, int>> batch;
  int total = 0;
  while (total < kProducers * kItems) {
    box.Wait();
    box.Drain(&batch);
    for (const auto& [producer, item] : batch) {
      REQUIRE(item == next[static_cast<size_t>(producer)]++);
      ++total;
    }
  }
  for (std::thread& producer : producers) producer.join();
  CHECK_FALSE(box.Drain(&batch));
}

TEST_CASE("Mailbox wakes its owner once per batch and at Close") {
  int wakes = 0;
  Mailbox<int> box([&wakes] { ++wakes; });
  box.Push(1);
  box.Push(2);
  CHECK(wakes == 1);
  std::vector<int> batch;
  CHECK(box.Drain(&batch));
  CHECK(batch == std::vector<int>{1, 2});
  box.Push(3);
  CHECK(wakes == 2);
  box.Close();
  CHECK(wakes == 3);
  CHECK(box.closed());
  box.Wait();  // returns at once
}

}  // namespace
}  // namespace tandem
