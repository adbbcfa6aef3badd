#include "engine_core/kv_transfer/kv_transfer_config.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "common/log.h"
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

Status NoEffect(const std::string& key, const char* why) {
  LOG_WARNING << kFlag << key << " has no effect: " << why;
  return OkStatus();
}

Status SetConnector(const Json& value, KvTransferConfig* config) {
  if (value.is_null()) return OkStatus();
  if (value == "OffloadingConnector") {
    config->connector = Connector::kOffloading;
  } else if (value == "ExampleConnector" || value == "SharedStorageConnector") {
    config->connector = Connector::kExample;
  } else if (value == "TandemConnector") {
    config->connector = Connector::kTandem;
  } else if (value == "MultiConnector") {
    config->connector = Connector::kMulti;
  } else if (value.is_string() && value.get<std::string>().starts_with("Nixl")) {
    return WrongValue("kv_connector", value,
                      "\"TandemConnector\", which passes KV between Tandem's engines with the same "
                      "kv_transfer_params; NIXL is not built");
  } else {
    return WrongValue("kv_connector", value,
                      "\"ExampleConnector\", \"OffloadingConnector\", \"TandemConnector\" or "
                      "\"MultiConnector\"; others are not built");
  }
  return OkStatus();
}

Status SetRole(const Json& value, KvTransferConfig* config) {
  if (value != "kv_both" && value != "kv_producer" && value != "kv_consumer") {
    return WrongValue("kv_role", value, "\"kv_producer\", \"kv_consumer\" or \"kv_both\"");
  }
  config->stores = value != "kv_consumer";
  config->loads = value != "kv_producer";
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

Status SetString(const std::string& key, const Json& value, std::string* out) {
  if (!value.is_string()) return WrongValue(key, value, "a string");
  *out = value.get<std::string>();
  return OkStatus();
}

Status NoSuchExtra(const std::string& key) {
  return InvalidArgumentError(std::string(kFlag) + "kv_connector_extra_config has no key " + key);
}

Status SetEvictor(const Json& value, FileTierConfig* tier) {
  if (!value.is_object()) return WrongValue("evictor_args", value, "an object");
  for (const auto& [key, one] : value.items()) {
    if (key == "evictor_type") {
      RETURN_IF_ERROR(Only(key, one, "lru"));
    } else if (key != "max_storage_size_gb") {
      return InvalidArgumentError(std::string(kFlag) + "evictor_args has no key " + key);
    } else if (!one.is_number() || one <= 0 || one > 1e6) {
      return WrongValue(key, one, "a number of GiB above 0");
    } else {
      tier->max_bytes = static_cast<int64_t>(one.get<double>() * kGiB);
    }
  }
  return OkStatus();
}

Status SetTierKey(const std::string& key, const Json& value, FileTierConfig* tier) {
  if (key == "type") return Only(key, value, "fs");
  if (key == "root_dir") {
    RETURN_IF_ERROR(SetString(key, value, &tier->root));
    return tier->root.empty() ? WrongValue(key, value, "a folder") : OkStatus();
  }
  if (key == "n_read_threads") {
    if (!value.is_number_integer() || value < 1 || value > 64) {
      return WrongValue(key, value, "an integer from 1 to 64");
    }
    tier->num_readers = value.get<int>();
    return OkStatus();
  }
  if (key == "n_write_threads") {
    return value == 1 ? OkStatus() : NoEffect(key, "one thread writes");
  }
  if (key == "enable_secondary_tier_events") return Only(key, value, false);
  if (key == "evictor_args") return SetEvictor(value, tier);
  return InvalidArgumentError(std::string(kFlag) + "secondary_tiers has no key " + key);
}

Status SetTiers(const Json& value, KvTransferConfig* config) {
  if (!value.is_array() || value.size() != 1 || !value[0].is_object()) {
    return WrongValue("secondary_tiers", value, "a list of one object");
  }
  FileTierConfig tier;
  for (const auto& [key, one] : value[0].items()) RETURN_IF_ERROR(SetTierKey(key, one, &tier));
  if (!value[0].contains("type") || tier.root.empty()) {
    return WrongValue("secondary_tiers", value, "a list of an object with type and root_dir");
  }
  config->file_tier = std::move(tier);
  return OkStatus();
}

Status SetOffloadingExtra(const std::string& key, const Json& value, KvTransferConfig* config) {
  if (key == "secondary_tiers") return SetTiers(value, config);
  if (key == "spec_name") {
    config->is_tiered = value == "TieringOffloadingSpec";
    if (config->is_tiered || value == "CPUOffloadingSpec") return OkStatus();
    return WrongValue(key, value, "\"CPUOffloadingSpec\" or \"TieringOffloadingSpec\"");
  }
  if (key == "eviction_policy") return Only(key, value, "lru");
  if (key == "store_threshold") return Only(key, value, 1);
  if (key == "max_tracker_size") return NoEffect(key, "all blocks are stored when offered first");
  if (key == "block_size" || key == "blocks_per_chunk") {
    return value == 1 ? OkStatus() : NoEffect(key, "each KV block is stored by itself");
  }
  if (key == "sync_load_budget_bytes") return NoEffect(key, "no step waits for a load");
  if (key == "canonical_layout") return Only(key, value, false);
  if (key == "offload_prompt_only" || key == "self_describing_kv_events") {
    if (!value.is_boolean()) return WrongValue(key, value, "true or false");
    const bool is_prompt_only = key == "offload_prompt_only";
    (is_prompt_only ? config->offload_prompt_only : config->self_describing_kv_events) =
        value.get<bool>();
    return OkStatus();
  }
  if (key == "cpu_bytes_to_use") {
    if (!value.is_number() || value <= 0 || value > 1e15) {
      return WrongValue(key, value, "a number of bytes above 0");
    }
    config->host_bytes = static_cast<int64_t>(value.get<double>());
    return OkStatus();
  }
  return NoSuchExtra(key);
}

Status SetExampleExtra(const std::string& key, const Json& value, KvTransferConfig* config) {
  if (key == "shared_storage_path") {
    RETURN_IF_ERROR(SetString(key, value, &config->shared_folder));
    return config->shared_folder.empty() ? WrongValue(key, value, "a folder") : OkStatus();
  }
  if (key == "subfolder") {
    std::string name;
    RETURN_IF_ERROR(SetString(key, value, &name));
    if (name.find('/') != std::string::npos || name == "." || name == "..") {
      return WrongValue(key, value,
                        "the name of a folder, or empty for shared_storage_path itself");
    }
    config->subfolder = std::move(name);
    return OkStatus();
  }
  return NoSuchExtra(key);
}

Status SetPeers(const std::string& key, const Json& value, KvTransferConfig* config) {
  const bool is_list = value.is_array() && !value.empty() &&
                       std::ranges::all_of(value, [](const Json& one) { return one.is_string(); });
  if (!is_list) return WrongValue(key, value, "a list of values of remote_host");
  config->peers = value.get<std::vector<std::string>>();
  return OkStatus();
}

Status SetTandemExtra(const std::string& key, const Json& value, KvTransferConfig* config) {
  if (key == "listen") {
    std::string text;
    RETURN_IF_ERROR(SetString(key, value, &text));
    StatusOr<KvAddress> address = KvAddress::Parse(text);
    if (!address.ok()) return address.status().WithContext("--kv-transfer-config: listen");
    config->listen = *std::move(address);
    return OkStatus();
  }
  if (key == "lease_s") {
    const bool fits = value.is_number() && value >= 0.1 && value <= 3600;
    if (!fits) return WrongValue(key, value, "a number of seconds in [0.1, 3600]");
    config->lease_s = value.get<double>();
    return OkStatus();
  }
  if (key == "insecure_tcp") {
    if (!value.is_boolean()) return WrongValue(key, value, "true or false");
    config->insecure_tcp = value.get<bool>();
    return OkStatus();
  }
  if (key == "peers") return SetPeers(key, value, config);
  return NoSuchExtra(key);
}

Status CheckTandem(const KvTransferConfig& config) {
  const bool has_listen = config.listen.is_unix() || !config.listen.host.empty();
  if (config.stores && !has_listen) {
    return InvalidArgumentError(std::string(kFlag) +
                                "the TandemConnector of a kv_producer or kv_both wants listen, "
                                "unix:/path or tcp://host:port, in kv_connector_extra_config");
  }
  if (!config.stores && has_listen) {
    return InvalidArgumentError(std::string(kFlag) + "a kv_consumer holds no KV and has no listen");
  }
  if (!config.loads && !config.peers.empty()) {
    return InvalidArgumentError(std::string(kFlag) + "a kv_producer reads no KV and has no peers");
  }
  if (!config.stores || config.listen.is_local() || config.insecure_tcp) return OkStatus();
  return InvalidArgumentError(
      config.listen.ToString() +
      ": KV, which is the prompts' content, would cross the network for everyone to read. A tunnel "
      "between loopback addresses encrypts it; \"insecure_tcp\": true in kv_connector_extra_config "
      "does without");
}

Status CheckComplete(const KvTransferConfig& config) {
  const auto lacks = [](const char* connector, const char* key) {
    return InvalidArgumentError(std::string(kFlag) + "the " + connector + " wants " + key +
                                " in kv_connector_extra_config");
  };
  if (config.connector == Connector::kOffloading && config.host_bytes == 0) {
    return lacks("OffloadingConnector",
                 "cpu_bytes_to_use, the bytes of host memory for KV blocks,");
  }
  if (config.is_tiered != config.file_tier.has_value()) {
    return InvalidArgumentError(std::string(kFlag) +
                                "secondary_tiers and spec_name \"TieringOffloadingSpec\" in "
                                "kv_connector_extra_config go together");
  }
  if (config.connector == Connector::kExample && config.shared_folder.empty()) {
    return lacks("ExampleConnector", "shared_storage_path, the folder of the KV,");
  }
  if (config.connector == Connector::kTandem) return CheckTandem(config);
  if (config.connector == Connector::kMulti && config.connectors.empty()) {
    return lacks("MultiConnector", "connectors, a list,");
  }
  if (config.Has(Connector::kExample) && config.Has(Connector::kTandem)) {
    return InvalidArgumentError(std::string(kFlag) +
                                "an ExampleConnector and a TandemConnector beside each other would "
                                "both reply to do_remote_decode");
  }
  return OkStatus();
}

Status SetKeys(const Json& object, KvTransferConfig* config);

Status SetMultiExtra(const std::string& key, const Json& value, KvTransferConfig* config) {
  if (key != "connectors") return NoSuchExtra(key);
  if (!value.is_array() || value.empty()) return WrongValue(key, value, "a list of connectors");
  for (const Json& object : value) {
    KvTransferConfig one = {.engine_id = config->engine_id};
    if (!object.is_object()) return WrongValue(key, value, "a list of objects");
    if (object.contains("kv_load_failure_policy")) {
      return InvalidArgumentError(std::string(kFlag) +
                                  "kv_load_failure_policy belongs to the MultiConnector, not to "
                                  "one of its connectors");
    }
    RETURN_IF_ERROR(SetKeys(object, &one));
    if (one.connector == Connector::kNone || one.connector == Connector::kMulti) {
      return WrongValue("kv_connector", object.value("kv_connector", Json()),
                        "one of the others in a MultiConnector");
    }
    RETURN_IF_ERROR(CheckComplete(one));
    config->connectors.push_back(std::move(one));
  }
  return OkStatus();
}

Status SetExtra(const std::string& key, const Json& value, KvTransferConfig* config) {
  if (config->connector == Connector::kExample) return SetExampleExtra(key, value, config);
  if (config->connector == Connector::kTandem) return SetTandemExtra(key, value, config);
  if (config->connector == Connector::kMulti) return SetMultiExtra(key, value, config);
  return SetOffloadingExtra(key, value, config);
}

// The keys come sorted, so that the connector is known before what it is given.
Status SetKey(const std::string& key, const Json& value, KvTransferConfig* config) {
  if (key == "kv_connector") return SetConnector(value, config);
  if (key == "kv_load_failure_policy") return SetFailurePolicy(key, value, config);
  if (key == "kv_role") return SetRole(value, config);
  if (key == "enable_permute_local_kv") return Only(key, value, false);
  if (key == "kv_connector_module_path") return Only(key, value, nullptr);
  if (key == "kv_buffer_device") return Only(key, value, "cpu");
  if (key == "kv_port") return NoEffect(key, "a TandemConnector listens at its \"listen\"");
  if (key == "engine_id") return SetString(key, value, &config->engine_id);
  if (key == "kv_connector_extra_config") {
    if (!value.is_object()) return WrongValue(key, value, "an object");
    for (const auto& [name, extra] : value.items()) RETURN_IF_ERROR(SetExtra(name, extra, config));
    return OkStatus();
  }
  return InvalidArgumentError(std::string(kFlag) + "no key is called " + key);
}

Status SetKeys(const Json& object, KvTransferConfig* config) {
  for (const auto& [key, value] : object.items()) RETURN_IF_ERROR(SetKey(key, value, config));
  const bool has_role = !config->stores || !config->loads;
  const bool takes_role =
      config->connector == Connector::kExample || config->connector == Connector::kTandem;
  if (has_role && !takes_role) {
    return WrongValue("kv_role", object["kv_role"],
                      "\"kv_both\" without an ExampleConnector or a TandemConnector");
  }
  return OkStatus();
}

}  // namespace

StatusOr<KvTransferConfig> ParseKvTransferConfig(const std::string& json, double offloading_gib) {
  KvTransferConfig config;
  if (!json.empty()) {
    const StatusOr<Json> object = ParseJsonObject(json);
    if (!object.ok()) return object.status().WithContext("--kv-transfer-config");
    RETURN_IF_ERROR(SetKeys(*object, &config));
    if (!object->empty() && !object->contains("kv_connector")) {
      return InvalidArgumentError(std::string(kFlag) + "kv_connector is missing, which " +
                                  object->begin().key() + " is for");
    }
  }
  if (offloading_gib > 0) {
    if (config.connector != Connector::kNone) {
      return InvalidArgumentError(
          "--kv-offloading-size and --kv-transfer-config both name a connector; give one of them");
    }
    config.connector = Connector::kOffloading;
    config.host_bytes = static_cast<int64_t>(offloading_gib * kGiB);
  }
  RETURN_IF_ERROR(CheckComplete(config));
  return config;
}

}  // namespace tandem
