#include "engine_core/kv_transfer/kv_transfer_config.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Catch::Contains;
using Connector = KvTransferConfig::Connector;

std::string MessageOf(const std::string& json, double gib = 0) {
  const auto config = ParseKvTransferConfig(json, gib);
  return config.ok() ? "accepted" : config.status().message();
}

TEST_CASE("kv-transfer-config: no connector without it, and with an empty object") {
  for (const char* json : {"", "{}", R"({"kv_connector": null})"}) {
    const auto config = ParseKvTransferConfig(json, 0);
    REQUIRE(config.ok());
    CHECK(config->connector == Connector::kNone);
  }
}

TEST_CASE("kv-transfer-config: vLLM's keys for offloading are read") {
  const auto config = ParseKvTransferConfig(
      R"({"kv_connector": "OffloadingConnector", "kv_role": "kv_both", "engine_id": "e",
          "kv_load_failure_policy": "recompute",
          "kv_connector_extra_config": {"cpu_bytes_to_use": 1000000, "offload_prompt_only": false,
                                        "eviction_policy": "lru"}})",
      0);
  REQUIRE(config.ok());
  CHECK(config->connector == Connector::kOffloading);
  CHECK(config->host_bytes == 1000000);
  CHECK_FALSE(config->offload_prompt_only);
  CHECK(config->engine_id == "e");
  CHECK(config->load_failure_policy == KvLoadFailurePolicy::kRecompute);
}

TEST_CASE("kv-offloading-size: the same connector in one number, and not beside another") {
  const auto config = ParseKvTransferConfig("", 0.5);
  REQUIRE(config.ok());
  CHECK(config->connector == Connector::kOffloading);
  CHECK(config->host_bytes == 512 << 20);
  CHECK(config->load_failure_policy == KvLoadFailurePolicy::kFail);
  CHECK_THAT(MessageOf(R"({"kv_connector": "OffloadingConnector"})", 1), Contains("one of them"));
}

TEST_CASE("kv-transfer-config: an error names the key, and what is not built is refused") {
  CHECK_THAT(MessageOf("{"), Contains("--kv-transfer-config"));
  CHECK_THAT(MessageOf(R"({"kv_conector": "x"})"), Contains("kv_conector"));
  CHECK_THAT(MessageOf(R"({"kv_connector": "NixlConnector"})"), Contains("NixlConnector"));
  CHECK_THAT(MessageOf(R"({"kv_role": "kv_producer"})"), Contains("kv_role"));
  CHECK_THAT(MessageOf(R"({"kv_port": 14579})"), Contains("kv_port"));
  CHECK_THAT(MessageOf(R"({"kv_load_failure_policy": "retry"})"), Contains("recompute"));
  CHECK_THAT(MessageOf(R"({"kv_connector_extra_config": {"secondary_tiers": []}})"),
             Contains("secondary_tiers"));
  CHECK_THAT(MessageOf(R"({"kv_connector_extra_config": {"cpu_bytes_to_use": -1}})"),
             Contains("above 0"));
  CHECK_THAT(MessageOf(R"({"kv_connector": "OffloadingConnector"})"), Contains("cpu_bytes_to_use"));
}

}  // namespace
}  // namespace tandem
