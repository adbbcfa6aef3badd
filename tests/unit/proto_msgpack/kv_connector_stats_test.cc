#include "proto_msgpack/kv_connector_stats.h"

#include <string>
#include <string_view>

#include <catch2/catch.hpp>

namespace tandem::wire {
namespace {

using Kind = ConnectorSeries::Kind;

// As msgpack of Python packs vLLM's dict, tuples of label values being keys.
const char kPython[] =
    "83a5747970657383ba766c6c6d3a6b765f6f66666c6f61645f6c6f61645f6279746573a7636f756e746572b9766c6c"
    "6d3a6b765f6f66666c6f61645f6c6f61645f73697a65a9686973746f6772616daa746965725f7573616765a5676175"
    "6765a46461746183ba766c6c6d3a6b765f6f66666c6f61645f6c6f61645f62797465738190ce002dc6c0b9766c6c6d"
    "3a6b765f6f66666c6f61645f6c6f61645f73697a65819092ce000f4240cb3fe0000000000000aa746965725f757361"
    "67658291a4313a6673cb3fd000000000000091a5323a6f626a01a4696e666f82ae6370755f6e756d5f6368756e6b73"
    "0ca474696572a26673";

const KvConnectorStats kStats = {
    .series = {{"vllm:kv_offload_load_bytes", Kind::kCounter, {}, {3e6}},
               {"vllm:kv_offload_load_size", Kind::kHistogram, {}, {1e6, 0.5}},
               {"tier_usage", Kind::kGauge, {"1:fs"}, {0.25}},
               {"tier_usage", Kind::kGauge, {"2:obj"}, {1}}},
    .info = {{"cpu_num_chunks", "12"}, {"tier", "fs"}}};

RawValue FromHex(std::string_view hex) {
  RawValue value;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    value.packed += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  }
  return value;
}

TEST_CASE("connector stats: vLLM's are read, and written byte for byte") {
  const StatusOr<KvConnectorStats> read = UnpackKvConnectorStats(FromHex(kPython));
  REQUIRE(read.ok());
  CHECK(*read == kStats);
  KvConnectorStats without_info = kStats;
  without_info.info.clear();
  const std::string whole = FromHex(kPython).packed;
  const size_t info = whole.find("\xa4info");
  CHECK(Packed(without_info).packed == whole.substr(0, info) + "\xa4info\xc0");
}

TEST_CASE("connector stats: those of a MultiConnector are all its connectors'") {
  const RawValue none;
  CHECK(PackedByConnector({{"ExampleConnector", none}}).is_nil());
  const RawValue both =
      PackedByConnector({{"ExampleConnector", none}, {"OffloadingConnector", Packed(kStats)}});
  const StatusOr<KvConnectorStats> read = UnpackKvConnectorStats(both);
  REQUIRE(read.ok());
  CHECK(*read == kStats);
}

TEST_CASE("connector stats: a late report loses its gauges alone") {
  const auto late = UnpackKvConnectorStats(WithoutGauges(Packed(kStats)));
  REQUIRE(late.ok());
  CHECK(late->series.size() == 2);
  CHECK(late->info == kStats.info);
  CHECK(WithoutGauges({}).is_nil());
  CHECK(WithoutGauges({"nonsense"}).is_nil());
}

TEST_CASE("connector stats: what is cut short or changed is refused or read, and no more") {
  const std::string whole = FromHex(kPython).packed;
  for (size_t size = 0; size < whole.size(); ++size) {
    CHECK_FALSE(UnpackKvConnectorStats({whole.substr(0, size)}).ok());
  }
  for (size_t i = 0; i < whole.size(); ++i) {
    for (const int change : {0x01, 0x10, 0x40, 0x80}) {
      std::string other = whole;
      other[i] = static_cast<char>(other[i] ^ change);
      (void)UnpackKvConnectorStats({other});
    }
  }
  std::string unknown_kind = whole;
  unknown_kind.replace(unknown_kind.find("gauge"), 5, "gouge");
  CHECK_FALSE(UnpackKvConnectorStats({unknown_kind}).ok());
}

}  // namespace
}  // namespace tandem::wire
