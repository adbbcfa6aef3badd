#pragma once

// Memory that several processes map: a file without a name, so that nothing is left of it when the
// last of them has ended. Its pages are zeros, and take memory once they are touched: a file may be
// far larger than the host's memory.
// Thread: any. Failure: the Status of the system call.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "common/status.h"
#include "common/unique_fd.h"

namespace tandem {

class SharedMemory {
 public:
  static StatusOr<SharedMemory> Create(const char* name, int64_t bytes);
  // The memory that another process has created.
  static SharedMemory Open(UniqueFd file) { return SharedMemory(std::move(file)); }

  int file() const { return file_.get(); }

  struct Unmap {
    size_t bytes = 0;
    void operator()(std::byte* memory) const;
  };
  using Mapping = std::unique_ptr<std::byte, Unmap>;
  // [begin, begin + bytes) of it.  REQUIRES: begin is a multiple of kPageBytes.
  static constexpr int64_t kPageBytes = 4096;
  StatusOr<Mapping> Map(int64_t begin, int64_t bytes) const;
  // Puts such a part in the place of private memory, whose content is lost. Unmapping that
  // memory unmaps the part. REQUIRES: the memory, too, begins with a page.
  Status Place(int64_t begin, std::byte* memory, int64_t bytes) const;
  // Gives the pages of a part back that nobody uses any more: they are zeros again.
  Status Release(int64_t begin, int64_t bytes) const;

 private:
  explicit SharedMemory(UniqueFd file) : file_(std::move(file)) {}

  UniqueFd file_;
};

}  // namespace tandem
