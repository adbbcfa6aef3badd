#include "deploy/cli/hub/partial_blob.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "common/strings.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr size_t kHashBytes = 1 << 20;
constexpr size_t kSha256Digits = 64;
// What a parts file begins with; then the size of a part in 8 bytes, then a byte for each part.
constexpr std::string_view kPartsMagic = "TDMPART1";
constexpr size_t kPartsHead = 16;
constexpr int64_t kMaxParts = 1 << 20;

std::string PartsHead(int64_t part_bytes) {
  std::string head(kPartsMagic);
  return head.append(reinterpret_cast<const char*>(&part_bytes), sizeof part_bytes);
}

Status WriteAt(int fd, std::string_view bytes, int64_t offset, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t count = pwrite(fd, bytes.data(), bytes.size(), offset);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == ENOSPC || errno == EDQUOT)) {
      return ResourceExhaustedError("the disk is full: " + path + "; what is there is kept, the " +
                                    "next pull goes on from it");
    }
    if (count < 0) return ErrnoError(errno, "write " + path);
    bytes.remove_prefix(static_cast<size_t>(count));
    offset += count;
  }
  return OkStatus();
}

StatusOr<UniqueFd> OpenFile(const std::string& path) {
  UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666));
  if (!fd) return ErrnoError(errno, "open " + path);
  return fd;
}

}  // namespace

StatusOr<std::string> HashOfFile(int fd, int64_t size, size_t hash_size) {
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(),
                                                                        EVP_MD_CTX_free);
  const bool is_sha256 = hash_size == kSha256Digits;
  EVP_DigestInit_ex(context.get(), is_sha256 ? EVP_sha256() : EVP_sha1(), nullptr);
  if (!is_sha256) {
    const std::string head = "blob " + std::to_string(size);
    EVP_DigestUpdate(context.get(), head.c_str(), head.size() + 1);  // with its final zero
  }
  std::vector<char> bytes(kHashBytes);
  for (int64_t at = 0; at < size;) {
    const size_t wanted = std::min(bytes.size(), static_cast<size_t>(size - at));
    const ssize_t count = pread(fd, bytes.data(), wanted, at);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return count < 0 ? ErrnoError(errno, "read") : DataLossError("it is shorter");
    EVP_DigestUpdate(context.get(), bytes.data(), static_cast<size_t>(count));
    at += count;
  }
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int length = 0;
  EVP_DigestFinal_ex(context.get(), digest, &length);
  return HexEncode(std::string_view(reinterpret_cast<const char*>(digest), length));
}

StatusOr<UniqueFd> LockBlob(const std::string& cache, const std::string& repository_folder,
                            const std::string& hash, const std::string& what, bool waits) {
  const fs::path folder = fs::path(cache) / ".locks" / fs::path(repository_folder).filename();
  std::error_code error;
  fs::create_directories(folder, error);
  const std::string path = (folder / (hash + ".lock")).string();
  while (true) {
    UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0664));
    if (!fd) return ErrnoError(errno, "open " + path);
    if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK && errno != EINTR) return ErrnoError(errno, "lock " + path);
      if (!waits) return UniqueFd();
      std::fprintf(stderr, "%s: another process downloads it; waiting\n", what.c_str());
      while (flock(fd.get(), LOCK_EX) != 0) {
        if (errno != EINTR) return ErrnoError(errno, "lock " + path);
      }
    }
    // The file may have been removed before it was locked.
    struct stat locked, named;
    if (fstat(fd.get(), &locked) == 0 && stat(path.c_str(), &named) == 0 &&
        locked.st_ino == named.st_ino) {
      return fd;
    }
  }
}

StatusOr<std::unique_ptr<PartialBlob>> PartialBlob::Open(const std::string& cache,
                                                         const std::string& repository_folder,
                                                         const HubFile& file, int64_t part_bytes) {
  std::error_code error;
  fs::create_directories(repository_folder + "/blobs", error);
  if (error) return ErrnoError(error.value(), "make " + repository_folder + "/blobs");
  const std::string blob = repository_folder + "/blobs/" + file.hash;
  if (fs::exists(blob, error)) return std::unique_ptr<PartialBlob>();
  ASSIGN_OR_RETURN(UniqueFd lock, LockBlob(cache, repository_folder, file.hash, file.path, true));
  if (fs::exists(blob, error)) return std::unique_ptr<PartialBlob>();
  // A list may claim any size; the map of its parts stays small.
  part_bytes = std::max(part_bytes, file.size / kMaxParts + 1);
  std::unique_ptr<PartialBlob> partial(new PartialBlob(file, blob, part_bytes));
  partial->lock_ = std::move(lock);
  RETURN_IF_ERROR(partial->OpenFiles());
  return partial;
}

Status PartialBlob::OpenFiles() {
  const std::string data = blob_ + ".tandem.incomplete", parts = blob_ + ".tandem.parts";
  ASSIGN_OR_RETURN(data_, OpenFile(data));
  ASSIGN_OR_RETURN(parts_, OpenFile(parts));
  const auto count = static_cast<size_t>((file_.size + part_bytes_ - 1) / part_bytes_);
  const std::string head = PartsHead(part_bytes_);
  std::string known(head.size() + count + 1, '\0');
  const ssize_t size = pread(parts_.get(), known.data(), known.size(), 0);
  struct stat about;
  const bool goes_on = size == static_cast<ssize_t>(head.size() + count) &&
                       known.starts_with(head) && fstat(data_.get(), &about) == 0 &&
                       about.st_size == file_.size;
  if (!goes_on) {
    known = head + std::string(count, '\0');
    // In this order a process that dies in between leaves no part that is not there.
    if (ftruncate(parts_.get(), 0) != 0) return ErrnoError(errno, "truncate " + parts);
    if (ftruncate(data_.get(), file_.size) != 0) {
      if (errno != EFBIG) return ErrnoError(errno, "resize " + data);
      return ResourceExhaustedError(file_.path + ": its " + WithCommas(file_.size) +
                                    " bytes are more than the file system takes");
    }
    RETURN_IF_ERROR(WriteAt(parts_.get(), known, 0, parts));
  }
  is_done_.assign(known.begin() + static_cast<ptrdiff_t>(kPartsHead),
                  known.begin() + static_cast<ptrdiff_t>(kPartsHead + count));
  num_missing_ = static_cast<int>(std::ranges::count(is_done_, '\0'));
  return OkStatus();
}

int64_t PartialBlob::End(int part) const { return std::min(Begin(part) + part_bytes_, file_.size); }

int64_t PartialBlob::MissingBytes() const {
  int64_t bytes = 0;
  for (int i = 0; i < num_parts(); ++i) bytes += IsDone(i) ? 0 : End(i) - Begin(i);
  return bytes;
}

Status PartialBlob::Write(int64_t offset, std::string_view bytes) {
  return WriteAt(data_.get(), bytes, offset, blob_);
}

StatusOr<bool> PartialBlob::FinishPart(int part) {
  const auto index = static_cast<size_t>(part);
  if (std::exchange(is_done_[index], '\1') != '\0') return false;
  RETURN_IF_ERROR(WriteAt(parts_.get(), "\1", static_cast<int64_t>(kPartsHead) + part, blob_));
  return num_missing_.fetch_sub(1) == 1;
}

Status PartialBlob::Discard() const {
  std::error_code error;
  fs::remove(blob_ + ".tandem.parts", error);
  fs::remove(blob_ + ".tandem.incomplete", error);
  return OkStatus();
}

Status PartialBlob::Publish() {
  ASSIGN_OR_RETURN(const std::string hash, HashOfFile(data_.get(), file_.size, file_.hash.size()));
  if (hash != file_.hash) {
    RETURN_IF_ERROR(Discard());
    return DataLossError(file_.path + ": its bytes hash to " + hash + ", the hub says " +
                         file_.hash + "; they are removed");
  }
  if (rename((blob_ + ".tandem.incomplete").c_str(), blob_.c_str()) != 0) {
    return ErrnoError(errno, "rename " + blob_);
  }
  std::error_code error;
  fs::remove(blob_ + ".tandem.parts", error);
  lock_.Reset();
  return OkStatus();
}

}  // namespace tandem
