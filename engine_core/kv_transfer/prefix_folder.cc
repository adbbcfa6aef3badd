#include "engine_core/kv_transfer/prefix_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "common/log.h"
#include "common/strings.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr char kPart[] = ".part-";

// It may be gone already.
void Remove(const std::string& folder) {
  std::error_code ignored;
  fs::remove_all(folder, ignored);
}

Status Sync(const std::string& folder) {
  const UniqueFd fd(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd || fsync(fd.get()) != 0) return ErrnoError(errno, folder);
  return OkStatus();
}

}  // namespace

StatusOr<std::unique_ptr<PrefixFolder>> PrefixFolder::Open(const std::string& path, KvRows rows) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) return ErrnoError(error.value(), path);
  auto folder = std::unique_ptr<PrefixFolder>(new PrefixFolder(path, std::move(rows)));
  folder->RemoveAbandoned();
  return folder;
}

void PrefixFolder::RemoveAbandoned() const {
  std::error_code error;
  for (fs::directory_iterator next(path_, error), end; !error && next != end;
       next.increment(error)) {
    const std::string part = next->path().string();
    if (!next->path().filename().string().starts_with(kPart)) continue;
    const UniqueFd fd(open(part.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!fd || flock(fd.get(), LOCK_EX | LOCK_NB) != 0) continue;
    LOG_INFO << "KV folder: removes what a writer has left unfinished, " << part;
    Remove(part);
  }
}

TokenFileShape PrefixFolder::ShapeOf(size_t layer, size_t num_blocks) const {
  return {.dtype = rows_.dtype(),
          .num_tokens = static_cast<int64_t>(num_blocks) * rows_.block_size(),
          .num_kv_heads = rows_.num_kv_heads(layer),
          .head_dim = rows_.head_dim(layer)};
}

std::string PrefixFolder::FileName(size_t layer) const {
  return "/model.layers." + std::to_string(rows_.layers()[layer]) + ".self_attn.attn.safetensors";
}

bool PrefixFolder::Has(const std::string& key) const {
  const std::string last = path_ + "/" + key + FileName(rows_.layers().size() - 1);
  return access(last.c_str(), F_OK) == 0;
}

Status PrefixFolder::Store(const std::string& key, std::span<const BlockId> blocks,
                           bool replaces) const {
  if (!replaces && Has(key)) return OkStatus();
  const std::string part = path_ + "/" + kPart + RandomHex(16);
  if (mkdir(part.c_str(), 0777) != 0) return ErrnoError(errno, part);
  const UniqueFd lock(open(part.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // A file system without locks on folders has none for RemoveAbandoned either.
  const bool is_taken = lock && flock(lock.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  if (!lock || is_taken) {
    const Status status = ErrnoError(errno, "locking " + part);
    Remove(part);
    return status;
  }
  Status status = WriteLayers(part, blocks);
  if (status.ok()) status = Publish(part, key, replaces);
  Remove(part);  // what could not be finished, or what was replaced
  return status;
}

Status PrefixFolder::WriteLayers(const std::string& folder, std::span<const BlockId> blocks) const {
  for (size_t layer = 0; layer < rows_.layers().size(); ++layer) {
    std::vector<std::byte> rows(
        static_cast<size_t>(rows_.block_size() * rows_.BytesPerToken(layer)));
    size_t num_read = 0;
    const auto next = [&]() -> std::span<const std::byte> {
      if (num_read == blocks.size()) return {};
      rows_.Read(layer, blocks[num_read++], rows.data());
      return rows;
    };
    RETURN_IF_ERROR(WriteTokenFile(folder + FileName(layer), ShapeOf(layer, blocks.size()), next));
  }
  return Sync(folder);
}

// A folder cannot be renamed onto one that has files; the two are exchanged instead. One without
// its last file is of a writer that was killed, or of vLLM's that writes the same KV just now.
Status PrefixFolder::Publish(const std::string& part, const std::string& key, bool replaces) const {
  const std::string folder = path_ + "/" + key;
  bool done = rename(part.c_str(), folder.c_str()) == 0;
  if (!done && errno != ENOTEMPTY && errno != EEXIST) return ErrnoError(errno, folder);
  if (!done && (replaces || !Has(key))) {
    done = renameat2(AT_FDCWD, part.c_str(), AT_FDCWD, folder.c_str(), RENAME_EXCHANGE) == 0;
    if (!done) return ErrnoError(errno, folder);
  }
  return done ? Sync(path_) : OkStatus();  // another engine was faster
}

Status PrefixFolder::Load(const std::string& key, std::span<const BlockId> blocks,
                          size_t first_block) const {
  for (size_t layer = 0; layer < rows_.layers().size(); ++layer) {
    ASSIGN_OR_RETURN(const TokenFile file, TokenFile::Open(path_ + "/" + key + FileName(layer),
                                                           ShapeOf(layer, blocks.size())));
    std::vector<std::byte> rows(
        static_cast<size_t>(rows_.block_size() * rows_.BytesPerToken(layer)));
    for (size_t i = first_block; i < blocks.size(); ++i) {
      RETURN_IF_ERROR(file.Read(static_cast<int64_t>(i) * rows_.block_size(), rows));
      rows_.Write(layer, blocks[i], rows.data());
    }
  }
  return OkStatus();
}

}  // namespace tandem
