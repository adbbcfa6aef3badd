// The compute pool under many shapes of jobs, and the CPU count that sets its size.

#include "kernels/compute_pool.h"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <random>

#include "tests/support/files/temp_folder.h"

#include <catch2/catch.hpp>

namespace tandem {

TEST_CASE("every item runs exactly once, in chunks of whole grains, job after job") {
  for (int threads : {1, 2, 4}) {
    ComputePool pool(threads);
    CHECK(pool.num_threads() == threads);
    std::mt19937_64 random(threads);
    for (int job = 0; job < 3000; ++job) {
      const int64_t items = static_cast<int64_t>(random() % 150);
      const int64_t grain = static_cast<int64_t>(random() % 9) + 1;
      CAPTURE(threads, job, items, grain);
      std::vector<std::atomic<int>> runs(items);
      std::atomic<bool> fits = true;
      pool.Run(items, grain, [&](int64_t begin, int64_t end, int thread) {
        const bool is_whole = begin % grain == 0 && (end % grain == 0 || end == items);
        if (!is_whole || begin >= end || thread < 0 || thread >= threads) fits = false;
        for (int64_t i = begin; i < end; ++i) runs[i].fetch_add(1);
      });
      REQUIRE(fits);
      for (auto& count : runs) REQUIRE(count == 1);
    }
  }
}

TEST_CASE("a chunk runs under the number of one thread at a time") {
  ComputePool pool(4);
  std::array<std::atomic<int>, 4> inside = {};
  std::atomic<bool> alone = true;
  for (int job = 0; job < 200; ++job) {
    pool.Run(64, 1, [&](int64_t, int64_t, int thread) {
      if (inside[thread].fetch_add(1) != 0) alone = false;
      inside[thread].fetch_sub(1);
    });
  }
  CHECK(alone);
}

TEST_CASE("idle workers go to sleep, and wake for the next job") {
  ComputePool pool(3);
  for (int round = 0; round < 20; ++round) {
    while (pool.num_asleep() != 2) std::this_thread::yield();
    // Both chunks must be held at once, which takes a second thread.
    std::atomic<int> arrived = 0;
    pool.Run(2, 1, [&](int64_t, int64_t, int) {
      arrived.fetch_add(1);
      while (arrived.load() < 2) std::this_thread::yield();
    });
    CHECK(arrived == 2);
  }
}

TEST_CASE("a thread that is held up delays only its own chunk") {
  constexpr int64_t kItems = 200;
  ComputePool pool(2);
  std::atomic<int64_t> others = 0, held = 0;
  pool.Run(kItems, 1, [&](int64_t begin, int64_t end, int) {
    if (begin == 0) {
      held = end;
      while (others.load() < kItems - end) std::this_thread::yield();
      return;
    }
    while (held == 0) std::this_thread::yield();
    others.fetch_add(end - begin);
  });
  CHECK(others == kItems - held);
  CHECK(held < kItems / 4);
}

TEST_CASE("chunks shrink to one grain, so that threads end together") {
  ComputePool pool(2);
  std::array<std::atomic<int64_t>, 300> sizes = {};  // by first item
  pool.Run(300, 1, [&](int64_t begin, int64_t end, int) { sizes[begin] = end - begin; });
  int64_t last = 300, num_chunks = 0;
  for (const auto& size : sizes) {
    if (size == 0) continue;
    CHECK(size <= last);
    last = size;
    ++num_chunks;
  }
  CHECK(last == 1);
  CHECK(num_chunks < 60);
}

TEST_CASE("calling the pool from inside its job dies with a message") {
  int channel[2];
  REQUIRE(pipe(channel) == 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(channel[1], STDERR_FILENO);
    signal(SIGABRT, SIG_DFL);
    ComputePool pool(1);
    pool.Run(1, 1, [&](int64_t, int64_t, int) { pool.Run(1, 1, [](int64_t, int64_t, int) {}); });
    _exit(0);
  }
  close(channel[1]);
  std::string message;
  char buffer[512];
  for (ssize_t size; (size = read(channel[0], buffer, sizeof(buffer))) > 0;) {
    message.append(buffer, static_cast<size_t>(size));
  }
  close(channel[0]);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status));
  CHECK(message.find("inside its own job") != std::string::npos);
}

TEST_CASE("the cgroup quota counts in whole CPUs, v1 and v2, parents included") {
  const TempFolder folder;
  const std::filesystem::path mount = folder.path();
  constexpr int kNoLimit = std::numeric_limits<int>::max();
  CHECK(CgroupCpuLimit("0::/a/b\n", mount) == kNoLimit);
  folder.Write("a/b/cpu.max", "max 100000\n");
  CHECK(CgroupCpuLimit("0::/a/b\n", mount) == kNoLimit);
  folder.Write("a/cpu.max", "350000 100000\n");
  CHECK(CgroupCpuLimit("0::/a/b\n", mount) == 3);
  folder.Write("a/b/cpu.max", "50000 100000\n");
  CHECK(CgroupCpuLimit("0::/a/b\n", mount) == 1);
  CHECK(CgroupCpuLimit("0::/\n", mount) == kNoLimit);
  folder.Write("cpu,cpuacct/c/cpu.cfs_quota_us", "200000\n");
  folder.Write("cpu,cpuacct/c/cpu.cfs_period_us", "100000\n");
  CHECK(CgroupCpuLimit("3:cpu,cpuacct:/c\n2:memory:/c\n", mount) == 2);
  folder.Write("cpu,cpuacct/c/cpu.cfs_quota_us", "-1\n");
  CHECK(CgroupCpuLimit("3:cpu,cpuacct:/c\n", mount) == kNoLimit);
  CHECK(NumUsableCpus() >= 1);
}

}  // namespace tandem
