#pragma once

// A read-only mapping of a whole file. Movable; any thread may read it.
// Failure: the system's error, something that is not a regular file, an empty file; the message has
// the path. The file must not be truncated by others while it is mapped (SIGBUS).

#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "common/status.h"

namespace tandem {

class MappedFile {
 public:
  static StatusOr<MappedFile> Open(const std::string& path);
  MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  MappedFile& operator=(MappedFile&&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  explicit MappedFile(std::span<const std::byte> bytes) : bytes_(bytes) {}
  std::span<const std::byte> bytes_;
};

// Gives pages of a mapping back to the kernel. Only those that lie wholly inside the bytes: a
// neighbour may still be in use. A dropped page is read again from the page cache when touched, so
// this is never wrong.
void ReleasePages(std::span<const std::byte> bytes);
// The same, and the page that they begin in: for a mapping that is read piece by piece from its
// front on, of whose pages none should stay.
void ReleaseReadPages(std::span<const std::byte> bytes);

}  // namespace tandem
