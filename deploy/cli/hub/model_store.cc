#include "deploy/cli/hub/model_store.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "common/read_file.h"
#include "common/strings.h"
#include "deploy/cli/hub/partial_blob.h"
#include "deploy/cli/hub_cache.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxRefBytes = 4096;
constexpr size_t kShownDigits = 12;

Status FileError(const std::error_code& error, const fs::path& path) {
  return error ? ErrnoError(error.value(), path.string()) : OkStatus();
}

// A link or file under a name of its own, then under its right one: never half a thing.
Status Replace(const fs::path& made, const fs::path& path) {
  std::error_code error;
  fs::rename(made, path, error);
  return FileError(error, path);
}

Status LinkFile(const fs::path& snapshot, const HubFile& file) {
  const fs::path path = snapshot / file.path;
  std::string target = "../../blobs/" + file.hash;
  for (const char c : file.path) target.insert(0, c == '/' ? "../" : "");
  std::error_code error;
  if (fs::read_symlink(path, error).string() == target) return OkStatus();
  error.clear();
  fs::create_directories(path.parent_path(), error);
  RETURN_IF_ERROR(FileError(error, path.parent_path()));
  const fs::path made = path.parent_path() / (".tandem-" + RandomHex(8));
  fs::create_symlink(target, made, error);
  RETURN_IF_ERROR(FileError(error, made));
  return Replace(made, path);
}

Status WriteRef(const fs::path& path, const std::string& commit) {
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  RETURN_IF_ERROR(FileError(error, path.parent_path()));
  const fs::path made = path.parent_path() / (".tandem-" + RandomHex(8));
  std::ofstream file(made);
  file << commit;
  file.close();
  if (!file) {
    fs::remove(made, error);
    return ResourceExhaustedError(path.string() + " cannot be written: is the disk full?");
  }
  return Replace(made, path);
}

// Branches and tags by commit.
std::map<std::string, std::string> ReadRefs(const fs::path& repository) {
  std::map<std::string, std::string> names;
  const fs::path refs = repository / "refs";
  std::error_code error;
  for (fs::recursive_directory_iterator it(refs, error), end; !error && it != end;
       it.increment(error)) {
    if (!it->is_regular_file(error)) continue;
    const StatusOr<std::string> commit = ReadFile(it->path().string(), kMaxRefBytes);
    if (!commit.ok()) continue;
    std::string& text = names[std::string(StripAscii(*commit))];
    text += (text.empty() ? "" : ", ") + it->path().lexically_relative(refs).string();
  }
  return names;
}

std::vector<fs::path> FilesBelow(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    if (!it->is_directory(error) || it->is_symlink(error)) files.push_back(it->path());
  }
  std::ranges::sort(files);
  return files;
}

std::vector<fs::path> FoldersIn(const fs::path& folder) {
  std::vector<fs::path> folders;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (entry.is_directory(error)) folders.push_back(entry.path());
  }
  std::ranges::sort(folders);
  return folders;
}

int64_t SizeOf(const fs::path& path) {
  std::error_code error;
  const auto size = fs::file_size(path, error);
  return error ? 0 : static_cast<int64_t>(size);
}

// "models--org--name", "models--name" or, of ModelScope, "org--name"; "" where it is no model's
// folder.
std::string RepositoryOf(const fs::path& folder) {
  std::string name = folder.filename().string();
  constexpr std::string_view kPrefix = "models--";
  if (!UsesModelScope()) {
    if (!name.starts_with(kPrefix)) return "";
    name.erase(0, kPrefix.size());
  }
  const size_t dashes = name.find("--");
  if (dashes != name.npos) name.replace(dashes, 2, "/");
  if (dashes == name.npos && UsesModelScope()) return "";
  return ParseHubName(name) ? name : "";
}

void AddSnapshot(const std::string& repository, const std::string& revision,
                 const fs::path& snapshot, std::vector<StoredModel>* models) {
  std::map<std::string, int64_t> ggufs;  // by quant
  StoredModel rest = {.name = repository, .revision = revision};
  for (const fs::path& path : FilesBelow(snapshot)) {
    const std::string name = path.lexically_relative(snapshot).string();
    const bool is_gguf = IsGgufOf(name, "");
    (is_gguf ? ggufs[QuantOf(name)] : rest.bytes) += SizeOf(path);
  }
  for (const auto& [quant, bytes] : ggufs) {
    models->push_back({.name = repository + (quant.empty() ? "" : ":" + quant),
                       .revision = revision,
                       .bytes = bytes,
                       .is_whole = FindWholeModel(snapshot.string(), quant).has_value()});
  }
  const auto whole = FindWholeModel(snapshot.string(), "");
  rest.is_whole = whole && *whole == snapshot.string();
  if (rest.is_whole || ggufs.empty()) models->push_back(rest);
}

// Blobs that no link of any snapshot leads to are removed, and parts of downloads. Returns bytes.
int64_t RemoveUnusedBlobs(const fs::path& repository) {
  std::set<std::string> used;
  std::error_code error;
  for (const fs::path& path : FilesBelow(repository / "snapshots")) {
    used.insert(fs::read_symlink(path, error).filename().string());
  }
  int64_t bytes = 0;
  for (const fs::path& blob : FilesBelow(repository / "blobs")) {
    if (used.contains(blob.filename().string())) continue;
    const int64_t size = SizeOf(blob);
    if (fs::remove(blob, error)) bytes += size;
  }
  return bytes;
}

// Snapshots that the name means: of a revision or commit, else all.
std::vector<fs::path> SnapshotsOf(const fs::path& repository, const std::string& revision) {
  std::vector<fs::path> snapshots = FoldersIn(repository / "snapshots");
  if (revision.empty()) return snapshots;
  const auto ref = ReadFileIfAny((repository / "refs" / revision).string(), kMaxRefBytes);
  const std::string commit(ref.ok() && !ref->empty() ? StripAscii(*ref) : revision);
  std::erase_if(snapshots, [&commit](const fs::path& path) { return path.filename() != commit; });
  return snapshots;
}

void RemoveRefsTo(const fs::path& repository, const std::string& commit) {
  std::error_code error;
  for (const fs::path& path : FilesBelow(repository / "refs")) {
    const StatusOr<std::string> text = ReadFile(path.string(), kMaxRefBytes);
    if (text.ok() && StripAscii(*text) == commit) fs::remove(path, error);
  }
}

// A download in progress holds the lock of each file that it is at.
Status CheckNotLocked(const std::string& cache, const fs::path& repository) {
  constexpr std::string_view kParts = ".tandem.parts";
  for (const fs::path& blob : FilesBelow(repository / "blobs")) {
    const std::string name = blob.filename().string();
    if (!name.ends_with(kParts)) continue;
    ASSIGN_OR_RETURN(const UniqueFd lock,
                     LockBlob(cache, repository.string(),
                              name.substr(0, name.size() - kParts.size()), name, false));
    if (!lock) return FailedPreconditionError("it is being downloaded");
  }
  return OkStatus();
}

}  // namespace

Status LinkSnapshot(const std::string& repository_folder, const std::string& commit,
                    const std::string& revision, const std::vector<HubFile>& files) {
  const fs::path repository = repository_folder;
  for (const HubFile& file : files) {
    RETURN_IF_ERROR(LinkFile(repository / "snapshots" / commit, file));
  }
  return revision == commit ? OkStatus() : WriteRef(repository / "refs" / revision, commit);
}

StatusOr<std::vector<StoredModel>> ListStoredModels(const std::string& cache) {
  const fs::path folder = UsesModelScope() ? fs::path(cache) / "models" : fs::path(cache);
  std::vector<StoredModel> models;
  for (const fs::path& repository : FoldersIn(folder)) {
    const std::string name = RepositoryOf(repository);
    if (name.empty()) continue;
    const std::map<std::string, std::string> refs = ReadRefs(repository);
    for (const fs::path& snapshot : FoldersIn(repository / "snapshots")) {
      const std::string commit = snapshot.filename().string();
      const auto ref = refs.find(commit);
      AddSnapshot(name, ref == refs.end() ? commit.substr(0, kShownDigits) : ref->second, snapshot,
                  &models);
    }
  }
  std::ranges::stable_sort(models, {}, &StoredModel::name);
  return models;
}

StatusOr<int64_t> RemoveStoredModel(const std::string& cache, const HubName& name) {
  const fs::path repository = HubRepositoryFolder(cache, name.repository);
  std::error_code error;
  const std::vector<fs::path> snapshots = SnapshotsOf(repository, name.revision);
  if (!fs::is_directory(repository, error) || (snapshots.empty() && !name.revision.empty())) {
    return NotFoundError("it is not in " + cache);
  }
  RETURN_IF_ERROR(CheckNotLocked(cache, repository));
  int num_removed = 0;
  for (const fs::path& snapshot : snapshots) {
    for (const fs::path& path : FilesBelow(snapshot)) {
      const std::string file = path.lexically_relative(snapshot).string();
      if (!name.quant.empty() && !IsGgufOf(file, name.quant)) continue;
      num_removed += fs::remove(path, error) ? 1 : 0;
      RETURN_IF_ERROR(FileError(error, path));
    }
    if (!FilesBelow(snapshot).empty()) continue;
    fs::remove_all(snapshot, error);
    RemoveRefsTo(repository, snapshot.filename().string());
  }
  if (num_removed == 0 && !name.quant.empty()) {
    return NotFoundError("no GGUF file of " + name.quant + " is in " + repository.string());
  }
  const int64_t bytes = RemoveUnusedBlobs(repository);
  if (FoldersIn(repository / "snapshots").empty()) {
    fs::remove_all(repository, error);
    fs::remove_all(fs::path(cache) / ".locks" / repository.filename(), error);
  }
  return bytes;
}

}  // namespace tandem
