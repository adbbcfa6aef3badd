#include "kernels/shared_communicator.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "common/random.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

constexpr int64_t kBytes = int64_t{1} << 32;  // most of it is never touched

// Calls function(rank's communicator) on a thread per rank.
void RunRanks(int size, const std::function<void(SharedCommunicator*)>& function,
              int spins = kFutexSpins) {
  const SharedMemory memory = SharedMemory::Create("ranks", kBytes).value();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      auto ranks = SharedCommunicator::Create({&memory, 8192}, rank, size, spins).value();
      function(ranks.get());
    });
  }
  for (std::thread& thread : threads) thread.join();
}

float Number(int rank, int64_t i) {
  return static_cast<float>(UniformAt(static_cast<uint64_t>(rank), static_cast<uint64_t>(i), 3)) -
         0.5f;
}

// Longer than the chunks in which it travels, and not a multiple of them.
constexpr int64_t kLong = 200'003;

TEST_CASE("shared communicator: a sum is that of the ranks in their order, the same at all") {
  for (const int size : {1, 2, 3, 4}) {
    CAPTURE(size);
    std::vector<std::vector<float>> got(static_cast<size_t>(size));
    RunRanks(size, [&](SharedCommunicator* ranks) {
      std::vector<float>& x = got[static_cast<size_t>(ranks->rank())];
      for (int64_t i = 0; i < kLong; ++i) x.push_back(Number(ranks->rank(), i));
      ranks->AllReduce(Tensor(x.data(), DType::kF32, {kLong}));
    });
    std::vector<float> expected;
    for (int64_t i = 0; i < kLong; ++i) {
      float sum = Number(0, i);
      for (int rank = 1; rank < size; ++rank) sum += Number(rank, i);
      expected.push_back(sum);
    }
    for (const std::vector<float>& x : got) CHECK(x == expected);
  }
}

TEST_CASE("shared communicator: bfloat16 is summed in float32 and rounded once") {
  std::vector<std::vector<Bf16>> got(3);
  RunRanks(3, [&](SharedCommunicator* ranks) {
    std::vector<Bf16>& x = got[static_cast<size_t>(ranks->rank())];
    // 1 + 2^-8 + 2^-8: added in bfloat16 both small ones would be lost.
    x = {ToBf16(ranks->rank() == 0 ? 1.0f : 0x1p-8f)};
    ranks->AllReduce(Tensor(x.data(), DType::kBf16, {1}));
  });
  for (const std::vector<Bf16>& x : got) CHECK(ToFloat(x[0]) == 1 + 0x1p-7f);
}

TEST_CASE("shared communicator: parts are gathered in the order of the ranks") {
  for (const int64_t part : {int64_t{1}, int64_t{7}, kLong}) {
    CAPTURE(part);
    std::vector<std::vector<float>> got(3);
    RunRanks(3, [&](SharedCommunicator* ranks) {
      std::vector<float>& x = got[static_cast<size_t>(ranks->rank())];
      x.assign(static_cast<size_t>(3 * part), -7);
      for (int64_t i = 0; i < part; ++i) {
        x[static_cast<size_t>(ranks->rank() * part + i)] = Number(ranks->rank(), i);
      }
      ranks->AllGather(Tensor(x.data(), DType::kF32, {3, part}));
    });
    std::vector<float> expected;
    for (int rank = 0; rank < 3; ++rank) {
      for (int64_t i = 0; i < part; ++i) expected.push_back(Number(rank, i));
    }
    for (const std::vector<float>& x : got) CHECK(x == expected);
  }
}

TEST_CASE("shared communicator: one rank's tensor goes to the others") {
  for (const int root : {0, 1, 2}) {
    std::vector<std::vector<float>> got(3);
    RunRanks(3, [&](SharedCommunicator* ranks) {
      std::vector<float>& x = got[static_cast<size_t>(ranks->rank())];
      for (int64_t i = 0; i < kLong; ++i) x.push_back(Number(ranks->rank(), i));
      ranks->Broadcast(Tensor(x.data(), DType::kF32, {kLong}), root);
    });
    for (const std::vector<float>& x : got) CHECK(x == got[static_cast<size_t>(root)]);
  }
}

TEST_CASE("shared communicator: exchanges of all kinds after each other do not mix") {
  constexpr int kRounds = 400;
  for (const int spins : {0, 300}) {
    std::vector<int> num_wrong(3, 0);
    RunRanks(
        3,
        [&](SharedCommunicator* ranks) {
          int& wrong = num_wrong[static_cast<size_t>(ranks->rank())];
          for (int round = 0; round < kRounds; ++round) {
            const int root = round % 3;
            float x = static_cast<float>(ranks->rank() + round), y = x, z[3] = {};
            z[ranks->rank()] = x;
            ranks->AllReduce(Tensor(&x, DType::kF32, {1}));
            ranks->Broadcast(Tensor(&y, DType::kF32, {1}), root);
            ranks->AllGather(Tensor(z, DType::kF32, {3, 1}));
            const auto base = static_cast<float>(round);
            wrong += x == 3 * base + 3 && y == base + static_cast<float>(root) && z[0] == base &&
                             z[1] == base + 1 && z[2] == base + 2
                         ? 0
                         : 1;
          }
        },
        spins);
    CHECK(num_wrong == std::vector<int>{0, 0, 0});
  }
}

TEST_CASE(
    "shared communicator: what each rank writes of a shared tensor all read after a meeting") {
  constexpr int64_t kRows = 5, kColumns = 12;
  std::vector<std::vector<float>> got(4);
  std::vector<int64_t> ends(4);
  RunRanks(4, [&](SharedCommunicator* ranks) {
    const OwnedTensor first = ranks->Allocate(DType::kF32, {kRows, kColumns}).value();
    const OwnedTensor second = ranks->Allocate(DType::kF32, {1}).value();
    const Tensor mine = first.view().Columns(ranks->rank() * 3, 3);
    for (int64_t i = 0; i < kRows; ++i) {
      for (int64_t j = 0; j < 3; ++j) {
        mine.Row<float>(i)[j] = Number(0, i * kColumns + ranks->rank() * 3 + j);
      }
    }
    ranks->Meet();
    const auto rank = static_cast<size_t>(ranks->rank());
    got[rank].assign(first.view().Data<float>(), first.view().Data<float>() + kRows * kColumns);
    got[rank].push_back(*second.view().Data<float>());
    ends[rank] = ranks->end();
  });
  std::vector<float> expected;
  for (int64_t i = 0; i < kRows * kColumns; ++i) expected.push_back(Number(0, i));
  expected.push_back(0);
  for (const std::vector<float>& x : got) CHECK(x == expected);
  for (const int64_t end : ends) CHECK(end == ends[0]);
}

TEST_CASE("shared communicator: ranks are processes as well") {
  const SharedMemory memory = SharedMemory::Create("ranks", kBytes).value();
  const pid_t pid = fork();
  REQUIRE(pid >= 0);
  float x = pid == 0 ? 2 : 1;
  auto ranks = SharedCommunicator::Create({&memory, 0}, pid == 0 ? 1 : 0, 2).value();
  for (int i = 0; i < 1000; ++i) ranks->AllReduce(Tensor(&x, DType::kF32, {1}));
  const bool is_right = std::isinf(x);  // 3 * 2^999
  if (pid == 0) _exit(is_right ? 0 : 1);
  int status = -1;
  REQUIRE(waitpid(pid, &status, 0) == pid);
  CHECK(status == 0);
  CHECK(is_right);
}

TEST_CASE("shared communicator: nobody waits for a rank that is known to be dead") {
  const SharedMemory memory = SharedMemory::Create("ranks", kBytes).value();
  auto first = SharedCommunicator::Create({&memory, 0}, 0, 2).value();
  auto watch = SharedCommunicator::Create({&memory, 0}, 1, 2).value();
  CHECK(first->status().ok());
  std::thread waits([&] { first->Meet(); });
  watch->Abandon();
  waits.join();
  CHECK(first->status().code() == StatusCode::kUnavailable);
  first->Meet();
}

}  // namespace
}  // namespace tandem
