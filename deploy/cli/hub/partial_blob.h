#pragma once

// One file on its way into the cache. While it is held nobody else downloads it: the lock is the
// one that Python's huggingface_hub takes. Bytes go to blobs/HASH.tandem.incomplete, and
// HASH.tandem.parts has a byte for each part that is there, so a process that dies loses only the
// parts it was at. (Python's own *.incomplete files are left alone: they grow from their begin.)
// Thread: Write and FinishPart any, on different parts; Publish one, after all. Owns its files.

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"
#include "common/unique_fd.h"
#include "deploy/cli/hub/hub_listing.h"

namespace tandem {

class PartialBlob {
 public:
  // Waits for another process that downloads it (and says so on stderr). nullptr: the blob is
  // there. RESOURCE_EXHAUSTED, UNAVAILABLE …: the system's errors.
  static StatusOr<std::unique_ptr<PartialBlob>> Open(const std::string& cache,
                                                     const std::string& repository_folder,
                                                     const HubFile& file, int64_t part_bytes);
  PartialBlob(const PartialBlob&) = delete;

  const HubFile& file() const { return file_; }
  int num_parts() const { return static_cast<int>(is_done_.size()); }
  bool IsDone(int part) const { return is_done_[static_cast<size_t>(part)] != 0; }
  int64_t Begin(int part) const { return part * part_bytes_; }
  int64_t End(int part) const;
  int64_t MissingBytes() const;

  Status Write(int64_t offset, std::string_view bytes);
  // True for the call that completes the file.
  StatusOr<bool> FinishPart(int part);
  // Checks the hash and gives the blob its name. DATA_LOSS: the hash is another one; the bytes are
  // removed.
  Status Publish();

  // Whether the hub sends this file only whole.
  std::atomic<bool> is_whole_only = false;

 private:
  PartialBlob(HubFile file, std::string blob, int64_t part_bytes)
      : file_(std::move(file)), blob_(std::move(blob)), part_bytes_(part_bytes) {}
  Status OpenFiles();
  Status Discard() const;

  const HubFile file_;
  const std::string blob_;  // the finished file's path
  const int64_t part_bytes_;
  UniqueFd lock_, data_, parts_;
  std::vector<char> is_done_;
  std::atomic<int> num_missing_ = 0;
};

// The hash that a file of these bytes has: SHA-256, or git's SHA-1 where hash_size is 40.
StatusOr<std::string> HashOfFile(int fd, int64_t size, size_t hash_size);

// A lock file, held until the descriptor is closed. Waits, and says so; `waits` false: nullopt-like
// empty descriptor instead.
StatusOr<UniqueFd> LockBlob(const std::string& cache, const std::string& repository_folder,
                            const std::string& hash, const std::string& what, bool waits);

}  // namespace tandem
