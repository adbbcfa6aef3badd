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
          "kv_connector_extra_config": {"cpu_bytes_to_use": 1000000, "offload_prompt_only": false, "self_describing_kv_events": true,
                                        "eviction_policy": "lru"}})",
      0);
  REQUIRE(config.ok());
  CHECK(config->connector == Connector::kOffloading);
  CHECK(config->host_bytes == 1000000);
  CHECK_FALSE(config->offload_prompt_only);
  CHECK(config->self_describing_kv_events);
  CHECK(config->engine_id == "e");
  CHECK(config->load_failure_policy == KvLoadFailurePolicy::kRecompute);
}

TEST_CASE("kv-transfer-config: vLLM's keys without effect here are taken") {
  const auto config = ParseKvTransferConfig(
      R"({"kv_connector": "OffloadingConnector", "kv_role": "kv_both", "kv_port": 14579,
          "kv_connector_extra_config": {"cpu_bytes_to_use": 1000000, "block_size": 64,
                                        "blocks_per_chunk": 4, "max_tracker_size": 64000,
                                        "sync_load_budget_bytes": 0, "canonical_layout": false}})",
      0);
  INFO(config.status().message());
  REQUIRE(config.ok());
  CHECK(config->host_bytes == 1000000);
}

TEST_CASE("kv-transfer-config: keys of a connector without its name are refused") {
  CHECK_THAT(MessageOf(R"({"kv_role": "kv_both"})"), Contains("kv_connector is missing"));
  CHECK_THAT(MessageOf(R"({"kv_connector_extra_config": {"cpu_bytes_to_use": 1000000}})"),
             Contains("kv_connector is missing"));
  CHECK_THAT(MessageOf(R"({"kv_role": "kv_both"})", 1), Contains("kv_connector is missing"));
}

std::string Tiered(const std::string& tiers, const std::string& spec = "TieringOffloadingSpec") {
  return R"({"kv_connector": "OffloadingConnector", "kv_connector_extra_config": {)"
         R"("cpu_bytes_to_use": 1000000, "spec_name": ")" +
         spec + R"(", "secondary_tiers": )" + tiers + "}}";
}

TEST_CASE("kv-transfer-config: vLLM's fs tier is read") {
  const auto config = ParseKvTransferConfig(
      Tiered(R"([{"type": "fs", "root_dir": "/kv", "n_read_threads": 16, "n_write_threads": 16,
                  "evictor_args": {"max_storage_size_gb": 0.5, "evictor_type": "lru"}}])"),
      0);
  REQUIRE(config.ok());
  REQUIRE(config->file_tier.has_value());
  CHECK(config->file_tier->root == "/kv");
  CHECK(config->file_tier->num_readers == 16);
  CHECK(config->file_tier->max_bytes == 512 << 20);
  const auto unbounded = ParseKvTransferConfig(Tiered(R"([{"type": "fs", "root_dir": "/kv"}])"), 0);
  REQUIRE(unbounded.ok());
  CHECK(unbounded->file_tier->max_bytes == 0);
}

TEST_CASE("kv-transfer-config: tiers that are not built are refused by what is wrong") {
  const std::string fs = R"([{"type": "fs", "root_dir": "/kv"}])";
  CHECK_THAT(MessageOf(Tiered(fs, "CPUOffloadingSpec")), Contains("go together"));
  CHECK_THAT(MessageOf(R"({"kv_connector": "OffloadingConnector", "kv_connector_extra_config":
                           {"cpu_bytes_to_use": 1, "spec_name": "TieringOffloadingSpec"}})"),
             Contains("go together"));
  CHECK_THAT(MessageOf(Tiered(R"([{"type": "obj", "root_dir": "/kv"}])")), Contains("\"obj\""));
  CHECK_THAT(MessageOf(Tiered(R"([{"type": "fs"}])")), Contains("root_dir"));
  CHECK_THAT(MessageOf(Tiered(R"([{"root_dir": "/kv"}])")), Contains("type"));
  CHECK_THAT(MessageOf(Tiered(R"([{"type": "fs", "root_dir": ""}])")), Contains("a folder"));
  CHECK_THAT(MessageOf(Tiered("[]")), Contains("a list of one object"));
  CHECK_THAT(MessageOf(Tiered(R"([{"type": "fs", "root_dir": "/", "speed": 1}])")),
             Contains("secondary_tiers has no key speed"));
  const auto with = [&](const std::string& key) {
    return MessageOf(Tiered(R"([{"type": "fs", "root_dir": "/", )" + key + "}]"));
  };
  CHECK_THAT(with(R"("n_read_threads": 0)"), Contains("from 1 to 64"));
  CHECK_THAT(with(R"("enable_secondary_tier_events": true)"), Contains("must be false"));
  CHECK_THAT(with(R"("evictor_args": {"evictor_type": "fail_on_full"})"), Contains("\"lru\""));
  CHECK_THAT(with(R"("evictor_args": {"max_storage_size_gb": 0})"), Contains("above 0"));
  CHECK_THAT(with(R"("evictor_args": {"size": 1})"), Contains("evictor_args has no key size"));
}

TEST_CASE("kv-offloading-size: the same connector in one number, and not beside another") {
  const auto config = ParseKvTransferConfig("", 0.5);
  REQUIRE(config.ok());
  CHECK(config->connector == Connector::kOffloading);
  CHECK(config->host_bytes == 512 << 20);
  CHECK(config->load_failure_policy == KvLoadFailurePolicy::kFail);
  CHECK_THAT(MessageOf(R"({"kv_connector": "OffloadingConnector"})", 1), Contains("one of them"));
}

TEST_CASE("kv-transfer-config: an ExampleConnector has a folder, a role and perhaps a subfolder") {
  const auto config = ParseKvTransferConfig(
      R"({"kv_connector": "SharedStorageConnector", "kv_role": "kv_producer",
          "kv_connector_extra_config": {"shared_storage_path": "/x", "subfolder": ""}})",
      0);
  REQUIRE(config.ok());
  CHECK(config->connector == Connector::kExample);
  CHECK(config->stores);
  CHECK_FALSE(config->loads);
  CHECK(config->shared_folder == "/x");
  CHECK(config->subfolder == "");
  const auto plain = ParseKvTransferConfig(
      R"({"kv_connector": "ExampleConnector", "kv_role": "kv_consumer",
          "kv_connector_extra_config": {"shared_storage_path": "/x"}})",
      0);
  REQUIRE(plain.ok());
  CHECK_FALSE(plain->stores);
  CHECK_FALSE(plain->subfolder);
  CHECK_THAT(MessageOf(R"({"kv_connector": "ExampleConnector"})"), Contains("shared_storage_path"));
  CHECK_THAT(MessageOf(R"({"kv_connector": "ExampleConnector",
                           "kv_connector_extra_config": {"subfolder": "../x"}})"),
             Contains("subfolder"));
  CHECK_THAT(MessageOf(R"({"kv_connector": "ExampleConnector",
                           "kv_connector_extra_config": {"cpu_bytes_to_use": 1}})"),
             Contains("cpu_bytes_to_use"));
}

TEST_CASE("kv-transfer-config: a TandemConnector has a role, and listens if it holds KV") {
  const auto tandem = [](const std::string& role, const std::string& extra) {
    return R"({"kv_connector": "TandemConnector", "kv_role": ")" + role +
           R"(", "kv_connector_extra_config": {)" + extra + "}}";
  };
  const auto config = ParseKvTransferConfig(
      tandem("kv_producer", R"("listen": "tcp://10.0.0.1:5", "insecure_tcp": true, "lease_s": 2)"),
      0);
  REQUIRE(config.ok());
  CHECK(config->connector == Connector::kTandem);
  CHECK(config->listen.ToString() == "tcp://10.0.0.1:5");
  CHECK(config->lease_s == 2);
  CHECK_FALSE(config->loads);
  const auto reader = ParseKvTransferConfig(tandem("kv_consumer", R"("peers": ["unix:/a"])"), 0);
  REQUIRE(reader.ok());
  CHECK_FALSE(reader->stores);
  CHECK(reader->peers == std::vector<std::string>{"unix:/a"});

  const auto refusal = [&](const std::string& role, const std::string& extra) {
    return MessageOf(tandem(role, extra));
  };
  CHECK_THAT(refusal("kv_both", R"("listen": "tcp://10.0.0.1:5")"), Contains("insecure_tcp"));
  CHECK(refusal("kv_both", R"("listen": "tcp://127.0.0.1:5")") == "accepted");
  CHECK_THAT(refusal("kv_both", ""), Contains("listen"));
  CHECK_THAT(refusal("kv_both", R"("listen": "x")"), Contains("tcp://host:port"));
  CHECK_THAT(refusal("kv_both", R"("listen": 5)"), Contains("listen"));
  CHECK_THAT(refusal("kv_consumer", R"("listen": "unix:/x")"), Contains("no listen"));
  CHECK_THAT(refusal("kv_producer", R"("listen": "unix:/x", "peers": ["a"])"),
             Contains("no peers"));
  CHECK_THAT(refusal("kv_consumer", R"("peers": [])"), Contains("peers"));
  CHECK_THAT(refusal("kv_consumer", R"("peers": [1])"), Contains("peers"));
  CHECK_THAT(refusal("kv_consumer", R"("lease_s": 0)"), Contains("lease_s"));
  CHECK_THAT(refusal("kv_consumer", R"("insecure_tcp": 1)"), Contains("insecure_tcp"));
  CHECK_THAT(refusal("kv_consumer", R"("shared_storage_path": "/x")"),
             Contains("shared_storage_path"));
  CHECK_THAT(MessageOf(R"({"kv_connector": "NixlConnector"})"), Contains("TandemConnector"));
}

TEST_CASE("kv-transfer-config: a MultiConnector has connectors, each with its own keys") {
  const std::string example =
      R"({"kv_connector": "ExampleConnector", "kv_role": "kv_consumer",
          "kv_connector_extra_config": {"shared_storage_path": "/x"}})";
  const auto multi = [](const std::string& list) {
    return R"({"kv_connector": "MultiConnector", "kv_role": "kv_both", "engine_id": "e",
               "kv_connector_extra_config": {"connectors": )" +
           list + "}}";
  };
  const auto config =
      ParseKvTransferConfig(multi("[" + example + R"(, {"kv_connector": "OffloadingConnector",
                              "kv_connector_extra_config": {"cpu_bytes_to_use": 7}}])"),
                            0);
  REQUIRE(config.ok());
  REQUIRE(config->connectors.size() == 2);
  CHECK(config->connectors[0].connector == Connector::kExample);
  CHECK(config->connectors[0].engine_id == "e");
  CHECK_FALSE(config->connectors[0].stores);
  CHECK(config->connectors[1].host_bytes == 7);
  CHECK(config->Has(Connector::kExample));
  CHECK_FALSE(config->connectors[1].Has(Connector::kExample));
  CHECK_THAT(MessageOf(R"({"kv_connector": "MultiConnector"})"), Contains("connectors"));
  CHECK_THAT(MessageOf(multi("[]")), Contains("connectors"));
  CHECK_THAT(MessageOf(multi("[1]")), Contains("connectors"));
  CHECK_THAT(MessageOf(multi("[{}]")), Contains("kv_connector"));
  CHECK_THAT(MessageOf(multi(R"([{"kv_connector": "OffloadingConnector"}])")),
             Contains("cpu_bytes_to_use"));
  CHECK_THAT(MessageOf(multi("[" + multi("[" + example + "]") + "]")), Contains("kv_connector"));
  CHECK_THAT(MessageOf(multi("[" + example + R"(, {"kv_connector": "TandemConnector",
                             "kv_role": "kv_consumer"}])")),
             Contains("do_remote_decode"));
  CHECK_THAT(MessageOf(multi(R"([{"kv_load_failure_policy": "fail"}])")),
             Contains("kv_load_failure_policy"));
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
