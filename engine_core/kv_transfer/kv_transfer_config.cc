#include "engine_core/kv_transfer/kv_transfer_config.h"

#include <nlohmann/json.hpp>

#include "engine_core/weights/json_file.h"

namespace tandem {
namespace {

using Json = nlohmann::json;
using Connector = KvTransferConfig::Connector;

constexpr char kFlag[] = "--kv-transfer-config: ";
constexpr double kGiB = 1024.0 * 1024 * 1024;

Status WrongValue(const std::string& key, const Json& value, const std::string& allowed) {
  const std::string shown = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  return InvalidArgumentError(kFlag + key + " is " + shown + ", must be " + allowed);
}

// For what happens anyway.
Status Only(const std::string& key, const Json& value, const Json& allowed) {
  return value == allowed ? OkStatus() : WrongValue(key, value, allowed.dump());
}

Status SetConnector(const Json& value, KvTransferConfig* config) {
  if (value.is_null()) return OkStatus();
  if (value != "OffloadingConnector") {
    return WrongValue("kv_connector", value, "\"OffloadingConnector\"; others are not built");
  }
  config->connector = Connector::kOffloading;
  return OkStatus();
}

Status SetFailurePolicy(const std::string& key, const Json& value, KvTransferConfig* config) {
  if (value != "fail" && value != "recompute") {
    return WrongValue(key, value, "\"fail\" or \"recompute\"");
  }
  config->load_failure_policy =
      value == "fail" ? KvLoadFailurePolicy::kFail : KvLoadFailurePolicy::kRecompute;
  return OkStatus();
}

Status SetExtra(const std::string& key, const Json& value, KvTransferConfig* config) {
  if (key == "spec_name") return Only(key, value, "CPUOffloadingSpec");
  if (key == "eviction_policy") return Only(key, value, "lru");
  if (key == "blocks_per_chunk" || key == "store_threshold") return Only(key, value, 1);
  if (key == "offload_prompt_only") {
    if (!value.is_boolean()) return WrongValue(key, value, "true or false");
    config->offload_prompt_only = value.get<bool>();
    return OkStatus();
  }
  if (key == "cpu_bytes_to_use") {
    if (!value.is_number() || value <= 0 || value > 1e15) {
      return WrongValue(key, value, "a number of bytes above 0");
    }
    config->host_bytes = static_cast<int64_t>(value.get<double>());
    return OkStatus();
  }
  return InvalidArgumentError(std::string(kFlag) + "kv_connector_extra_config has no key " + key);
}

Status SetKey(const std::string& key, const Json& value, KvTransferConfig* config) {
  if (key == "kv_connector") return SetConnector(value, config);
  if (key == "kv_load_failure_policy") return SetFailurePolicy(key, value, config);
  if (key == "kv_role") return Only(key, value, "kv_both");
  if (key == "enable_permute_local_kv") return Only(key, value, false);
  if (key == "kv_connector_module_path") return Only(key, value, nullptr);
  if (key == "kv_buffer_device") return Only(key, value, "cpu");
  if (key == "engine_id") {
    if (!value.is_string()) return WrongValue(key, value, "a string");
    config->engine_id = value.get<std::string>();
    return OkStatus();
  }
  if (key == "kv_connector_extra_config") {
    if (!value.is_object()) return WrongValue(key, value, "an object");
    for (const auto& [name, extra] : value.items()) RETURN_IF_ERROR(SetExtra(name, extra, config));
    return OkStatus();
  }
  return InvalidArgumentError(std::string(kFlag) + "no key is called " + key);
}

}  // namespace

StatusOr<KvTransferConfig> ParseKvTransferConfig(const std::string& json, double offloading_gib) {
  KvTransferConfig config;
  if (!json.empty()) {
    const StatusOr<Json> object = ParseJsonObject(json);
    if (!object.ok()) return object.status().WithContext("--kv-transfer-config");
    for (const auto& [key, value] : object->items()) RETURN_IF_ERROR(SetKey(key, value, &config));
  }
  if (offloading_gib > 0) {
    if (config.connector != Connector::kNone) {
      return InvalidArgumentError(
          "--kv-offloading-size and --kv-transfer-config both name a connector; give one of them");
    }
    config.connector = Connector::kOffloading;
    config.host_bytes = static_cast<int64_t>(offloading_gib * kGiB);
  }
  if (config.connector == Connector::kOffloading && config.host_bytes == 0) {
    return InvalidArgumentError(
        "--kv-transfer-config: the OffloadingConnector wants cpu_bytes_to_use in "
        "kv_connector_extra_config, the bytes of host memory for KV blocks");
  }
  return config;
}

}  // namespace tandem
