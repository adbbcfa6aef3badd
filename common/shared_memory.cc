#include "common/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "common/check.h"

namespace tandem {

StatusOr<SharedMemory> SharedMemory::Create(const char* name, int64_t bytes) {
  UniqueFd file(memfd_create(name, MFD_CLOEXEC));
  if (!file) return ErrnoError(errno, "memfd_create");
  if (ftruncate(file.get(), bytes) != 0) return ErrnoError(errno, "ftruncate of a memfd");
  return SharedMemory(std::move(file));
}

StatusOr<SharedMemory::Mapping> SharedMemory::Map(int64_t begin, int64_t bytes) const {
  CHECK(begin % kPageBytes == 0 && bytes > 0) << begin << "+" << bytes;
  void* memory = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_NORESERVE, file_.get(), begin);
  if (memory == MAP_FAILED) {
    return ResourceExhaustedError(
        "cannot map " + std::to_string(bytes) +
        " bytes of shared memory: " + ErrnoError(errno, "mmap").message());
  }
  return Mapping(static_cast<std::byte*>(memory), Unmap{static_cast<size_t>(bytes)});
}

Status SharedMemory::Place(int64_t begin, std::byte* memory, int64_t bytes) const {
  CHECK_EQ(begin % kPageBytes, 0);
  CHECK_EQ(reinterpret_cast<uintptr_t>(memory) % uintptr_t{kPageBytes}, 0u);
  const auto size = static_cast<size_t>(bytes);
  if (mmap(memory, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE,
           file_.get(), begin) == MAP_FAILED) {
    return ErrnoError(errno, "mmap of shared memory");
  }
  madvise(memory, size, MADV_HUGEPAGE);  // advice: small pages work too
  return OkStatus();
}

Status SharedMemory::Release(int64_t begin, int64_t bytes) const {
  if (fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, begin, bytes) == 0) {
    return OkStatus();
  }
  return ErrnoError(errno, "fallocate of a memfd");
}

void SharedMemory::Unmap::operator()(std::byte* memory) const { munmap(memory, bytes); }

}  // namespace tandem
