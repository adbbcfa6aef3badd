// With the tests' own library in NCCL's place, and the part of NCCL itself that needs no device.

#include "kernels/cuda/libraries/nccl.h"

#include <cstdlib>
#include <thread>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/libraries/shared_library.h"
#include "tests/support/fake_nccl.h"
#include "tests/support/files/temp_folder.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Catch::Matchers::Contains;

FakeNccl& Fake() {
  FakeNccl* fake = nullptr;
  REQUIRE(SharedLibrary::Open(TANDEM_FAKE_NCCL)->Find("fake_nccl", &fake).ok());
  return *fake;
}

// The fake library in its initial state.
FakeNccl& FreshFake() {
  FakeNccl& fake = Fake();
  CHECK(fake.num_live == 0);
  fake.failing_function = fake.last_error = "";
  fake.async_error = fake.num_destroyed = fake.num_aborted = 0;
  fake.last_stream = nullptr;
  return fake;
}

Nccl OpenFake() { return *Nccl::Open(TANDEM_FAKE_NCCL); }

std::string OpenError(const std::string& file) {
  const StatusOr<Nccl> nccl = Nccl::Open(file);
  REQUIRE_FALSE(nccl.ok());
  CHECK(nccl.status().code() == StatusCode::kUnavailable);
  return nccl.status().message();
}

int stream = 0;  // its address is the stream of all communicators

// Runs work(communicator, rank) on a thread for each rank of a new world (without CHECK: Catch2 has
// one thread); returns each one's result, or why its communicator could not be made.
template <class Work>
std::vector<Status> RunWorld(int world_size, Work work) {
  const Nccl nccl = OpenFake();
  const NcclUniqueId id = *nccl.MakeUniqueId();
  std::vector<Status> results(static_cast<size_t>(world_size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      const auto communicator = NcclCommunicator::Init(nccl, {rank, world_size}, id, &stream);
      results[static_cast<size_t>(rank)] =
          communicator.ok() ? work(**communicator, rank) : communicator.status();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

// The sum of inputs[rank] as each rank receives it.
template <class T>
std::vector<std::vector<T>> AllReduced(std::vector<std::vector<T>> inputs, DType dtype) {
  const auto size = static_cast<int64_t>(inputs[0].size());
  const auto results = RunWorld(static_cast<int>(inputs.size()), [&](auto& communicator, int rank) {
    communicator.AllReduce(Tensor(inputs[static_cast<size_t>(rank)].data(), dtype, {size}));
    return communicator.status();
  });
  for (const Status& status : results) CHECK(status == OkStatus());
  return inputs;
}

TEST_CASE("missing NCCL: the message names the file and the remedy") {
  CHECK_THAT(OpenError("libnccl_of_nobody.so.2"),
             Contains("libnccl_of_nobody.so.2: cannot open shared object file") &&
                 Contains("install libnccl2") && Contains("LD_LIBRARY_PATH"));
  const TempFolder folder;
  folder.Write("libnccl.so.2", "not a library");
  const std::string text = folder.PathOf("libnccl.so.2");
  CHECK_THAT(OpenError(text), Contains("(" + text));
}

TEST_CASE("NCCL without a function: the message names it") {
  CHECK_THAT(OpenError("libm.so.6"), Contains("libm.so.6 has no ncclGetVersion"));
  CHECK_THAT(OpenError(TANDEM_OLD_FAKE_NCCL),
             Contains("has no ncclGetLastError: it is too old") && Contains("2.13"));
}

TEST_CASE("NCCL's version") { CHECK(OpenFake().version() == "2.28.9"); }

TEST_CASE("an all-reduce leaves each rank the sum of all, float32") {
  FreshFake();
  for (const int world_size : {1, 2, 3}) {
    CAPTURE(world_size);
    std::vector<std::vector<float>> inputs;
    float sum = 0;
    for (int rank = 0; rank < world_size; ++rank) {
      const float x = 0.5f + static_cast<float>(rank);
      inputs.push_back({x, -x, 1e30f});
      sum += x;
    }
    for (const auto& output : AllReduced(inputs, DType::kF32)) {
      CHECK(output == std::vector<float>{sum, -sum, 1e30f * static_cast<float>(world_size)});
    }
  }
}

TEST_CASE("an all-reduce of bf16 rounds its sums to bf16") {
  FreshFake();
  const auto row = [](float a, float b) { return std::vector<Bf16>{ToBf16(a), ToBf16(b)}; };
  CHECK(AllReduced<Bf16>({row(3, 0.1f)}, DType::kBf16)[0] == row(3, 0.1f));
  // 257 lies between 256 and 258, and goes to the even one.
  for (const auto& output : AllReduced<Bf16>({row(256, 1), row(1, 2)}, DType::kBf16)) {
    CHECK(output == row(256, 3));
  }
  for (const auto& output : AllReduced<Bf16>({row(256, 1), row(3, 2), row(1, -7)}, DType::kBf16)) {
    CHECK(output == row(260, -4));
  }
}

TEST_CASE("an all-gather leaves each rank the rows of all") {
  FreshFake();
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    std::vector<std::vector<uint16_t>> memory(3, std::vector<uint16_t>(3 * 4, 0));
    const int64_t columns = 4 * 2 / SizeOf(dtype);  // a row is four words
    const auto results = RunWorld(3, [&](auto& communicator, int rank) {
      std::vector<uint16_t>& words = memory[static_cast<size_t>(rank)];
      for (int i = 0; i < 4; ++i) {
        words[static_cast<size_t>(rank * 4 + i)] = static_cast<uint16_t>(100 * rank + i);
      }
      communicator.AllGather(Tensor(words.data(), dtype, {3, columns}));
      return communicator.status();
    });
    CHECK(results == std::vector<Status>(3));
    for (const auto& words : memory) {
      CHECK(words == std::vector<uint16_t>{0, 1, 2, 3, 100, 101, 102, 103, 200, 201, 202, 203});
    }
  }
}

TEST_CASE("a broadcast leaves each rank what the root has") {
  FreshFake();
  std::vector<std::vector<float>> memory = {{1, 2}, {3, 4}, {5, 6}};
  const auto results = RunWorld(3, [&](auto& communicator, int rank) {
    if (communicator.rank() != rank || communicator.size() != 3)
      return InternalError("another rank or size");
    communicator.Broadcast(Tensor(memory[static_cast<size_t>(rank)].data(), DType::kF32, {2}), 1);
    return communicator.status();
  });
  CHECK(results == std::vector<Status>(3));
  for (const auto& numbers : memory) CHECK(numbers == std::vector<float>{3, 4});
}

TEST_CASE("worlds of different ids are apart, and exchanges go into the caller's stream") {
  FakeNccl& fake = FreshFake();
  const Nccl nccl = OpenFake();
  const NcclUniqueId other_id = *nccl.MakeUniqueId();
  const auto results = RunWorld(2, [&](auto& communicator, int rank) -> Status {
    ASSIGN_OR_RETURN(const auto other,
                     NcclCommunicator::Init(nccl, {1 - rank, 2}, other_id, &stream));
    float x = rank == 0 ? 1 : 2, y = rank == 0 ? 10 : 20;
    other->AllReduce(Tensor(&y, DType::kF32, {1}));
    communicator.AllReduce(Tensor(&x, DType::kF32, {1}));
    RETURN_IF_ERROR(other->status());
    RETURN_IF_ERROR(communicator.status());
    if (x == 3 && y == 30) return OkStatus();
    return InternalError(std::to_string(x) + " and " + std::to_string(y));
  });
  CHECK(results == std::vector<Status>(2));
  CHECK(fake.last_stream == &stream);
  CHECK(fake.num_destroyed == 4);
  CHECK(fake.num_aborted == 0);
  CHECK(fake.num_live == 0);
}

TEST_CASE("an unknown id, a rank out of range, sizes that differ: NCCL's message") {
  FreshFake();
  const Nccl nccl = OpenFake();
  CHECK(NcclCommunicator::Init(nccl, {0, 1}, NcclUniqueId(), &stream).status().message() ==
        "ncclCommInitRank, rank 0 of 1: invalid argument");
  const NcclUniqueId id = *nccl.MakeUniqueId();
  CHECK(NcclCommunicator::Init(nccl, {2, 2}, id, &stream).status().message() ==
        "ncclCommInitRank, rank 2 of 2: invalid argument");
  const auto results = RunWorld(2, [](auto& communicator, int rank) {
    float numbers[2] = {};
    communicator.AllReduce(Tensor(numbers, DType::kF32, {rank + 1}));
    return communicator.status();
  });
  for (const Status& status : results) CHECK(status.message() == "ncclAllReduce: invalid usage");
}

TEST_CASE("a failed call reports NCCL's message and last error") {
  FakeNccl& fake = FreshFake();
  fake.failure = 1;
  fake.last_error = "Cuda failure 'out of memory'";
  fake.failing_function = "ncclGetUniqueId";
  CHECK(OpenFake().MakeUniqueId().status() ==
        UnavailableError("ncclGetUniqueId: unhandled cuda error: Cuda failure 'out of memory'"));
  fake.failing_function = "ncclCommInitRank";
  CHECK(RunWorld(1, [](auto&, int) { return OkStatus(); })[0].message() ==
        "ncclCommInitRank, rank 0 of 1: unhandled cuda error: Cuda failure 'out of memory'");
  CHECK(fake.num_destroyed + fake.num_aborted == 0);
}

TEST_CASE("a failed sum is final and aborts its rank, and fails the ranks that wait for it") {
  FakeNccl& fake = FreshFake();
  fake.failing_function = "ncclAllReduce";
  fake.failing_rank = 1;
  fake.failure = 1;
  const auto results = RunWorld(3, [&](auto& communicator, int) {
    float x = 1;
    const Tensor view(&x, DType::kF32, {1});
    communicator.AllReduce(view);
    const Status first = communicator.status();
    communicator.AllReduce(view);
    communicator.Broadcast(view, 0);
    return communicator.status() == first ? first : InternalError("another failure later");
  });
  const std::string gone = "ncclAllReduce: remote process exited or there was a network error";
  CHECK(results[0].message() == gone);
  CHECK(results[1].message() == "ncclAllReduce: unhandled cuda error");
  CHECK(results[2].message() == gone);
  CHECK(fake.num_aborted == 3);
  CHECK(fake.num_destroyed == 0);
  CHECK(fake.num_live == 0);
}

TEST_CASE("an asynchronous error is a status, and final") {
  FakeNccl& fake = FreshFake();
  const auto results = RunWorld(1, [&](auto& communicator, int) {
    if (!communicator.status().ok()) return InternalError("a failure before there is one");
    fake.async_error = 6;
    const Status status = communicator.status();
    fake.async_error = 0;
    float x = 1;
    communicator.AllReduce(Tensor(&x, DType::kF32, {1}));
    return communicator.status() == status ? status : InternalError("it was forgotten");
  });
  CHECK(results[0] == UnavailableError("NCCL, asynchronously: remote process exited or there was a "
                                       "network error"));
  CHECK(fake.num_aborted == 1);
}

TEST_CASE("a communicator is aborted for an asynchronous error not read before") {
  FakeNccl& fake = FreshFake();
  RunWorld(1, [&](auto&, int) {
    fake.async_error = 1;
    return OkStatus();
  });
  CHECK(fake.num_aborted == 1);
  CHECK(fake.num_destroyed == 0);
}

TEST_CASE("NCCL itself opens, has a version, and without a driver refuses with a message") {
  setenv("NCCL_SOCKET_IFNAME", "lo", 0);
  const StatusOr<Nccl> nccl = Nccl::Open();
  if (!nccl.ok()) {
    CHECK_THAT(nccl.status().message(), Contains("cannot open shared object file"));
    WARN("SKIPPED: " << nccl.status().message());
    return;
  }
  CHECK_THAT(nccl->version(), Catch::Matchers::Matches("2\\.[0-9]+\\.[0-9]+"));
  if (HasCudaDevice()) {
    WARN("SKIPPED: there is a device; tests/gpu makes a communicator on it");
    return;
  }
  const StatusOr<NcclUniqueId> id = nccl->MakeUniqueId();
  INFO(id.status().ToString());
  REQUIRE(id.ok());
  CHECK(id->bytes != NcclUniqueId().bytes);
  const auto communicator = NcclCommunicator::Init(*nccl, {0, 1}, *id, nullptr);
  REQUIRE_FALSE(communicator.ok());
  CHECK_THAT(communicator.status().message(),
             Contains("ncclCommInitRank, rank 0 of 1: ") && Contains("driver"));
}

}  // namespace
}  // namespace tandem
