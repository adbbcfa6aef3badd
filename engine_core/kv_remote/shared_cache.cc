#include "engine_core/kv_remote/shared_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "common/check.h"

namespace tandem {
namespace {

constexpr uintptr_t kPageBytes = 4096;

}  // namespace

StatusOr<UniqueFd> ShareMemory(std::byte* memory, int64_t bytes) {
  CHECK_EQ(reinterpret_cast<uintptr_t>(memory) % kPageBytes, 0u);
  const UniqueFd file(memfd_create("tandem-kv", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file) return ErrnoError(errno, "memfd_create");
  if (ftruncate(file.get(), bytes) != 0) return ErrnoError(errno, "ftruncate of a memfd");
  if (fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return ErrnoError(errno, "F_ADD_SEALS");
  }
  const std::string path = "/proc/self/fd/" + std::to_string(file.get());
  UniqueFd readable(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!readable) return ErrnoError(errno, path);
  const auto size = static_cast<size_t>(bytes);
  const void* mapped = mmap(memory, size, PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_FIXED | MAP_NORESERVE, file.get(), 0);
  if (mapped == MAP_FAILED) return ErrnoError(errno, "mmap of a memfd");
  madvise(memory, size, MADV_HUGEPAGE);  // advice: small pages work too
  return readable;
}

StatusOr<MappedCache> MappedCache::Open(const UniqueFd& file, uint64_t bytes) {
  struct stat about {};
  if (fstat(file.get(), &about) != 0) return ErrnoError(errno, "fstat");
  // A process that reads beyond the end of a file that was cut is killed.
  const int seals = fcntl(file.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || bytes == 0 ||
      static_cast<uint64_t>(about.st_size) != bytes) {
    return DataLossError("the holder's cache is no sealed file of the size that it claims");
  }
  void* memory = mmap(nullptr, bytes, PROT_READ, MAP_SHARED | MAP_NORESERVE, file.get(), 0);
  if (memory == MAP_FAILED) return ErrnoError(errno, "mmap of the holder's cache");
  MappedCache cache;
  cache.memory_ = {static_cast<const std::byte*>(memory), UnmapCache{bytes}};
  return cache;
}

}  // namespace tandem
