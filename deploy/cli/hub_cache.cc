#include "deploy/cli/hub_cache.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "common/read_file.h"
#include "common/strings.h"

namespace tandem {

namespace fs = std::filesystem;

namespace {

constexpr int64_t kMaxRefBytes = 4096;

bool IsFolder(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

// "org/name", and no path.
bool IsHubName(const std::string& name) {
  return std::count(name.begin(), name.end(), '/') == 1 && name.front() != '/' &&
         name.back() != '/' && name.front() != '.' && name.front() != '~';
}

// A branch or tag is a file with its commit; a commit is its own folder.
StatusOr<std::string> CommitOf(const std::string& repository, const std::string& revision) {
  ASSIGN_OR_RETURN(const std::string ref,
                   ReadFileIfAny(repository + "/refs/" + revision, kMaxRefBytes));
  return ref.empty() ? revision : std::string(StripAscii(ref));
}

}  // namespace

std::string HubCacheFolder() {
  constexpr struct {
    const char* variable;
    const char* below;
  } kPlaces[] = {{"HF_HUB_CACHE", ""},
                 {"HF_HOME", "/hub"},
                 {"XDG_CACHE_HOME", "/huggingface/hub"},
                 {"HOME", "/.cache/huggingface/hub"}};
  for (const auto& place : kPlaces) {
    const char* value = std::getenv(place.variable);
    if (value != nullptr && *value != '\0') return std::string(value) + place.below;
  }
  return "/.cache/huggingface/hub";
}

StatusOr<std::optional<std::string>> FindInHubCache(const std::string& name,
                                                    const HubCacheOptions& options) {
  if (name.empty() || IsFolder(name) || !IsHubName(name)) return std::optional<std::string>();
  const std::string cache = options.folder.empty() ? HubCacheFolder() : options.folder;
  const size_t slash = name.find('/');
  const std::string repository =
      cache + "/models--" + name.substr(0, slash) + "--" + name.substr(slash + 1);
  const std::string revision = options.revision.empty() ? "main" : options.revision;
  if (revision.find("..") != revision.npos) {
    return InvalidArgumentError("--revision " + revision + ": must be a branch, tag or commit");
  }
  if (!IsFolder(repository)) {
    return NotFoundError(name + " is neither a folder nor in " + cache +
                         "; nothing is downloaded here, `hf download " + name + "` puts it there");
  }
  ASSIGN_OR_RETURN(const std::string commit, CommitOf(repository, revision));
  const std::string snapshot = repository + "/snapshots/" + commit;
  if (commit.empty() || !IsFolder(snapshot)) {
    return NotFoundError("revision " + revision + " of " + name + " is not in " + cache +
                         "; `hf download " + name + " --revision " + revision + "` puts it there");
  }
  return std::optional(snapshot);
}

}  // namespace tandem
