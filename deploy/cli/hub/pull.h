#pragma once

// `tandem pull`, `tandem list` and `tandem rm`: models of a hub in the local cache.
// Thread: main. Exit statuses: common/exit_status.h.

#include <string>
#include <vector>

#include "common/status.h"
#include "deploy/cli/hub/hub_client.h"
#include "deploy/cli/hub_name.h"

namespace tandem {

struct PullOptions {
  std::string cache;     // folder; empty: HubCacheFolder()
  std::string revision;  // empty: the name's, or the hub's default
  bool with_weights = true;
  int num_connections = 8;
  int64_t part_bytes = 32 << 20;
};

// Downloads what is missing. Returns the path that the name means now: a folder or a GGUF file.
StatusOr<std::string> PullModel(const HubClient& client, const HubName& name,
                                const PullOptions& options);

int RunPull(const std::vector<std::string>& args);
int RunList(const std::vector<std::string>& args);
int RunRemove(const std::vector<std::string>& args);

}  // namespace tandem
