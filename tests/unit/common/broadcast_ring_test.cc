#include "common/broadcast_ring.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "common/random.h"
#include "common/shared_memory.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

struct RingMemory {
  explicit RingMemory(const RingShape& shape)
      : memory(SharedMemory::Create("ring", BroadcastRing::BytesOf(shape)).value()),
        mapping(memory.Map(0, BroadcastRing::BytesOf(shape)).value()) {}
  SharedMemory memory;
  SharedMemory::Mapping mapping;
};

void Write(BroadcastRing* ring, const std::string& record) {
  const std::span<std::byte> slot = ring->BeginWrite();
  if (slot.size() < record.size()) std::abort();  // Catch's checks are for one thread
  std::memcpy(slot.data(), record.data(), record.size());
  ring->EndWrite(static_cast<int64_t>(record.size()));
}

std::string Text(std::span<const std::byte> record) {
  return {reinterpret_cast<const char*>(record.data()), record.size()};
}

std::string ReadOne(BroadcastRing* ring, int reader) {
  const std::string text = Text(ring->Read(reader));
  ring->Release(reader);
  return text;
}

// 'R' runs, 'S' sleeps.
char StateOf(pid_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  std::getline(in, line);
  const size_t name_end = line.rfind(") ");
  return name_end == std::string::npos ? '?' : line[name_end + 2];
}

void WaitUntilAsleep(pid_t pid) {
  while (StateOf(pid) != 'S') std::this_thread::yield();
}

// The order of events of vLLM's queue of 3 chunks and 2 readers.
TEST_CASE("broadcast ring: a slot is free again when every reader has released it") {
  const RingShape shape = {.num_readers = 2, .num_slots = 3, .slot_bytes = 64};
  const RingMemory memory(shape);
  BroadcastRing writer(shape, memory.mapping.get()), reader(shape, memory.mapping.get());
  Write(&writer, "a");
  CHECK(ReadOne(&reader, 0) == "a");
  Write(&writer, "b");
  Write(&writer, "c");
  CHECK(ReadOne(&reader, 1) == "a");
  Write(&writer, "a record that wraps around");
  CHECK(writer.num_written() == 4);
  CHECK(ReadOne(&reader, 0) == "b");
  CHECK(ReadOne(&reader, 0) == "c");
  CHECK(ReadOne(&reader, 0) == "a record that wraps around");
  // Reader 1 stops the writer now.
  CHECK(reader.num_released(0) == 4);
  CHECK(reader.num_released(1) == 1);
  bool is_written = false;
  std::thread blocked([&] {
    Write(&writer, "e");
    is_written = true;
  });
  CHECK(ReadOne(&reader, 1) == "b");
  blocked.join();
  CHECK(is_written);
  for (const char* text : {"c", "a record that wraps around", "e"}) {
    CHECK(ReadOne(&reader, 1) == text);
  }
  CHECK(ReadOne(&reader, 0) == "e");
}

TEST_CASE("broadcast ring: a record of the slot's size and one of one byte") {
  const RingShape shape = {.num_readers = 1, .num_slots = 1, .slot_bytes = 1000};
  const RingMemory memory(shape);
  BroadcastRing ring(shape, memory.mapping.get());
  const std::string whole(1000, 'x');
  for (int i = 0; i < 3; ++i) {
    Write(&ring, whole);
    CHECK(ReadOne(&ring, 0) == whole);
    Write(&ring, "y");
    CHECK(ReadOne(&ring, 0) == "y");
  }
}

TEST_CASE("broadcast ring: all readers see all records in order, whichever is slow") {
  for (uint64_t seed = 1; seed <= 24; ++seed) {
    auto draw = [&, next = uint64_t{0}](int low, int high) mutable {
      return low + static_cast<int>(UniformAt(seed, next++, 1) * (high - low + 1));
    };
    const RingShape shape = {
        .num_readers = draw(1, 4), .num_slots = draw(1, 5), .slot_bytes = draw(8, 300)};
    const int spins = draw(0, 2) * 100;
    constexpr uint32_t kRecords = 1500;
    CAPTURE(seed, shape.num_readers, shape.num_slots, shape.slot_bytes, spins);
    const RingMemory memory(shape);
    const auto size_of = [&](uint32_t i) {
      return 5 + static_cast<int64_t>(UniformAt(seed, i, 2) *
                                      static_cast<double>(shape.slot_bytes - 5));
    };
    std::vector<uint32_t> num_wrong(static_cast<size_t>(shape.num_readers), 0);
    std::vector<std::thread> readers;
    for (int r = 0; r < shape.num_readers; ++r) {
      readers.emplace_back([&, r] {
        BroadcastRing ring(shape, memory.mapping.get(), spins);
        for (uint32_t i = 0; i < kRecords; ++i) {
          const std::span<const std::byte> record = ring.Read(r);
          uint32_t number = 0;
          std::memcpy(&number, record.data(), sizeof number);
          const bool is_right = static_cast<int64_t>(record.size()) == size_of(i) && number == i &&
                                record.back() == static_cast<std::byte>(i * 31);
          num_wrong[static_cast<size_t>(r)] += is_right ? 0 : 1;
          if (UniformAt(seed, i, 10 + r) < 0.02) std::this_thread::yield();
          ring.Release(r);
        }
      });
    }
    BroadcastRing ring(shape, memory.mapping.get(), spins);
    uint32_t num_early = 0;
    for (uint32_t i = 0; i < kRecords; ++i) {
      const std::span<std::byte> slot = ring.BeginWrite();
      for (int r = 0; r < shape.num_readers; ++r) {
        num_early += i - ring.num_released(r) < static_cast<uint32_t>(shape.num_slots) ? 0 : 1;
      }
      const int64_t bytes = size_of(i);
      slot[static_cast<size_t>(bytes) - 1] = static_cast<std::byte>(i * 31);
      std::memcpy(slot.data(), &i, sizeof i);
      ring.EndWrite(bytes);
    }
    for (std::thread& reader : readers) reader.join();
    CHECK(num_early == 0);
    for (const uint32_t wrong : num_wrong) CHECK(wrong == 0);
  }
}

TEST_CASE("broadcast ring: a reader in another process sleeps until there is a record") {
  const RingShape shape = {.num_readers = 1, .num_slots = 2, .slot_bytes = 64};
  const RingMemory memory(shape);
  const pid_t pid = fork();
  REQUIRE(pid >= 0);
  if (pid == 0) {
    BroadcastRing ring(shape, memory.mapping.get());
    const bool is_right = ReadOne(&ring, 0) == "one" && ReadOne(&ring, 0) == "two";
    _exit(is_right ? 0 : 1);
  }
  BroadcastRing ring(shape, memory.mapping.get());
  WaitUntilAsleep(pid);
  Write(&ring, "one");
  WaitUntilAsleep(pid);
  Write(&ring, "two");
  int status = -1;
  REQUIRE(waitpid(pid, &status, 0) == pid);
  CHECK(status == 0);
}

TEST_CASE("broadcast ring: a writer that waits for a dead reader ends when that is noticed") {
  const RingShape shape = {.num_readers = 2, .num_slots = 2, .slot_bytes = 64};
  const RingMemory memory(shape);
  const pid_t pid = fork();
  REQUIRE(pid >= 0);
  if (pid == 0) {
    BroadcastRing ring(shape, memory.mapping.get());
    ReadOne(&ring, 1);
    for (;;) pause();
  }
  BroadcastRing ring(shape, memory.mapping.get());
  Write(&ring, "a");
  while (ring.num_released(1) != 1) std::this_thread::yield();
  kill(pid, SIGKILL);
  ReadOne(&ring, 0);
  Write(&ring, "b");
  Write(&ring, "c");
  ReadOne(&ring, 0);
  std::thread watch([&] {
    waitpid(pid, nullptr, 0);
    BroadcastRing(shape, memory.mapping.get()).Abandon();
  });
  CHECK(ring.BeginWrite().empty());
  watch.join();
  CHECK(ring.abandoned());
  // What was written before can still be read; then there is nothing more to wait for.
  CHECK(ReadOne(&ring, 0) == "c");
  CHECK(ring.Read(0).empty());
}

}  // namespace
}  // namespace tandem
