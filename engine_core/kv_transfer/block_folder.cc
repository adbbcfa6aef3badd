// The low-level calls are enough, and need no allocation.
#define OPENSSL_SUPPRESS_DEPRECATED

#include "engine_core/kv_transfer/block_folder.h"

#include <fcntl.h>
#include <openssl/sha.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>
#include <system_error>

#include "common/crc32c.h"
#include "common/log.h"
#include "common/strings.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr int kMostFolders = 64;
constexpr char kMark[4] = {'T', 'K', 'V', '1'};
constexpr int64_t kDiskBlock = 4096;

struct Trailer {
  char mark[sizeof(kMark)];
  uint32_t crc;
};

std::span<const std::byte> BytesOf(const BlockHash& hash) {
  return std::as_bytes(std::span(hash.bytes));
}

Trailer TrailerOf(const BlockHash& hash, std::span<const std::byte> block) {
  Trailer trailer = {.mark = {}, .crc = Crc32c(BytesOf(hash), Crc32c(block))};
  std::memcpy(trailer.mark, kMark, sizeof(kMark));
  return trailer;
}

// Block and trailer, with the system's preadv or pwritev. 0 bytes: the file ends there.
template <class Move, class Byte>
Status MoveAll(Move move, std::span<Byte> block, Trailer* trailer, const std::string& what) {
  size_t done = 0;
  const size_t size = block.size() + sizeof(Trailer);
  while (done < size) {
    iovec parts[2];
    int num_parts = 0;
    if (done < block.size()) {
      parts[num_parts++] = {const_cast<std::byte*>(block.data()) + done, block.size() - done};
    }
    const size_t of_trailer = done > block.size() ? done - block.size() : 0;
    parts[num_parts++] = {reinterpret_cast<char*>(trailer) + of_trailer,
                          sizeof(Trailer) - of_trailer};
    const ssize_t count = move(parts, num_parts, static_cast<off_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return ErrnoError(errno, what);
    if (count == 0) return DataLossError(what + ": is cut short");
    done += static_cast<size_t>(count);
  }
  return OkStatus();
}

void MakeFoldersOf(const std::string& file) {
  std::error_code ignored;  // opening the file reports it
  fs::create_directories(fs::path(file).parent_path(), ignored);
}

Status WriteConfig(const std::string& base, const std::string& facts) {
  const std::string path = base + "/config.json";
  std::error_code error;
  fs::create_directories(base, error);
  if (error) return ErrnoError(error.value(), base);
  if (access(path.c_str(), F_OK) == 0) return OkStatus();
  const UniqueFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
  const auto size = static_cast<ssize_t>(facts.size());
  if (!file || write(file.get(), facts.data(), facts.size()) != size) {
    return ErrnoError(errno, path);
  }
  return OkStatus();
}

std::optional<BlockHash> HashOf(const fs::path& file) {
  if (file.extension() != ".bin") return std::nullopt;
  const std::optional<std::string> bytes = HexDecode(file.stem().string());
  BlockHash hash;
  if (!bytes || bytes->size() != hash.bytes.size()) return std::nullopt;
  std::memcpy(hash.bytes.data(), bytes->data(), bytes->size());
  return hash;
}

}  // namespace

std::string BlockFolderBase(const std::string& root, std::string_view model,
                            std::string_view facts) {
  std::string name(model);
  std::ranges::replace(name, '/', '_');
  std::array<uint8_t, SHA256_DIGEST_LENGTH> digest{};
  SHA256(reinterpret_cast<const uint8_t*>(facts.data()), facts.size(), digest.data());
  const std::string hex = HexEncode({reinterpret_cast<const char*>(digest.data()), digest.size()});
  return root + "/" + name + "_" + hex.substr(0, 12);
}

StatusOr<std::unique_ptr<BlockFolder>> BlockFolder::Open(const std::string& base,
                                                         const std::string& facts,
                                                         int64_t block_bytes) {
  RETURN_IF_ERROR(WriteConfig(base, facts));
  for (int i = 0; i < kMostFolders; ++i) {
    const std::string path = base + "_r" + std::to_string(i);
    std::error_code error;
    fs::create_directories(path, error);
    UniqueFd lock(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!lock) return ErrnoError(errno, path);
    // A file system without locks on folders has one engine for each root_dir.
    const bool is_taken = flock(lock.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (is_taken) continue;
    return std::unique_ptr<BlockFolder>(new BlockFolder(path, std::move(lock), block_bytes));
  }
  return ResourceExhaustedError(base + ": " + std::to_string(kMostFolders) +
                                " engines have their blocks there already");
}

std::string BlockFolder::FileOf(const BlockHash& hash) const {
  const std::string hex = hash.ToHex();
  return path_ + "/" + hex.substr(0, 3) + "/" + hex.substr(3, 2) + "_g0/" + hex + ".bin";
}

int64_t BlockFolder::bytes_per_file() const {
  const int64_t size = block_bytes_ + static_cast<int64_t>(sizeof(Trailer));
  return (size + kDiskBlock - 1) / kDiskBlock * kDiskBlock;
}

std::vector<BlockHash> BlockFolder::Scan() const {
  std::vector<std::pair<fs::file_time_type, BlockHash>> found;
  const auto whole = static_cast<uintmax_t>(block_bytes_) + sizeof(Trailer);
  std::error_code error;
  for (fs::recursive_directory_iterator next(path_, error), end; !error && next != end;
       next.increment(error)) {
    std::error_code of_file;
    if (!next->is_regular_file(of_file)) continue;
    const std::optional<BlockHash> hash = HashOf(next->path());
    const uintmax_t size = next->file_size(of_file);
    const auto used_at = next->last_write_time(of_file);
    if (!of_file && hash && size == whole && next->path() == FileOf(*hash)) {
      found.emplace_back(used_at, *hash);
    } else {
      fs::remove(next->path(), of_file);
    }
  }
  if (error) LOG_WARNING << "KV blocks in files: " << path_ << ": " << error.message();
  std::ranges::stable_sort(found, {}, [](const auto& one) { return one.first; });
  std::vector<BlockHash> hashes;
  hashes.reserve(found.size());
  for (const auto& [used_at, hash] : found) hashes.push_back(hash);
  return hashes;
}

Status BlockFolder::Write(const BlockHash& hash, std::span<const std::byte> block) const {
  const std::string path = FileOf(hash);
  const std::string part = path + ".tmp";
  const auto create = [&] {
    return open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  };
  UniqueFd file(create());
  if (!file && errno == ENOENT) {
    MakeFoldersOf(part);
    file = UniqueFd(create());
  }
  if (!file) return ErrnoError(errno, part);
  Trailer trailer = TrailerOf(hash, block);
  Status status = MoveAll(
      [&](const iovec* parts, int num, off_t at) { return pwritev(file.get(), parts, num, at); },
      block, &trailer, "writing " + part);
  if (status.ok() && rename(part.c_str(), path.c_str()) != 0) status = ErrnoError(errno, path);
  if (!status.ok()) unlink(part.c_str());
  return status;
}

Status BlockFolder::Read(const BlockHash& hash, std::span<std::byte> block) const {
  const std::string path = FileOf(hash);
  Status status = ReadChecked(path, hash, block);
  if (status.code() == StatusCode::kDataLoss) unlink(path.c_str());
  return status;
}

Status BlockFolder::ReadChecked(const std::string& path, const BlockHash& hash,
                                std::span<std::byte> block) const {
  // What is no file, as a pipe without a writer, must not hold anybody up.
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!file) return ErrnoError(errno, path);
  struct stat facts {};
  if (fstat(file.get(), &facts) != 0) return ErrnoError(errno, path);
  const auto size = static_cast<int64_t>(block.size() + sizeof(Trailer));
  if (!S_ISREG(facts.st_mode) || facts.st_size != size) {
    return DataLossError(path + ": is not the file of a block, which has " + std::to_string(size) +
                         " bytes");
  }
  Trailer trailer{};
  RETURN_IF_ERROR(MoveAll(
      [&](const iovec* parts, int num, off_t at) { return preadv(file.get(), parts, num, at); },
      block, &trailer, path));
  const Trailer wanted = TrailerOf(hash, block);
  if (std::memcmp(&trailer, &wanted, sizeof(wanted)) != 0) {
    return DataLossError(path + ": has another checksum than its bytes");
  }
  (void)futimens(file.get(), nullptr);
  return OkStatus();
}

void BlockFolder::Remove(const BlockHash& hash) const { unlink(FileOf(hash).c_str()); }

}  // namespace tandem
