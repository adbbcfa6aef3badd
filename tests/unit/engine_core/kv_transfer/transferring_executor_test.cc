// A sleep beside a connector: whose memory goes, and which weights may return.

#include "engine_core/kv_transfer/transferring_executor.h"

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine_core/kv_transfer/multi_connector.h"
#include "tests/support/kv_remote/small_kv_cache.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

class CountingExecutor final : public Executor {
 public:
  const ExecutorLimits& limits() const override { return limits_; }
  Status Submit(const SchedulerOutput&) override { return OkStatus(); }
  Status Collect(ModelOutput*) override { return OkStatus(); }
  Status Release(const MemoryParts& parts, bool) override {
    released.push_back(parts);
    return OkStatus();
  }
  Status Restore(const MemoryParts& parts) override {
    restored.push_back(parts);
    return OkStatus();
  }

  std::vector<MemoryParts> released, restored;

 private:
  ExecutorLimits limits_;
};

TEST_CASE("the cache stays where it is, and its pages go") {
  const std::unique_ptr<KvCache> cache = MakeSmallKvCache(2000);
  const std::span memory(MemoryOf(*cache), static_cast<size_t>(cache->num_bytes()));
  std::fill(memory.begin(), memory.end(), std::byte{7});
  CountingExecutor inner;
  MultiConnector connector(std::vector<std::unique_ptr<InProcessConnector>>{});
  TransferringExecutor executor(&inner, &connector, {.caches = {{.cache = cache.get()}}});
  REQUIRE(executor.Release({.weights = true}, false).ok());
  CHECK(memory[0] == std::byte{7});
  REQUIRE(executor.Release({.weights = true, .kv_cache = true}, false).ok());
  CHECK(std::count(memory.begin(), memory.end(), std::byte{7}) < 4096);
  // The runner keeps its cache.
  CHECK(inner.released == std::vector<MemoryParts>(2, {.weights = true}));
  REQUIRE(executor.Restore({.weights = true, .kv_cache = true}).ok());
  CHECK(inner.restored.size() == 1);
}

TEST_CASE("weights that are read again are those that the connector was made for") {
  CountingExecutor inner;
  MultiConnector connector(std::vector<std::unique_ptr<InProcessConnector>>{});
  StatusOr<std::string> current = std::string("a");
  TransferringExecutor executor(
      &inner, &connector, {.fingerprint = "a", .current_fingerprint = [&] { return current; }});
  current = std::string("b");
  REQUIRE(executor.Release({.weights = true}, /*rereads=*/false).ok());
  CHECK(executor.Restore({.weights = true}).ok());
  REQUIRE(executor.Release({.weights = true}, /*rereads=*/true).ok());
  REQUIRE(executor.Release({.weights = true}, /*rereads=*/false).ok());  // a lighter sleep after it
  CHECK(executor.Restore({.kv_cache = true}).ok());
  const Status other = executor.Restore({.weights = true});
  CHECK(other.code() == StatusCode::kFailedPrecondition);
  CHECK(other.message().find("other weights") != std::string::npos);
  current = NotFoundError("no such folder");
  CHECK(executor.Restore({.weights = true}).code() == StatusCode::kNotFound);
  current = std::string("a");
  CHECK(executor.Restore({.weights = true}).ok());
  current = std::string("b");
  REQUIRE(executor.Release({.weights = true}, /*rereads=*/false).ok());
  CHECK(executor.Restore({.weights = true}).ok());
}

}  // namespace
}  // namespace tandem
