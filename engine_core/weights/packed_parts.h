#pragma once

// Whether the bytes of a file of packed matrices are those that were written. A start maps them
// and reads none, so this is asked afterwards (engine_core/packed_check.h), or by
// `tandem pack --verify`. What was found damaged is marked beside the file, so that no later start
// serves it before it is found again; a file in its place is another one, and not marked.
// Thread: any. Ownership: keeps the mapping. Failure: DATA_LOSS names file and place.

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "common/mapped_file.h"
#include "common/status.h"
#include "engine_core/weights/packed_header.h"

namespace tandem {

class PackedParts {
 public:
  // file: the mapping of what `path` names now.
  PackedParts(std::string path, std::shared_ptr<const MappedFile> file,
              std::vector<PackedHeader::Part> parts);

  const std::string& path() const { return path_; }
  // The file has no hashes.
  bool empty() const { return parts_.empty(); }
  int64_t num_bytes() const;
  // Reads all of them. CANCELLED once `ends` is true.
  Status Check(const std::atomic<bool>& ends) const;
  // Where the folder cannot be written, nothing happens.
  void MarkDamaged() const;

 private:
  std::string path_;
  std::string identity_;  // of the file that was mapped; empty: it has gone
  std::shared_ptr<const MappedFile> file_;
  std::vector<PackedHeader::Part> parts_;
};

// DATA_LOSS: it is marked.
Status CheckNotMarked(const std::string& path);

}  // namespace tandem
