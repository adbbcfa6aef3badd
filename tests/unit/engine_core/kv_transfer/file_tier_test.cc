#include <filesystem>
#include <set>

#include "engine_core/kv_transfer/offloading_connector.h"
#include "proto_msgpack/offload_series.h"
#include "tests/support/connector_bench.h"
#include "tests/support/files/temp_folder.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

namespace fs = std::filesystem;
namespace offload = wire::offload;

constexpr int64_t kFileBytes = 4096;

// An engine whose cache has 11 blocks, whose host memory has so many, over files of a folder.
class Engine {
 public:
  explicit Engine(const TempFolder& root, int num_host_blocks = 12, int num_files = 100,
                  const std::string& facts = "{}", int num_readers = 2) {
    bench_ = std::make_unique<ConnectorBench>([&](const KvCache* cache) {
      auto folder =
          BlockFolder::Open(BlockFolderBase(root.path(), "m", facts), facts, kSmallKvBlockBytes);
      REQUIRE(folder.ok());
      auto made = OffloadingConnector::Create(
          {.host_bytes = num_host_blocks * kSmallKvBlockBytes,
           .file_tier = FileTierConfig{.root = root.path(),
                                       .max_bytes = num_files * kFileBytes,
                                       .num_readers = num_readers}},
          {{.cache = cache}}, *std::move(folder), /*reports_events=*/true);
      REQUIRE(made.ok());
      connector_ = made->get();
      return *std::move(made);
    });
    Wait([&] { return files().knows_files(); });
  }

  // Tokens that were loaded; what the request has stored is in files then.
  int64_t Ask(int32_t num_prompt_tokens, TokenId first_token) {
    const int64_t num_loaded = bench_->Ask(num_prompt_tokens, first_token);
    Wait([&] { return files().num_writing() == 0; });
    return num_loaded;
  }
  void AskWithoutWaiting(int32_t num_prompt_tokens, TokenId first_token) {
    CHECK(bench_->Ask(num_prompt_tokens, first_token) == 0);
  }
  // As often as it takes for all of its blocks to have a file.
  int64_t AskUntilInFiles(int32_t num_prompt_tokens, TokenId first_token, size_t num_files) {
    const int64_t num_loaded = Ask(num_prompt_tokens, first_token);
    for (int i = 0; i < 100 && files().num_files() < num_files; ++i) {
      Ask(num_prompt_tokens, first_token);
    }
    CHECK(files().num_files() == num_files);
    return num_loaded;
  }
  // So that neither cache nor host memory has anything of another prompt.
  void FillMemory() {
    for (const TokenId first : {1000, 2000}) bench_->Ask(44, first);
    Wait([&] { return files().num_writing() == 0; });
  }
  wire::CountsByName TakeSources() { return bench_->TakeSources(); }
  bool Reset() { return bench_->Reset(); }
  FileTier& files() { return *connector_->files(); }
  // As a reader of the events knows.
  size_t NumKnownFiles() {
    std::vector<KvCacheEvent> events;
    connector_->TakeEvents(&events);
    for (const KvCacheEvent& event : events) {
      const auto* stored = std::get_if<BlockStored>(&event);
      if (stored != nullptr && stored->medium == KvMedium::kFiles) {
        for (const BlockHash& hash : stored->block_hashes) known_.insert(hash.ToHex());
      }
      const auto* removed = std::get_if<BlockRemoved>(&event);
      const bool is_file = removed != nullptr && removed->medium == KvMedium::kFiles;
      if (is_file) CHECK(known_.erase(removed->block_hash.ToHex()) == 1);
    }
    return known_.size();
  }

  // Of a series with the label of files, its sum since the last call.
  double Take(std::string_view name) {
    const wire::RawValue packed = bench_->scheduler().TakeStats().kv_connector_stats;
    double sum = 0;
    if (packed.is_nil()) return sum;
    const auto stats = wire::UnpackKvConnectorStats(packed);
    REQUIRE(stats.ok());
    for (const wire::ConnectorSeries& one : stats->series) {
      for (const double value : one.values) sum += one.name == name ? value : 0;
    }
    return sum;
  }

 private:
  template <class Done>
  void Wait(Done done) {
    for (int i = 0; i < 20000 && !done(); ++i) {
      files().WaitBriefly();
      files().Settle();
    }
    REQUIRE(done());
  }

  std::unique_ptr<ConnectorBench> bench_;
  OffloadingConnector* connector_ = nullptr;
  std::set<std::string> known_;
};

std::vector<std::string> FilesIn(const TempFolder& root) {
  std::vector<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(root.path())) {
    if (entry.path().extension() == ".bin") files.push_back(entry.path().string());
  }
  return files;
}

TEST_CASE("file tier: events name the files that there are, from the start on") {
  const TempFolder root;
  {
    Engine engine(root, 12, /*num_files=*/9);
    engine.AskUntilInFiles(30, 0, 7);
    CHECK(engine.NumKnownFiles() == 7);
    engine.AskUntilInFiles(30, 100, 9);  // five of the first have gone
    CHECK(engine.NumKnownFiles() == 9);
  }
  Engine again(root, 12, /*num_files=*/4);
  CHECK(again.files().num_files() == 4);
  CHECK(again.NumKnownFiles() == 4);
  REQUIRE(again.Reset());
  CHECK(again.NumKnownFiles() == 0);
}

TEST_CASE("file tier: what host memory has lost comes back from files") {
  const TempFolder root;
  Engine engine(root);
  CHECK(engine.AskUntilInFiles(30, 0, 7) == 0);
  engine.FillMemory();
  (void)engine.Take(offload::kChunkHits);
  CHECK(engine.Ask(30, 0) == 28);  // the content is checked by the bench
  CHECK(engine.Take(offload::kTierReadBytes) == 7 * kSmallKvBlockBytes);
  engine.FillMemory();
  (void)engine.TakeSources();
  CHECK(engine.Ask(30, 0) == 28);
  CHECK(engine.TakeSources() == wire::CountsByName{{"disk", 28}});
}

TEST_CASE(
    "file tier: an engine that starts again finds its blocks, one of another model does not") {
  const TempFolder root;
  { CHECK(Engine(root).AskUntilInFiles(30, 0, 7) == 0); }
  {
    Engine other(root, 12, 100, "another model");
    CHECK(other.files().num_files() == 0);
    CHECK(other.Ask(30, 0) == 0);
  }
  Engine again(root);
  CHECK(again.files().num_files() == 7);
  CHECK(again.Ask(30, 0) == 28);
}

TEST_CASE("file tier: the least recently used files go when the limit is reached") {
  const TempFolder root;
  {
    Engine engine(root, 100, 8);
    CHECK(engine.Ask(30, 0) == 0);
    CHECK(engine.Ask(30, 100) == 0);
    CHECK(engine.files().num_files() == 8);
  }
  CHECK(FilesIn(root).size() <= 8);
  CHECK(Engine(root, 100, 8).Ask(30, 0) == 4);  // of the first prompt its begin is left
  Engine again(root, 100, 3);                   // a lower limit holds at once
  CHECK(again.files().num_files() == 3);
}

TEST_CASE("file tier: a file that is damaged, cut short or gone costs what follows it alone") {
  const TempFolder root;
  { CHECK(Engine(root).AskUntilInFiles(30, 0, 7) == 0); }
  const int damage = GENERATE(0, 1, 2);
  const std::string path = FilesIn(root).front();
  Engine engine(root);
  if (damage == 0) {
    std::string bytes = root.Read(fs::relative(path, root.path()).string());
    bytes[10] = static_cast<char>(bytes[10] ^ 1);
    root.Write(fs::relative(path, root.path()).string(), bytes);
  }
  if (damage == 1) fs::resize_file(path, 100);
  if (damage == 2) fs::remove(path);
  const int64_t num_loaded = engine.Ask(30, 0);  // the policy is to fail: this is no failed load
  CHECK(num_loaded < 28);
  CHECK(num_loaded % 4 == 0);
  CHECK(engine.Take(offload::kPromotionFailures) == 1);
  // Computed, stored and written again.
  CHECK(engine.AskUntilInFiles(30, 0, 7) >= 0);
  engine.FillMemory();
  CHECK(engine.Ask(30, 0) == 28);
}

TEST_CASE("file tier: a folder that cannot be written costs no request anything") {
  const TempFolder root;
  Engine engine(root);
  // Files where folders should be: each write fails.
  for (const auto& entry : fs::directory_iterator(root.path())) {
    if (!entry.path().string().ends_with("_r0")) continue;
    fs::remove_all(entry.path());
    root.Write(fs::relative(entry.path(), root.path()).string(), "");
  }
  CHECK(engine.Ask(30, 0) == 0);
  CHECK(engine.files().num_files() == 0);
  CHECK(engine.Take(offload::kCascadeFailures) > 0);
  CHECK(engine.Ask(40, 100) == 0);
  CHECK(engine.Ask(30, 0) > 0);  // from host memory
}

TEST_CASE("file tier: a disk that does not respond is waited for once") {
  const TempFolder root;
  {
    Engine engine(root, 24);
    CHECK(engine.AskUntilInFiles(30, 0, 7) == 0);
    CHECK(engine.AskUntilInFiles(30, 100, 14) == 0);
  }
  Engine engine(root, 24, 100, "{}", /*num_readers=*/0);
  (void)engine.Take(offload::kLookupAsyncDelay);
  CHECK(engine.Ask(30, 0) == 0);  // computed, and kept in host memory
  CHECK(engine.Take(offload::kLookupAsyncDelay) > 1);
  CHECK(engine.Ask(30, 100) == 0);
  CHECK(engine.Take(offload::kLookupAsyncDelay) == 0);
  CHECK(engine.Ask(30, 0) > 0);
}

TEST_CASE("file tier: what is too much for the writer waits for its turn in host memory") {
  const TempFolder root;
  Engine engine(root, 16);  // four blocks at a time
  CHECK(engine.Ask(40, 0) == 0);
  CHECK(engine.files().num_files() == 10);
  CHECK(engine.Take(offload::kBlocksDropped) == 0);
}

TEST_CASE("file tier: what host memory loses before its turn is not written") {
  const TempFolder root;
  Engine engine(root, 14);  // three blocks at a time
  engine.AskWithoutWaiting(40, 0);
  engine.AskWithoutWaiting(40, 100);  // takes the place of most of the first
  CHECK(engine.Ask(4, 200) == 0);
  CHECK(engine.files().num_files() + static_cast<size_t>(engine.Take(offload::kBlocksDropped)) ==
        21);
}

TEST_CASE("file tier: a prefix larger than host memory is loaded as far as there is room") {
  const TempFolder root;
  { CHECK(Engine(root, 12).AskUntilInFiles(40, 0, 10) == 0); }
  Engine engine(root, 6);
  CHECK(engine.Ask(40, 0) == 24);
  CHECK(engine.Take(offload::kPromotionAllocationFailures) == 1);
}

TEST_CASE("file tier: a reset removes the files") {
  const TempFolder root;
  {
    Engine engine(root);
    CHECK(engine.AskUntilInFiles(30, 0, 7) == 0);
    CHECK(engine.Reset());
    CHECK(engine.files().num_files() == 0);
    CHECK(engine.Ask(30, 0) == 0);
  }
  CHECK(FilesIn(root).size() <= 7);
}

TEST_CASE("file tier: a limit of less than a file is refused") {
  const TempFolder root;
  const std::unique_ptr<KvCache> cache = MakeSmallKvCache(4);
  for (const int64_t max_bytes : {kFileBytes - 1, kFileBytes}) {
    auto folder = BlockFolder::Open(root.path() + "/m", "{}", kSmallKvBlockBytes);
    REQUIRE(folder.ok());
    const auto made = OffloadingConnector::Create(
        {.host_bytes = kSmallKvBlockBytes,
         .file_tier = FileTierConfig{.root = root.path(), .max_bytes = max_bytes}},
        {{.cache = cache.get()}}, *std::move(folder));
    CHECK(made.ok() == (max_bytes == kFileBytes));
  }
}

}  // namespace
}  // namespace tandem
