#include "frontend/net/net.h"

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include "common/clock.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

double Now() { return SystemClock().Monotonic(); }

template <class T>
T Get(std::promise<T>& promise) {
  auto future = promise.get_future();
  REQUIRE(future.wait_for(std::chrono::seconds(20)) == std::future_status::ready);
  return future.get();
}

Awaitable<int> Add(int a, int b) { co_return a + b; }

Awaitable<void> SumInto(int n, std::promise<long>* result) {
  long sum = 0;
  for (int i = 0; i < n; ++i) sum += co_await Add(i, 1);
  result->set_value(sum);
}

TEST_CASE("a loop over a million children that never wait does not grow the stack") {
  Shard shard(0);
  std::promise<long> result;
  shard.Spawn(SumInto(1'000'000, &result), "sum");
  shard.Start();
  CHECK(Get(result) == 500'000'500'000);
}

Awaitable<void> WaitFor(Event* event, double deadline, std::promise<bool>* result) {
  result->set_value(co_await event->WaitUntil(deadline));
}

TEST_CASE("an event wakes its waiter, or the deadline does") {
  Shard shard(0);
  shard.Start();
  Event event, never;
  std::promise<bool> woken, late;
  shard.Post([&] {
    shard.Spawn(WaitFor(&event, Now() + 1000, &woken), "woken");
    shard.Spawn(WaitFor(&never, Now() + 0.001, &late), "late");
    event.Set();
  });
  CHECK_FALSE(Get(late));
  CHECK(Get(woken));
}

Awaitable<void> HopInto(TextPool* pool, std::promise<std::string>* result) {
  const auto shard_thread = std::this_thread::get_id();
  auto owned = std::make_unique<int>(41);
  auto work = [owned = std::move(owned), shard_thread] {
    return std::this_thread::get_id() == shard_thread ? -1 : *owned + 1;
  };
  const int value = co_await OnPool(pool, std::move(work));
  const bool back = std::this_thread::get_id() == shard_thread;
  result->set_value(std::to_string(value) + (back ? " back" : " elsewhere"));
}

TEST_CASE("work on the pool runs on another thread and its result returns to the shard") {
  TextPool pool(2);
  Shard shard(0);
  shard.Start();
  std::promise<std::string> result;
  shard.Post([&] { shard.Spawn(HopInto(&pool, &result), "hop"); });
  CHECK(Get(result) == "42 back");
}

TEST_CASE("a pool counts the jobs that wait, and reports for how long each has") {
  std::promise<void> go;
  std::promise<bool> started, ended;
  std::vector<double> waited_s;
  TextPool pool(1, [&](double seconds) { waited_s.push_back(seconds); });
  pool.Submit([&] {
    started.set_value(true);
    go.get_future().wait();
  });
  CHECK(Get(started));
  CHECK(pool.num_waiting() == 0);
  pool.Submit([&] { ended.set_value(true); });
  const double submitted = Now();
  CHECK(pool.num_waiting() == 1);
  const double released = Now();
  go.set_value();
  CHECK(Get(ended));
  pool.Stop();
  CHECK(pool.num_waiting() == 0);
  REQUIRE(waited_s.size() == 2);
  CHECK(waited_s[1] >= released - submitted);
}

TEST_CASE("when a pool has stopped its jobs have ended, and none runs afterwards") {
  TextPool pool(1);
  std::promise<bool> started;
  std::promise<void> go;
  bool ended = false, late = false;
  pool.Submit([&] {
    started.set_value(true);
    go.get_future().wait();
    ended = true;
  });
  CHECK(Get(started));
  std::thread stopper([&] {
    pool.Stop();
    CHECK(ended);
  });
  go.set_value();
  stopper.join();
  pool.Submit([&] { late = true; });
  pool.Stop();
  CHECK_FALSE(late);
}

TEST_CASE("posts from many threads all run, on the shard, in each thread's order") {
  Shard shard(0);
  shard.Start();
  constexpr int kThreads = 4, kPosts = 1000;
  std::vector<int> last(kThreads, -1);
  int num_run = 0;
  bool in_order = true;
  std::promise<bool> done;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kPosts; ++i) {
        shard.Post([&, t, i] {
          in_order &= shard.OnThread() && last[static_cast<size_t>(t)] == i - 1;
          last[static_cast<size_t>(t)] = i;
          if (++num_run == kThreads * kPosts) done.set_value(in_order);
        });
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(Get(done));
}

struct Witness {
  explicit Witness(bool* gone) : gone_(gone) {}
  ~Witness() { *gone_ = true; }
  bool* gone_;
};

Awaitable<void> Forever(std::unique_ptr<Witness> witness, std::promise<bool>* started) {
  Event never;
  started->set_value(witness != nullptr);
  co_await never.Wait();
}

TEST_CASE("joining a shard destroys the coroutines that have not ended") {
  bool gone = false;
  Shard shard(0);
  shard.Start();
  std::promise<bool> started;
  shard.Post([&] { shard.Spawn(Forever(std::make_unique<Witness>(&gone), &started), "forever"); });
  CHECK(Get(started));
  shard.Stop();
  shard.Join();
  CHECK(gone);
}

}  // namespace
}  // namespace tandem
