#include "engine_core/workers/worker_socket.h"

#include "common/packets.h"
#include "engine_core/workers/worker_processes.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

TEST_CASE("worker socket: what a worker reports arrives") {
  const WorkerReady ready =
      UnpackReady(PackReady({.status = OkStatus(), .resident_bytes = 5, .memory_end = 1 << 20}))
          .value();
  CHECK(ready.status == OkStatus());
  CHECK(ready.resident_bytes == 5);
  CHECK(ready.memory_end == 1 << 20);
  const Status failure = ResourceExhaustedError("no memory for \xff\n2 matrices");
  CHECK(UnpackReady(PackReady({.status = failure})).value().status == failure);
}

TEST_CASE("worker socket: a message fits a packet, and a short one is an error") {
  const Status failure = InternalError(std::string(1 << 20, 'x'));
  const std::string bytes = PackReady({.status = failure});
  CHECK(bytes.size() == kMaxPacketBytes);
  CHECK(UnpackReady(bytes).value().status.code() == StatusCode::kInternal);
  CHECK_FALSE(UnpackReady("").ok());
  CHECK_FALSE(UnpackReady("p").ok());
}

TEST_CASE("worker socket: orders and what becomes of them arrive, and cut ones are errors") {
  const WorkerOrder order = UnpackOrder(PackOrder({.kind = WorkerOrder::Kind::kReadAdapter,
                                                   .adapter = 1L << 40,
                                                   .name = "a/b",
                                                   .folder = "/srv/a folder"}))
                                .value();
  CHECK(order.kind == WorkerOrder::Kind::kReadAdapter);
  CHECK(order.adapter == 1L << 40);
  CHECK(order.name == "a/b");
  CHECK(order.folder == "/srv/a folder");
  CHECK(UnpackOrder(PackOrder({})).value().kind == WorkerOrder::Kind::kPing);

  const std::string longest(1 << 20, 'n');
  const std::string bytes = PackOrder({.name = longest, .folder = longest});
  CHECK(bytes.size() <= kMaxPacketBytes);
  CHECK(UnpackOrder(bytes)->name.size() == UnpackOrder(bytes)->folder.size());
  CHECK_FALSE(UnpackOrder(bytes.substr(0, bytes.size() / 4)).ok());
  CHECK_FALSE(UnpackOrder("").ok());

  const WorkerAdapter adapter = {.status = NotFoundError("no folder"), .digest = ~uint64_t{0}};
  CHECK(UnpackAdapter(PackAdapter(adapter))->status == adapter.status);
  CHECK(UnpackAdapter(PackAdapter(adapter))->digest == adapter.digest);
  CHECK_FALSE(UnpackAdapter("x").ok());
}

TEST_CASE("worker socket: modules of any number arrive as they are, and a cut list is an error") {
  AdaptableModules modules = {{"embed", {.rows = 300, .columns = 64, .is_embedding = true}}};
  for (int i = 0; i < 20'000; ++i) {
    modules["layers." + std::to_string(i) + ".q_proj"] = {.rows = i, .columns = 1L << 40};
  }
  const UniqueFd file = PackModules(modules).value();
  CHECK(UnpackModules(file.get()).value() == modules);
  CHECK(UnpackModules(PackModules({}).value().get()).value().empty());
  const std::string bytes = ReadMemoryFile(file.get()).value();
  CHECK(bytes.size() > kMaxPacketBytes);
  for (const size_t size : {size_t{0}, size_t{1}, size_t{20}, bytes.size() - 1}) {
    const UniqueFd cut = MakeMemoryFile("cut", bytes.substr(0, size)).value();
    CHECK_FALSE(UnpackModules(cut.get()).ok());
  }
}

TEST_CASE("rank names are those of vLLM's workers") {
  CHECK(RankName({.tensor = 2}, 1) == "TP1");
  CHECK(RankName({.pipeline = 3}, 2) == "PP2");
  CHECK(RankName({.tensor = 2, .pipeline = 2}, 1) == "PP0_TP1");
  CHECK(RankName({.tensor = 2, .pipeline = 2}, 2) == "PP1_TP0");
}

}  // namespace
}  // namespace tandem
