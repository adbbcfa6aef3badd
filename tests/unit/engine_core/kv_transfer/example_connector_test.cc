// Engines that share a folder of KV, and connectors beside each other.

#include "engine_core/kv_transfer/example_connector.h"

#include <filesystem>
#include <fstream>

#include "engine_core/kv_transfer/kv_transfer_params.h"
#include "engine_core/kv_transfer/multi_connector.h"
#include "engine_core/kv_transfer/offloading_connector.h"
#include "engine_core/scheduler/request.h"
#include "proto_msgpack/codec.h"
#include "tests/support/connector_bench.h"
#include "tests/support/dice.h"
#include "tests/support/environment.h"
#include "tests/support/files/temp_folder.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

namespace fs = std::filesystem;

std::unique_ptr<InProcessConnector> MakeExample(const KvCache* cache, const std::string& path,
                                                bool stores, bool loads) {
  const auto backend = MakeReferenceBackend();
  auto folder = PrefixFolder::Open(path, KvRows::Of(*backend, {{.cache = cache}}).value());
  REQUIRE(folder.ok());
  return std::make_unique<ExampleConnector>(
      ExampleConnectorOptions{.stores = stores, .loads = loads, .engine_id = "e"},
      *std::move(folder));
}

struct Role {
  bool stores = true, loads = true;
  KvLoadFailurePolicy policy = KvLoadFailurePolicy::kFail;
  int32_t num_blocks = 20;
};

class Engine : public ConnectorBench {
 public:
  explicit Engine(const TempFolder& folder, Role role = {})
      : ConnectorBench(
            [&](const KvCache* cache) {
              return MakeExample(cache, folder.path(), role.stores, role.loads);
            },
            {.num_blocks = role.num_blocks, .policy = role.policy}) {}
};

wire::RawValue ExtraArgs(const std::string& key) {
  wire::RawValue args;
  args.packed = "\x81" + wire::PackedString("kv_transfer_params").packed + "\x82" +
                wire::PackedString("remote_block_ids").packed + "\xc0" +
                wire::PackedString(key).packed + "\xc3";
  return args;
}

wire::EngineCoreRequest With(const std::string& key, int32_t num_tokens) {
  wire::EngineCoreRequest request = CountingRequest(key, num_tokens, 1);
  request.sampling_params.extra_args = ExtraArgs(key);
  return request;
}

// Cuts a file of each prefix.
void Spoil(const TempFolder& folder) {
  for (const auto& prefix : fs::directory_iterator(folder.path())) {
    fs::resize_file(prefix.path() / "model.layers.2.self_attn.attn.safetensors", 100);
  }
}

bool Failed(const ConnectorBench& bench) {
  return bench.last().finish_reason == wire::FinishReason::kError;
}

TEST_CASE("shared folder: what one engine has computed another one loads") {
  const TempFolder folder;
  Engine prefill(folder, {.loads = false}), decode(folder, {.stores = false});
  CHECK(decode.Ask(30, 0) == 0);
  CHECK(prefill.Ask(30, 100) == 0);
  CHECK(decode.Ask(30, 100, 5) == 28);
  CHECK(decode.Ask(31, 100) == 0);  // another prompt; its begin is in the cache
  CHECK(prefill.Ask(30, 0) == 0);   // the consumer has stored nothing
}

TEST_CASE("shared folder: an engine finds what its own cache has lost") {
  const TempFolder folder;
  Engine engine(folder, {.num_blocks = 12});
  CHECK(engine.Ask(40, 0) == 0);
  CHECK(engine.Ask(40, 100) == 0);
  CHECK(engine.Ask(40, 0) == 32);  // the cache has kept its first block
  CHECK_FALSE(engine.Reset());     // the files stay
}

TEST_CASE("shared folder: prompts at the edges of blocks, and one of less than a block") {
  const TempFolder folder;
  Engine prefill(folder), decode(folder);
  const int32_t size = GENERATE(4, 5, 8, 9);
  CHECK(prefill.Ask(size, 0) == 0);
  CHECK(decode.Ask(size, 0) == (size - 1) / 4 * 4);
}

TEST_CASE("shared folder: prompts with other salts are kept apart") {
  const TempFolder folder;
  Engine prefill(folder), decode(folder);
  const auto salted = [](const RequestId& id, const std::string& salt) {
    wire::EngineCoreRequest request = CountingRequest(id, 20, 1);
    request.cache_salt = salt;
    return request;
  };
  CHECK(prefill.Run(salted("a", "x")) == 0);
  CHECK(decode.Run(salted("b", "y")) == 0);
  CHECK(decode.Run(salted("c", "x")) == 16);
}

TEST_CASE("shared folder: a cut file fails its request, and is not tried again") {
  const TempFolder folder;
  Engine prefill(folder), decode(folder);
  CHECK(prefill.Ask(30, 0) == 0);
  Spoil(folder);
  CHECK(decode.Ask(30, 0) == -1);
  CHECK(Failed(decode));
  CHECK(decode.Ask(30, 0) == 0);  // computes, and stores a good one
  Engine third(folder);
  CHECK(third.Ask(30, 0) == 28);
}

TEST_CASE("shared folder: a prefix without its last file is computed, and stored whole") {
  const TempFolder folder;
  Engine prefill(folder), decode(folder), third(folder);
  CHECK(prefill.Ask(30, 0) == 0);
  fs::path last;
  for (const auto& file : fs::recursive_directory_iterator(folder.path())) {
    if (file.is_regular_file() && file.path() > last) last = file.path();
  }
  fs::remove(last);
  CHECK(decode.Ask(30, 0) == 0);
  CHECK(third.Ask(30, 0) == 28);
}

TEST_CASE("shared folder: with recompute a cut file costs a computation alone") {
  const TempFolder folder;
  Engine prefill(folder), decode(folder, {.policy = KvLoadFailurePolicy::kRecompute});
  CHECK(prefill.Ask(30, 0) == 0);
  Spoil(folder);
  decode.Ask(30, 0);
  CHECK_FALSE(Failed(decode));
  Engine third(folder);
  CHECK(third.Ask(30, 0) == 28);
}

// Cuts, removes or damages the head of some file.
void Damage(const TempFolder& folder, Dice* dice) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder.path())) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  if (files.empty()) return;
  std::ranges::sort(files);
  const fs::path& file =
      files[static_cast<size_t>(dice->Roll(0, static_cast<int>(files.size()) - 1))];
  const auto size = static_cast<int32_t>(fs::file_size(file));
  switch (dice->Roll(0, 3)) {
    case 0:
      fs::resize_file(file, static_cast<uintmax_t>(dice->Roll(0, size - 1)));
      return;
    case 1:
      fs::remove(file);
      return;
    case 2:
      fs::remove_all(file.parent_path());
      return;
    default:
      std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
      stream.seekp(dice->Roll(0, std::min(size, 80) - 1));
      stream.put(static_cast<char>(dice->Roll(0, 255)));
  }
}

TEST_CASE("shared folder: whatever becomes of its files, blocks hold what they should") {
  const uint64_t seed = FromEnvironment("TANDEM_SEED", 3);
  INFO("TANDEM_SEED=" << seed);
  Dice dice(seed);
  const TempFolder folder;
  const Role role = {.policy = KvLoadFailurePolicy::kRecompute, .num_blocks = 12};
  Engine one(folder, role), two(folder, role);
  int num_loaded = 0;
  for (int i = 0; i < 150; ++i) {
    if (dice.Chance(4)) Damage(folder, &dice);
    Engine& engine = dice.Chance(2) ? one : two;
    const int32_t size = 4 * dice.Roll(1, 10) - dice.Roll(0, 1);
    if (engine.Ask(size, 100 * dice.Roll(0, 2), dice.Roll(1, 3)) > 0) ++num_loaded;
    REQUIRE_FALSE(Failed(engine));
  }
  CHECK(num_loaded > 10);
}

TEST_CASE("shared folder: a folder that cannot be written to fails no request") {
  const TempFolder folder;
  Engine engine(folder);
  fs::remove_all(folder.path());
  CHECK(engine.Ask(30, 0) == 0);
  CHECK(engine.Ask(30, 100) == 0);
  CHECK_FALSE(Failed(engine));
  fs::create_directory(folder.path());
}

TEST_CASE("shared folder: a disk that falls behind does not get the whole cache") {
  const TempFolder folder;
  const auto backend = MakeReferenceBackend();
  const auto cache = MakeSmallKvCache(20);
  auto shared =
      PrefixFolder::Open(folder.path(), KvRows::Of(*backend, {{.cache = cache.get()}}).value());
  REQUIRE(shared.ok());
  ExampleConnector connector({.max_blocks_to_store = 5}, *std::move(shared));
  const std::vector<BlockId> table = {BlockId{1}, BlockId{2}, BlockId{3}, BlockId{4},
                                      BlockId{5}, BlockId{6}, BlockId{7}};
  const auto end = [&](const RequestId& id, int32_t num_tokens) {
    Request request(CountingRequest(id, num_tokens, 1), 0);
    request.status = wire::RequestStatus::kRunning;
    request.num_computed_tokens = num_tokens;
    return connector.OnFinished(request, wire::RequestStatus::kFinishedStopped, table).keeps_blocks;
  };
  CHECK(end("whole", 28));  // more than the limit, but nothing waits
  CHECK_FALSE(end("beyond", 9));
  KvTransferReport report;
  while (report.released.empty()) {
    connector.WaitBriefly();
    connector.Report(&report);
  }
  CHECK(end("first", 9));
  CHECK(end("second", 13));
  CHECK_FALSE(end("third", 5));
}

// A step in flight may write to a block that its request has lost since.
TEST_CASE("loads begin when the steps in flight have run") {
  const TempFolder folder;
  const auto cache = MakeSmallKvCache(20);
  Engine(folder).Ask(20, 0);
  std::unique_ptr<InProcessConnector> connector =
      MakeExample(cache.get(), folder.path(), true, true);
  SECTION("alone") {}
  SECTION("among several") {
    std::vector<std::unique_ptr<InProcessConnector>> list;
    list.push_back(std::move(connector));
    connector = std::make_unique<MultiConnector>(std::move(list));
  }
  const std::vector<BlockId> table = {BlockId{1}, BlockId{2}, BlockId{3}, BlockId{4}};
  wire::EngineCoreRequest wire = With("do_remote_prefill", 20);
  Request request(std::move(wire), 0);
  connector->OnSubmit();
  connector->OnSubmit();
  const std::optional<KvMatch> match = connector->Match(request, 0);
  REQUIRE(match);
  REQUIRE(match->num_tokens == 16);
  connector->OnAllocated(request, table, 0, *match);
  connector->OnSubmit();
  CHECK_FALSE(connector->is_busy());
  connector->OnCollect();
  CHECK_FALSE(connector->is_busy());
  connector->OnCollect();
  CHECK(connector->is_busy());
  KvTransferReport report;
  while (report.loaded.empty()) {
    connector->WaitBriefly();
    connector->Report(&report);
  }
  CHECK(report.loaded == std::vector<RequestId>{"do_remote_prefill"});
}

TEST_CASE("shared folder: a prefill returns params, and who brings them must find its KV") {
  const TempFolder folder;
  Engine prefill(folder), decode(folder),
      other(folder, {.policy = KvLoadFailurePolicy::kRecompute});
  CHECK(decode.Run(With("do_remote_prefill", 30)) == -1);  // nobody has computed it
  CHECK(Failed(decode));
  other.Run(With("do_remote_prefill", 20));
  CHECK_FALSE(Failed(other));
  CHECK(prefill.Run(With("do_remote_decode", 30)) == 0);
  REQUIRE(prefill.last().kv_transfer_params);
  CHECK(*prefill.last().kv_transfer_params == RemotePrefillParams("e", "do_remote_decode", 28));
  CHECK(decode.Run(With("do_remote_prefill", 30)) == 28);
  CHECK(prefill.Ask(30, 0) >= 0);
  CHECK_FALSE(prefill.last().kv_transfer_params);
  prefill.Run(With("do_remote_decode", 4));  // less than a block is stored of it
  CHECK_FALSE(prefill.last().kv_transfer_params);
}

TEST_CASE("shared folder: a prefill whose KV could not be stored has no params") {
  const TempFolder folder;
  const bool is_multi = GENERATE(false, true);
  ConnectorBench prefill([&](const KvCache* cache) {
    std::unique_ptr<InProcessConnector> example = MakeExample(cache, folder.path(), true, true);
    if (!is_multi) return example;
    std::vector<std::unique_ptr<InProcessConnector>> list;
    list.push_back(std::move(example));
    example = std::make_unique<MultiConnector>(std::move(list));
    return example;
  });
  fs::remove_all(folder.path());
  CHECK(prefill.Run(With("do_remote_decode", 30)) == 0);
  CHECK(prefill.last().finish_reason == wire::FinishReason::kLength);
  CHECK_FALSE(prefill.last().kv_transfer_params);
}

// Keeps blocks and outputs of all requests until it is to release them.
class HoldingConnector final : public InProcessConnector {
 public:
  std::optional<KvMatch> Match(const Request&, int32_t) override { return KvMatch{}; }
  void OnAllocated(const Request&, std::span<const BlockId>, int32_t, const KvMatch&) override {}
  KvEnding OnFinished(const Request& request, wire::RequestStatus,
                      std::span<const BlockId>) override {
    held_.push_back(request.id());
    return {.keeps_blocks = true, .holds_output = true};
  }
  void Report(KvTransferReport* report) override {
    if (releases) report->released = std::exchange(held_, {});
  }
  bool is_busy() const override { return false; }
  void WaitBriefly() override {}

  bool releases = false;

 private:
  std::vector<RequestId> held_;
};

TEST_CASE("held outputs: the last one leaves when the connector has released the blocks") {
  HoldingConnector* connector = nullptr;
  ConnectorBench bench([&](const KvCache*) {
    auto made = std::make_unique<HoldingConnector>();
    connector = made.get();
    return made;
  });
  REQUIRE(bench.scheduler().Add(CountingRequest("a", 6, 2), bench.now()).ok());
  std::vector<RequestId> finished;
  const auto step = [&] {
    bench.Step();
    return TakeRecords(&bench.outputs(), bench.now(), &finished);
  };
  CHECK(step().size() == 1);  // its first token
  for (int i = 0; i < 5; ++i) CHECK(step().empty());
  CHECK(finished.empty());
  CHECK(bench.scheduler().pending_work() == Work::kNotices);
  bool needs_step = true;
  SECTION("by then") { connector->releases = true; }
  SECTION("unless nobody wants to wait") {
    bench.scheduler().SendHeldOutputs(&bench.outputs());
    needs_step = false;
  }
  const auto records = needs_step ? step() : TakeRecords(&bench.outputs(), bench.now(), &finished);
  REQUIRE(records.size() == 1);
  CHECK(records[0].finish_reason == wire::FinishReason::kLength);
  CHECK(records[0].new_token_ids.size() == 1);
  CHECK(finished == std::vector<RequestId>{"a"});
  connector->releases = true;
  CHECK(step().empty());
  CHECK(bench.scheduler().pending_work() == Work::kNone);
}

TEST_CASE("held outputs: an abort drops them, and the client learns of the end") {
  HoldingConnector* connector = nullptr;
  ConnectorBench bench([&](const KvCache*) {
    auto made = std::make_unique<HoldingConnector>();
    connector = made.get();
    return made;
  });
  REQUIRE(bench.scheduler().Add(CountingRequest("a", 6, 1), bench.now()).ok());
  std::vector<RequestId> finished;
  const auto step = [&] {
    bench.Step();
    return TakeRecords(&bench.outputs(), bench.now(), &finished);
  };
  for (int i = 0; i < 3; ++i) CHECK(step().empty());
  SECTION("of the request") {
    CHECK_FALSE(bench.scheduler().Abort("b"));
    CHECK(bench.scheduler().Abort("a"));
    CHECK_FALSE(bench.scheduler().Abort("a"));
  }
  SECTION("of its client") { bench.scheduler().AbortClient(0); }
  connector->releases = true;
  CHECK(step().empty());
  CHECK(finished == std::vector<RequestId>{"a"});
  CHECK(bench.scheduler().pending_work() == Work::kNone);
}

TEST_CASE("kv_transfer_params: what is not a map with true in it says nothing") {
  const auto read = [](std::string packed) {
    const KvTransferParams params = ReadKvTransferParams({std::move(packed)});
    return params.do_remote_decode || params.do_remote_prefill;
  };
  const std::string good = ExtraArgs("do_remote_decode").packed;
  CHECK(read(good));
  for (size_t size = 0; size < good.size(); ++size) CHECK_FALSE(read(good.substr(0, size)));
  std::string no = good;
  no.back() = '\xc2';
  CHECK_FALSE(read(no));
  CHECK_FALSE(read("\x81" + wire::PackedString("kv_transfer_params").packed + "\xc0"));
  CHECK_FALSE(read("\x81\x01\xc3"));
}

TEST_CASE("several connectors: loads from the first that has it, stores to all") {
  const TempFolder folder;
  const auto both = [&](const KvCache* cache) {
    std::vector<std::unique_ptr<InProcessConnector>> list;
    list.push_back(MakeExample(cache, folder.path(), true, true));
    list.push_back(
        OffloadingConnector::Create({.host_bytes = 100 * kSmallKvBlockBytes}, {{.cache = cache}})
            .value());
    return std::make_unique<MultiConnector>(std::move(list));
  };
  ConnectorBench engine(both);
  CHECK(engine.Ask(40, 0) == 0);
  CHECK(engine.Ask(40, 100) == 0);  // the cache keeps the first block
  SECTION("the folder") {
    Engine other(folder);
    CHECK(other.Ask(40, 0) == 36);
    CHECK(engine.Ask(40, 0) == 32);
    CHECK(engine.TakeSources() == wire::CountsByName{{"disk", 32}});
  }
  SECTION("host memory, which also has a part of another prompt") {
    fs::remove_all(folder.path());
    fs::create_directory(folder.path());
    CHECK(engine.Ask(40, 0) == 36);
    CHECK(engine.TakeSources() == wire::CountsByName{{"host", 36}});
  }
  CHECK_FALSE(engine.Reset());
}

}  // namespace
}  // namespace tandem
