#pragma once

// The connector that --kv-transfer-config asks for. Thread: engine loop, at start-up.

#include <memory>
#include <string>

#include "common/status.h"
#include "engine_core/kv_transfer/in_process_connector.h"
#include "engine_core/kv_transfer/kv_transfer_config.h"
#include "kernels/backend.h"
#include "kernels/kv_caches.h"

namespace tandem {

// What a connector is made for. Backend and caches must outlive the connector.
struct ConnectorPlace {
  const Backend* backend = nullptr;
  KvCaches caches = {};
  int num_tensor_ranks = 1, num_stages = 1;
  std::string model;            // file or folder
  std::string facts;            // what else decides the content of the cache
  std::string hashes;           // the hash of no block: kind and seed of block hashes
  bool reports_events = false;  // KV events are published

  // Of the first rank; block size, number and format are those of all.
  const KvCacheSpec& spec() const { return caches.front().cache->spec(); }
};

// Logs what there is. REQUIRES: some connector is asked for.
StatusOr<std::unique_ptr<InProcessConnector>> MakeConnector(const KvTransferConfig& config,
                                                            const ConnectorPlace& place);

}  // namespace tandem
