#include "deploy/cli/hub_cache.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "common/parse_bool.h"
#include "common/part_suffix.h"
#include "common/read_file.h"
#include "common/strings.h"

namespace tandem {

namespace fs = std::filesystem;

namespace {

constexpr int64_t kMaxRefBytes = 4096;
constexpr int64_t kMaxIndexBytes = 64 << 20;

bool IsFolder(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

bool Exists(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

bool IsSet(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && ParseBool(value).value_or(false);
}

// A variable's path, "" where it is not set: ~ is the home, as to Python's huggingface_hub, also
// where no shell has seen it.
std::string PathIn(const char* variable) {
  const char* const text = std::getenv(variable);
  if (text == nullptr) return "";
  const std::string_view value = text;
  const char* const home = std::getenv("HOME");
  const bool is_below_home = value == "~" || value.starts_with("~/");
  return is_below_home && home != nullptr ? home + std::string(value.substr(1))
                                          : std::string(value);
}

// The first of these variables that is set, with what is below it.
struct Place {
  const char* variable;
  const char* below;
};
std::string FirstPlace(const std::vector<Place>& places) {
  for (const Place& place : places) {
    if (const std::string path = PathIn(place.variable); !path.empty()) return path + place.below;
  }
  return places.back().below;
}

// A branch or tag is a file with its commit; a commit is its own folder.
StatusOr<std::string> CommitOf(const std::string& repository, const std::string& revision) {
  ASSIGN_OR_RETURN(const std::string ref,
                   ReadFileIfAny(repository + "/refs/" + revision, kMaxRefBytes));
  const std::string commit(StripAscii(ref));
  if (commit.empty()) return revision;
  if (!IsCommit(commit) && commit.find_first_of("/.") != commit.npos) {
    return DataLossError(repository + "/refs/" + revision + " names no commit");
  }
  return commit;
}

// All files that the index of a checkpoint in shards names.
bool HasShards(const std::string& snapshot) {
  const auto text = ReadFileIfAny(snapshot + "/model.safetensors.index.json", kMaxIndexBytes);
  if (!text.ok() || text->empty()) return false;
  const nlohmann::json index = nlohmann::json::parse(*text, nullptr, false);
  if (!index.is_object() || !index.contains("weight_map")) return false;
  return std::ranges::all_of(index["weight_map"], [&snapshot](const nlohmann::json& name) {
    return name.is_string() && Exists(fs::path(snapshot) / name.get<std::string>());
  });
}

bool HasParts(const std::string& path) {
  const std::optional<GgufPart> part = ParseGgufPart(path);
  for (int i = 1; part && i <= part->count; ++i) {
    if (!Exists(part->stem + PartSuffix(i, part->count, ".gguf"))) return false;
  }
  return Exists(path);
}

// Whole GGUF models below the folder, by their paths in it.
std::vector<std::string> GgufModels(const std::string& snapshot) {
  std::vector<std::string> files;
  std::error_code error;
  for (fs::recursive_directory_iterator it(snapshot, error), end; !error && it != end;
       it.increment(error)) {
    const std::string path = it->path().string();
    if (path.ends_with(".gguf") && HasParts(path)) {
      files.push_back(it->path().lexically_relative(snapshot).string());
    }
  }
  return files;
}

}  // namespace

std::string HuggingFaceHome() {
  return FirstPlace(
      {{"HF_HOME", ""}, {"XDG_CACHE_HOME", "/huggingface"}, {"HOME", "/.cache/huggingface"}});
}

std::string HubCacheFolder() {
  if (UsesModelScope()) {
    return FirstPlace({{"MODELSCOPE_CACHE", ""}, {"HOME", "/.cache/modelscope"}});
  }
  for (const char* variable : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"}) {
    if (std::string path = PathIn(variable); !path.empty()) return path;
  }
  return HuggingFaceHome() + "/hub";
}

std::string HuggingFaceTokenFile() {
  const std::string path = PathIn("HF_TOKEN_PATH");
  return path.empty() ? HuggingFaceHome() + "/token" : path;
}

bool IsHubOffline() { return IsSet("HF_HUB_OFFLINE") || IsSet("TRANSFORMERS_OFFLINE"); }

bool UsesModelScope() {
  const char* own = std::getenv("TANDEM_USE_MODELSCOPE");
  return own != nullptr ? IsSet("TANDEM_USE_MODELSCOPE") : IsSet("VLLM_USE_MODELSCOPE");
}

std::string HubRepositoryFolder(const std::string& cache, const std::string& repository) {
  std::string name = repository;
  if (const size_t slash = name.find('/'); slash != name.npos) name.replace(slash, 1, "--");
  return cache + (UsesModelScope() ? "/models/" : "/models--") + name;
}

StatusOr<std::string> HubRevision(const HubName& name, const std::string& flag) {
  if (!name.revision.empty() && !flag.empty() && name.revision != flag) {
    return InvalidArgumentError("the name has revision " + name.revision + ", --revision is " +
                                flag);
  }
  if (!flag.empty() && !IsRevision(flag)) {
    return InvalidArgumentError("--revision " + flag + ": must be a branch, tag or commit");
  }
  if (!flag.empty()) return flag;
  if (!name.revision.empty()) return name.revision;
  return std::string(UsesModelScope() ? "master" : "main");
}

std::optional<std::string> FindWholeModel(const std::string& snapshot, const std::string& quant) {
  if (quant.empty()) {
    for (const char* weights : {"/model.safetensors", "/adapter_model.safetensors"}) {
      if (Exists(snapshot + weights)) return snapshot;
    }
    if (HasShards(snapshot)) return snapshot;
  }
  const std::vector<std::string> models = GgufModels(snapshot);
  const std::vector<std::string> wanted =
      quant.empty() ? std::vector<std::string>{"Q4_K_M", "Q8_0", ""} : std::vector{quant};
  for (const std::string& each : wanted) {
    const std::vector<std::string> found = GgufFilesOf(models, each);
    if (!found.empty()) return snapshot + "/" + found[0];
  }
  return std::nullopt;
}

StatusOr<std::optional<std::string>> FindInHubCache(const std::string& name,
                                                    const HubCacheOptions& options) {
  const std::optional<HubName> parsed = ParseHubName(name);
  if (!parsed || Exists(name)) return std::optional<std::string>();
  ASSIGN_OR_RETURN(const std::string revision, HubRevision(*parsed, options.revision));
  const std::string cache = options.folder.empty() ? HubCacheFolder() : options.folder;
  const std::string repository = HubRepositoryFolder(cache, parsed->repository);
  const std::string pull = "`tandem pull " + name +
                           (options.revision.empty() ? "" : " --revision " + options.revision) +
                           "` downloads it";
  if (!IsFolder(repository)) {
    // A word alone is rather a path that is wrong: it opens no connection.
    if (parsed->repository.find('/') == std::string::npos) return std::optional<std::string>();
    return NotFoundError(name + " is neither a folder nor in " + cache + "; " + pull);
  }
  ASSIGN_OR_RETURN(const std::string commit, CommitOf(repository, revision));
  const std::string snapshot = repository + "/snapshots/" + commit;
  if (!IsFolder(snapshot)) {
    return NotFoundError("revision " + revision + " of " + name + " is not in " + cache + "; " +
                         pull);
  }
  if (!options.needs_weights && parsed->quant.empty()) return std::optional(snapshot);
  std::optional<std::string> model = FindWholeModel(snapshot, parsed->quant);
  if (model) return model;
  return NotFoundError(name + " is in " + cache + " without its weights; " + pull);
}

}  // namespace tandem
