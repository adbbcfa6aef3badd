#include "kernels/compute_pool.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <limits>
#include <string>

#include "common/check.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/read_file.h"
#include "common/strings.h"

namespace tandem {

namespace {

constexpr uint64_t kLeftMask = 0xffffffff;
// A claim takes the grains left, divided by this many times the threads.
constexpr uint64_t kClaimsPerThread = 4;
constexpr double kSpinSeconds = 40e-6;
constexpr int64_t kNapNs = 150'000;
// After more than a time slice naps bring nothing any more.
constexpr int kMostNaps = 100;
constexpr int64_t kSleepNs = 50'000'000;
constexpr int kNoLimit = std::numeric_limits<int>::max();

thread_local bool t_inside_job = false;

// Polls until done() or until the spin time is over; returns the last done(). Reading the clock
// takes as long as some polls, so it is read every 32 of them.
template <class Done>
bool SpinUntil(Done done) {
  const SystemClock clock;
  const double end = clock.Monotonic() + kSpinSeconds;
  do {
    for (int i = 0; i < 32; ++i) {
      if (done()) return true;
      __builtin_ia32_pause();
    }
  } while (clock.Monotonic() < end);
  return done();
}

// Empty if the kernel or the container has no such file.
std::string TextOf(const std::filesystem::path& path) {
  constexpr int64_t kMaxBytes = 1 << 20;
  auto text = ReadFile(path.string(), kMaxBytes);
  return text.ok() ? *std::move(text) : std::string();
}

int WholeCpus(std::string_view quota, std::string_view period) {
  const auto quota_us = ParseNumber<int64_t>(StripAscii(quota));
  const auto period_us = ParseNumber<int64_t>(StripAscii(period));
  if (!quota_us || !period_us || *quota_us <= 0 || *period_us <= 0) return kNoLimit;
  return static_cast<int>(std::clamp<int64_t>(*quota_us / *period_us, 1, kNoLimit));
}

int LimitOfGroup(const std::filesystem::path& group) {
  const std::string max = TextOf(group / "cpu.max");  // "<quota or max> <period>"
  const std::vector<std::string_view> fields = Split(StripAscii(max), ' ');
  const int v2 = fields.size() == 2 ? WholeCpus(fields[0], fields[1]) : kNoLimit;
  const int v1 = WholeCpus(TextOf(group / "cpu.cfs_quota_us"), TextOf(group / "cpu.cfs_period_us"));
  return std::min(v1, v2);
}

}  // namespace

int CgroupCpuLimit(std::string_view cgroups, const std::filesystem::path& mount) {
  int limit = kNoLimit;
  for (std::string_view line : Split(cgroups, '\n')) {
    const std::vector<std::string_view> fields = Split(line, ':');  // id:controllers:path
    if (fields.size() < 3) continue;
    const std::vector<std::string_view> controllers = Split(fields[1], ',');
    const bool is_v1_cpu =
        std::find(controllers.begin(), controllers.end(), "cpu") != controllers.end();
    if (!fields[1].empty() && !is_v1_cpu) continue;
    const std::filesystem::path root = is_v1_cpu ? mount / fields[1] : mount;
    // A container may see the host's path although only its root is mounted: missing levels read
    // as no limit.
    std::filesystem::path group(fields[2]);
    limit = std::min(limit, LimitOfGroup(root));
    for (; group.has_relative_path(); group = group.parent_path()) {
      limit = std::min(limit, LimitOfGroup(root / group.relative_path()));
    }
  }
  return limit;
}

int NumUsableCpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  const int affinity = sched_getaffinity(0, sizeof(set), &set) == 0
                           ? CPU_COUNT(&set)
                           : static_cast<int>(std::thread::hardware_concurrency());
  return std::max(
      1, std::min(affinity, CgroupCpuLimit(TextOf("/proc/self/cgroup"), "/sys/fs/cgroup")));
}

ComputePool::ComputePool(int num_threads) {
  CHECK_GE(num_threads, 1);
  for (int i = 1; i < num_threads; ++i) threads_.emplace_back([this, i] { WorkerLoop(i); });
}

ComputePool::~ComputePool() {
  stop_ = true;
  wake_.fetch_add(1);
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ComputePool::Run(int64_t num_items, int64_t grain, ThreadRangeFunction function) {
  CHECK(!t_inside_job) << "the compute pool was called from inside its own job";
  CHECK_GT(grain, 0);
  if (num_items <= 0) return;
  function_ = &function;
  num_items_ = num_items;
  grain_ = grain;
  num_grains_ = (num_items + grain - 1) / grain;
  CHECK_LE(num_grains_, std::numeric_limits<int32_t>::max());

  if (threads_.empty() || num_grains_ == 1) {
    t_inside_job = true;
    RunGrains(0, num_grains_, 0);
    t_inside_job = false;
    return;
  }

  num_unfinished_.store(static_cast<int32_t>(num_grains_), std::memory_order_relaxed);
  const uint64_t job = (claim_.load(std::memory_order_relaxed) >> 32) + 1;
  claim_.store(job << 32 | static_cast<uint64_t>(num_grains_));  // seq_cst: see WorkerLoop
  if (num_asleep_.load() > 0) {
    wake_.fetch_add(1);
    wake_.notify_all();
  }
  while (RunOneChunk(0)) {
  }
  WaitForLastChunk();
}

void ComputePool::WaitForLastChunk() {
  if (SpinUntil([this] { return num_unfinished_.load(std::memory_order_acquire) == 0; })) return;
  // No wake-up is lost: the caller sets caller_sleeps_ and the kernel then compares the count; the
  // last chunk's thread counts down and then reads caller_sleeps_.
  static_assert(sizeof(num_unfinished_) == sizeof(int32_t));
  caller_sleeps_.store(true);
  int num_naps = 0;
  for (int32_t left; (left = num_unfinished_.load()) != 0;) {
    const timespec nap = {.tv_sec = 0, .tv_nsec = ++num_naps <= kMostNaps ? kNapNs : kSleepNs};
    syscall(SYS_futex, &num_unfinished_, FUTEX_WAIT_PRIVATE, left, &nap, nullptr, 0);
  }
  caller_sleeps_.store(false);
}

void ComputePool::RunGrains(int64_t first, int64_t count, int thread) const {
  (*function_)(first * grain_, std::min((first + count) * grain_, num_items_), thread);
}

// Claims and runs one chunk of the current job; false if none is left.
bool ComputePool::RunOneChunk(int thread) {
  uint64_t seen = claim_.load(std::memory_order_acquire);
  uint64_t left, count;
  do {
    left = seen & kLeftMask;
    if (left == 0) return false;
    count = std::max<uint64_t>(1, left / (kClaimsPerThread * static_cast<uint64_t>(num_threads())));
  } while (!claim_.compare_exchange_weak(seen, seen - count, std::memory_order_acq_rel));
  // The claim pins the job: Run cannot return, so no other job can begin, before the chunk is done.
  t_inside_job = true;
  RunGrains(num_grains_ - static_cast<int64_t>(left), static_cast<int64_t>(count), thread);
  t_inside_job = false;
  const auto done = static_cast<int32_t>(count);
  if (num_unfinished_.fetch_sub(done) == done && caller_sleeps_.load()) {
    syscall(SYS_futex, &num_unfinished_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
  }
  return true;
}

void ComputePool::WorkerLoop(int thread) {
  SetThreadName("compute-" + std::to_string(thread));
  auto has_work = [this] {
    return (claim_.load(std::memory_order_relaxed) & kLeftMask) != 0 ||
           stop_.load(std::memory_order_relaxed);
  };
  while (!stop_.load(std::memory_order_relaxed)) {
    while (RunOneChunk(thread)) {
    }
    if (SpinUntil(has_work)) continue;
    // No wake-up is lost: the worker raises num_asleep_ and then looks for work; Run publishes work
    // and then reads num_asleep_.
    const uint32_t seen = wake_.load();
    num_asleep_.fetch_add(1);
    if ((claim_.load() & kLeftMask) == 0 && !stop_.load()) wake_.wait(seen);
    num_asleep_.fetch_sub(1);
  }
}

}  // namespace tandem
