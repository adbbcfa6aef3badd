#pragma once

// The flags --kv-transfer-config and --kv-offloading-size: which KV connector an engine has.
// Thread: pure functions. Failure: INVALID_ARGUMENT names the key, its value and what is allowed.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/status.h"
#include "engine_core/kv_remote/address.h"
#include "engine_core/scheduler/scheduler_config.h"

namespace tandem {

// Of an OffloadingConnector: files below host memory.
struct FileTierConfig {
  std::string root = {};
  int64_t max_bytes = 0;  // 0: as many as the disk has
  int num_readers = 4;
};

struct KvTransferConfig {
  enum class Connector { kNone, kOffloading, kExample, kTandem, kMulti };
  Connector connector = Connector::kNone;
  std::string engine_id = {};  // empty: not given
  bool stores = true;          // kv_role
  bool loads = true;
  KvLoadFailurePolicy load_failure_policy = KvLoadFailurePolicy::kFail;
  // kOffloading
  int64_t host_bytes = 0;
  bool offload_prompt_only = true;
  bool self_describing_kv_events = false;
  bool is_tiered = false;  // spec_name
  std::optional<FileTierConfig> file_tier = {};
  // kExample
  std::string shared_folder = {};
  std::optional<std::string> subfolder = {};  // of it; not given: one of the model's own
  // kTandem
  KvAddress listen = {};  // of one that stores
  double lease_s = 30;
  bool insecure_tcp = false;
  std::vector<std::string> peers = {};  // who may be read from; empty: any
  // kMulti
  std::vector<KvTransferConfig> connectors = {};

  // Whether it is or has one of this kind.
  bool Has(Connector kind) const {
    for (const KvTransferConfig& one : connectors) {
      if (one.Has(kind)) return true;
    }
    return connector == kind;
  }
};

// json: an object with vLLM's keys; empty: none. offloading_gib: what --kv-offloading-size asks
// for; 0: nothing. Both together are refused.
StatusOr<KvTransferConfig> ParseKvTransferConfig(const std::string& json, double offloading_gib);

}  // namespace tandem
