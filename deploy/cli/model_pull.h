#pragma once

// Finds a model that a command names, and downloads what the cache lacks in a process of its own
// (tandem-hub). Thread: main; blocks until it is there. Its progress goes to stderr.

#include <functional>
#include <optional>
#include <string>

#include "common/status.h"
#include "deploy/cli/hub_cache.h"

namespace tandem {

struct ModelPull {
  std::string name;      // as in hub_name.h
  std::string revision;  // of a flag; may be empty
  std::string cache;     // folder; may be empty
  bool with_weights = true;
  std::string token = {};  // of the hub; empty: as the environment says
};

// FAILED_PRECONDITION: it could not be downloaded; the reason is on stderr.
Status PullModelByName(const ModelPull& pull);

using ModelPuller = std::function<Status(const ModelPull&)>;

// What the name is in the cache, after a download where the cache lacks it and `pull` is not empty;
// nullopt for a path. HF_HUB_OFFLINE forbids the download: NOT_FOUND.
StatusOr<std::optional<std::string>> FindOrPullModel(const std::string& name,
                                                     const HubCacheOptions& options,
                                                     const ModelPuller& pull);

}  // namespace tandem
