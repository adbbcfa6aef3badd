#pragma once

// The cache's folders (hub_cache.h) as `tandem pull`, `tandem list` and `tandem rm` change and show
// them. Thread: main. Failure: the system's errors with the path.

#include <cstdint>
#include <string>
#include <vector>

#include "common/status.h"
#include "deploy/cli/hub/hub_listing.h"
#include "deploy/cli/hub_name.h"

namespace tandem {

// Makes the snapshot's links to blobs that are there, then lets the revision name the commit.
Status LinkSnapshot(const std::string& repository_folder, const std::string& commit,
                    const std::string& revision, const std::vector<HubFile>& files);

struct StoredModel {
  std::string name;      // as `tandem serve` takes it: org/name, org/name:Q4_K_M
  std::string revision;  // branches and tags, else the commit's first digits
  int64_t bytes = 0;     // of its files
  bool is_whole = true;  // has its weights
};

// Every model of the cache, one row for each snapshot and each quant of it, in order of names.
StatusOr<std::vector<StoredModel>> ListStoredModels(const std::string& cache);

// Removes a model, or one revision or quant of it, and the blobs that nothing else uses. Returns
// the bytes that are free now. NOT_FOUND; FAILED_PRECONDITION while it is being downloaded.
StatusOr<int64_t> RemoveStoredModel(const std::string& cache, const HubName& name);

}  // namespace tandem
