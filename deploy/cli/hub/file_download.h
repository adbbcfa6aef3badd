#pragma once

// Brings files of a model into the cache's blobs: several connections take parts of them in order,
// so that one large file and many small ones both use all. Blocking; threads of its own.
// Failure: the first one, after all threads have ended; finished parts and files stay.

#include <string>
#include <vector>

#include "common/status.h"
#include "deploy/cli/hub/hub_client.h"
#include "deploy/cli/hub/hub_listing.h"

namespace tandem {

struct DownloadOptions {
  std::string cache;
  std::string repository_folder;
  int num_connections = 8;
  int64_t part_bytes = 32 << 20;
};

// RESOURCE_EXHAUSTED: the disk has less room than is missing.
Status DownloadFiles(const HubClient& client, const std::vector<HubFile>& files,
                     const DownloadOptions& options);

}  // namespace tandem
