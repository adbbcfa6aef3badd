// Two engines, one of which prefills for the other.

#include "engine_core/kv_transfer/tandem_connector.h"

#include "engine_core/scheduler/request.h"
#include "proto_msgpack/codec.h"
#include "tests/support/connector_bench.h"
#include "tests/support/files/temp_folder.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

struct Role {
  bool is_tcp = false;
  KvLoadFailurePolicy policy = KvLoadFailurePolicy::kFail;
  int32_t num_blocks = 20;
  double lease_s = 60;
  std::string model = "m";
  std::vector<std::string> peers = {};
};

std::unique_ptr<InProcessConnector> MakeTandem(const KvCache* cache, const std::string& path,
                                               const Role& role) {
  const BlockParts parts = BlockParts::Of({{.cache = cache}}).value();
  const KvShape shape = {.model = role.model,
                         .layout = "reference",
                         .hashes = "h",
                         .block_size = 4,
                         .num_parts = static_cast<uint32_t>(parts.num_parts()),
                         .block_bytes = static_cast<uint64_t>(parts.block_bytes())};
  TandemConnectorOptions options;
  options.engine_id = "e";
  options.server.address = role.is_tcp ? KvAddress{.host = "127.0.0.1"} : KvAddress{.path = path};
  options.server.lease_s = role.lease_s;
  options.server.max_leased_blocks = role.num_blocks / 2;
  options.peers = role.peers;
  auto connector = TandemConnector::Create(std::move(options), parts, shape);
  REQUIRE(connector.ok());
  return *std::move(connector);
}

class Engine : public ConnectorBench {
 public:
  explicit Engine(const TempFolder& folder, const std::string& name, const Role& role = {})
      : ConnectorBench(
            [&](const KvCache* cache) { return MakeTandem(cache, folder.PathOf(name), role); },
            {.num_blocks = role.num_blocks, .policy = role.policy}) {}

  // The response's kv_transfer_params to the request of a proxy; the blocks may stay.
  wire::RawValue Prefill(const RequestId& id, int32_t num_tokens, TokenId first_token = 0,
                         const RequestNeeds& needs = {}) {
    wire::EngineCoreRequest request = CountingRequest(id, num_tokens, 1, first_token);
    wire::RawValue params;
    params.packed = "\x81" + wire::PackedString("do_remote_decode").packed + "\xc3";
    request.sampling_params.extra_args = ExtraArgs(params);
    REQUIRE(scheduler().Add(std::move(request), now(), needs).ok());
    while (scheduler().pending_work() == Work::kRequests) {
      Step();
      for (auto& record : TakeRecords(&outputs(), now())) {
        if (record.kv_transfer_params) params = *record.kv_transfer_params;
      }
    }
    return params;
  }
  // Returns the tokens that were read; -1: it failed.
  int64_t Decode(const RequestId& id, int32_t num_tokens, const wire::RawValue& params,
                 TokenId first_token = 0, const RequestNeeds& needs = {}) {
    wire::EngineCoreRequest request = CountingRequest(id, num_tokens, 3, first_token);
    request.sampling_params.extra_args = ExtraArgs(params);
    return Run(std::move(request), needs);
  }
  void Refuse(const RequestId& id, const wire::RawValue& params) {
    scheduler().OnRefused(id, ExtraArgs(params));
  }
  // At once; the tokens that each has read and found here.
  std::vector<std::pair<int64_t, int64_t>> DecodeAll(const std::vector<RequestId>& ids,
                                                     int32_t num_tokens,
                                                     const wire::RawValue& params) {
    for (const RequestId& id : ids) {
      wire::EngineCoreRequest request = CountingRequest(id, num_tokens, 3);
      request.sampling_params.extra_args = ExtraArgs(params);
      REQUIRE(scheduler().Add(std::move(request), now()).ok());
    }
    std::vector<std::pair<int64_t, int64_t>> counts;
    for (int i = 0; i < 20000 && scheduler().pending_work() != Work::kNone; ++i) {
      Step();
      for (const auto& record : TakeRecords(&outputs(), now())) {
        const auto& stats = record.prefill_stats;
        if (stats)
          counts.emplace_back(stats->num_external_cached_tokens, stats->num_local_cached_tokens);
      }
    }
    return counts;
  }
  bool failed() const { return last().finish_reason == wire::FinishReason::kError; }
  // Until nobody reads any block.
  void WaitForReaders() {
    for (int i = 0; i < 60000 && scheduler().pending_work() != Work::kNone; ++i) Step();
    CHECK(scheduler().pending_work() == Work::kNone);
  }

 private:
  static wire::RawValue ExtraArgs(const wire::RawValue& params) {
    wire::RawValue args;
    args.packed = "\x81" + wire::PackedString("kv_transfer_params").packed + params.packed;
    return args;
  }
};

// With the last digit of its ticket changed.
wire::RawValue Forged(wire::RawValue params) {
  const size_t key = params.packed.find("remote_ticket");
  REQUIRE(key != std::string::npos);
  char& digit = params.packed[key + std::string("remote_ticket").size() + 2 + 47];
  digit = digit == '0' ? '1' : '0';
  return params;
}

TEST_CASE("tandem connector: what one engine has prefilled another one decodes") {
  const TempFolder folder;
  const Role role = {.is_tcp = GENERATE(false, true)};
  Engine prefill(folder, "p", role), decode(folder, "d", role);
  for (int round = 0; round < 3; ++round) {
    const TokenId first = 100 * round;
    const wire::RawValue params = prefill.Prefill("p" + std::to_string(round), 30, first);
    CHECK(decode.Decode("d" + std::to_string(round), 30, params, first) == 28);
    CHECK(decode.TakeSources() == wire::CountsByName{{"p2p", 28}});
    prefill.WaitForReaders();
  }
}

TEST_CASE("tandem connector: a response names the engine, the place and the blocks") {
  const TempFolder folder;
  Engine prefill(folder, "p");
  const wire::RawValue packed = prefill.Prefill("a", 30);
  wire::RawValue args;
  args.packed = "\x81" + wire::PackedString("kv_transfer_params").packed + packed.packed;
  const KvTransferParams params = ReadKvTransferParams(args);
  CHECK(params.do_remote_prefill);
  CHECK_FALSE(params.do_remote_decode);
  CHECK(params.remote_host == "unix:" + folder.PathOf("p"));
  CHECK(params.remote_port == 0);
  CHECK(params.remote_num_tokens == 28);
  CHECK(KvTicket::FromHex(params.remote_ticket).has_value());
  CHECK(packed.packed.find("remote_block_ids") != std::string::npos);
}

TEST_CASE("tandem connector: prompts at the edges of blocks, and one of less than a block") {
  const TempFolder folder;
  Engine prefill(folder, "p"), decode(folder, "d");
  const int32_t size = GENERATE(2, 4, 5, 8, 9);
  const wire::RawValue params = prefill.Prefill("a", size);
  CHECK(decode.Decode("a", size, params) == (size - 1) / 4 * 4);
  prefill.WaitForReaders();
}

TEST_CASE("tandem connector: what the reader's own cache has is not read again") {
  const TempFolder folder;
  Engine prefill(folder, "p"), decode(folder, "d");
  CHECK(decode.Ask(13, 0) == 0);
  CHECK(decode.Decode("a", 30, prefill.Prefill("a", 30)) == 16);
  prefill.WaitForReaders();
  CHECK(decode.Decode("b", 30, prefill.Prefill("b", 30)) == 0);  // all of it is there
  prefill.WaitForReaders();
}

TEST_CASE("tandem connector: a forged ticket, another prompt or model fail the request") {
  const TempFolder folder;
  Engine prefill(folder, "p"), decode(folder, "d"), other(folder, "o", {.model = "n"});
  const wire::RawValue params = prefill.Prefill("a", 30);
  CHECK(decode.Decode("a", 30, Forged(params)) == -1);
  CHECK(decode.failed());
  CHECK(decode.Decode("b", 30, params, 500) == -1);  // other tokens
  CHECK(decode.failed());
  CHECK(other.Decode("a", 30, params) == -1);
  CHECK(other.failed());
}

TEST_CASE("tandem connector: KV of an adapter is that of the same files alone") {
  const TempFolder folder;
  Engine prefill(folder, "p"), decode(folder, "d");
  const auto with = [](const std::string& name, uint64_t digest) {
    return RequestNeeds{.adapter = {.id = 1, .name = name, .path = "/a", .digest = digest}};
  };
  const wire::RawValue params = prefill.Prefill("a", 30, 0, with("x", 7));
  CHECK(decode.Decode("other name", 30, params, 0, with("y", 7)) == -1);
  CHECK(decode.Decode("other files", 30, params, 0, with("x", 8)) == -1);
  CHECK(decode.Decode("no adapter", 30, params) == -1);
  const wire::RawValue again = prefill.Prefill("b", 30, 0, with("x", 7));
  CHECK(decode.Decode("same", 30, again, 0, with("x", 7)) == 28);
  prefill.WaitForReaders();
}

TEST_CASE("tandem connector: with recompute a failed read costs a computation alone") {
  const TempFolder folder;
  Engine prefill(folder, "p"), decode(folder, "d", {.policy = KvLoadFailurePolicy::kRecompute});
  decode.Decode("a", 30, Forged(prefill.Prefill("a", 30)));
  CHECK_FALSE(decode.failed());
}

TEST_CASE("tandem connector: params without a place, and nobody at it, fail the request") {
  const TempFolder folder;
  Engine decode(folder, "d");
  wire::RawValue params;
  params.packed = "\x81" + wire::PackedString("do_remote_prefill").packed + "\xc3";
  CHECK(decode.Decode("a", 30, params) == -1);
  CHECK(decode.failed());
  wire::RawValue gone;
  {
    Engine prefill(folder, "p");
    gone = prefill.Prefill("a", 30);
  }
  CHECK(decode.Decode("b", 30, gone) == -1);
  CHECK(decode.failed());
}

TEST_CASE("tandem connector: engines that are no peers are not asked") {
  const TempFolder folder;
  Engine prefill(folder, "p"), decode(folder, "d", {.peers = {"unix:/elsewhere"}}),
      friendly(folder, "f", {.peers = {"unix:" + folder.PathOf("p")}});
  const wire::RawValue params = prefill.Prefill("a", 30);
  CHECK(decode.Decode("a", 30, params) == -1);
  CHECK(decode.failed());
  CHECK(friendly.Decode("a", 30, params) == 28);
}

TEST_CASE("tandem connector: the choices of a prompt read it once") {
  const TempFolder folder;
  const Role role = {.num_blocks = 40};
  Engine prefill(folder, "p", role), decode(folder, "d", role);
  using Counts = std::vector<std::pair<int64_t, int64_t>>;
  const auto params = prefill.Prefill("a", 30);
  CHECK(decode.DecodeAll({"0", "1", "2"}, 30, params) == Counts{{28, 0}, {0, 28}, {0, 28}});
  prefill.WaitForReaders();
}

TEST_CASE("tandem connector: the choices of a prompt are held by one lease") {
  const TempFolder folder;
  Engine prefill(folder, "p"), decode(folder, "d");
  const wire::RawValue params = prefill.Prefill("0_a", 30);
  CHECK(prefill.Prefill("1_a", 30) == params);
  CHECK(decode.Decode("d", 30, params) == 28);
  prefill.WaitForReaders();
  CHECK(prefill.Prefill("2_a", 30) != params);  // one that comes after its end
}

TEST_CASE("tandem connector: a lease that nobody reads ends, and its blocks are free") {
  const TempFolder folder;
  Engine prefill(folder, "p", {.lease_s = 0.1}), decode(folder, "d");
  const wire::RawValue params = prefill.Prefill("a", 30);
  CHECK(prefill.scheduler().pending_work() != Work::kNone);
  prefill.WaitForReaders();
  CHECK(decode.Decode("a", 30, params) == -1);
  CHECK(decode.failed());
}

TEST_CASE("tandem connector: leases beyond half of the cache end, the oldest first") {
  const TempFolder folder;
  Engine prefill(folder, "p"), decode(folder, "d");
  const wire::RawValue first = prefill.Prefill("a", 30), second = prefill.Prefill("b", 30, 100);
  CHECK(decode.Decode("a", 30, first) == -1);
  CHECK(decode.Decode("b", 30, second, 100) == 28);
  prefill.WaitForReaders();
}

TEST_CASE("tandem connector: a lease that a client gives up ends") {
  const TempFolder folder;
  Engine prefill(folder, "p"), decode(folder, "d");
  const wire::RawValue params = prefill.Prefill("a", 30);
  prefill.Step();  // reports its end
  CHECK(prefill.scheduler().pending_work() == Work::kPromises);
  CHECK_FALSE(prefill.scheduler().Abort("stranger"));
  CHECK_FALSE(prefill.scheduler().Abort("a"));  // it has ended
  prefill.WaitForReaders();
  CHECK(decode.Decode("a", 30, params) == -1);
}

TEST_CASE("tandem connector: a request that is aborted while it waits releases its lease") {
  const TempFolder folder;
  Engine prefill(folder, "p"), decode(folder, "d");
  wire::EngineCoreRequest request = CountingRequest("a", 30, 3);
  const wire::RawValue params = prefill.Prefill("a", 30);
  request.sampling_params.extra_args.packed =
      "\x81" + wire::PackedString("kv_transfer_params").packed + params.packed;
  const bool has_begun = GENERATE(false, true);
  REQUIRE(decode.scheduler().Add(std::move(request), decode.now()).ok());
  if (has_begun) decode.Step();
  CHECK(decode.scheduler().Abort("a"));
  decode.WaitForReaders();
  prefill.WaitForReaders();
}

TEST_CASE("tandem connector: a request that is refused releases its lease") {
  const TempFolder folder;
  Engine prefill(folder, "p"), decode(folder, "d");
  decode.Refuse("a", prefill.Prefill("a", 30));
  prefill.WaitForReaders();
}

TEST_CASE("tandem connector: a request without params is left alone, and not held") {
  const TempFolder folder;
  Engine prefill(folder, "p"), decode(folder, "d");
  CHECK(prefill.Ask(30, 0) == 0);
  CHECK(prefill.scheduler().pending_work() == Work::kNone);
  CHECK(decode.Ask(30, 0) == 0);
}

}  // namespace
}  // namespace tandem
