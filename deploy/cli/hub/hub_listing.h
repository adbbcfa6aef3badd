#pragma once

// Which files a revision of a model has, as the hub lists them. The list is a stranger's: names
// that could leave a folder, hashes that are none and sizes that cannot be are refused.
// Parsing is pure. Failure: DATA_LOSS names the field; what HubClient reports.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"
#include "deploy/cli/hub/hub_client.h"

namespace tandem {

struct HubFile {
  std::string path;  // in the repository, "/" between folders
  int64_t size = 0;
  // What the bytes must hash to, and the name of its blob in the cache: SHA-256 in 64 hex digits,
  // or, in 40, git's SHA-1 of the file.
  std::string hash;
  std::string target;  // where to get it, below the hub's endpoint
};

struct HubListing {
  std::string commit;  // names the snapshot's folder; of ModelScope the revision
  std::vector<HubFile> files;
};

// Looks up what `revision` is now and lists its files.
StatusOr<HubListing> ListHubFiles(const HubClient& client, const std::string& repository,
                                  const std::string& revision);

// One page of Hugging Face's tree, appended; targets are left empty.
Status ParseHuggingFaceTree(std::string_view json, std::vector<HubFile>* files);
// ModelScope's list, appended.
Status ParseModelScopeFiles(std::string_view json, std::vector<HubFile>* files);
// The "sha" of Hugging Face's description of a revision.
StatusOr<std::string> ParseCommit(std::string_view json);

// A path that stays in its folder on every system: no "..", no empty part, no backslash or control
// character, not longer than a file system takes.
bool IsSafePath(std::string_view path);

}  // namespace tandem
