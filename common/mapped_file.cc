#include "common/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

namespace tandem {

StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  // A named pipe's other end is not waited for.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return ErrnoError(errno, "open " + path);
  struct stat info = {};
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    close(fd);
    return InvalidArgumentError(path + ": not a regular file");
  }
  const size_t size = static_cast<size_t>(info.st_size);
  void* data = size == 0 ? MAP_FAILED : mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  const int map_error = errno;
  close(fd);
  if (size == 0) return DataLossError(path + ": the file is empty");
  if (data == MAP_FAILED) return ErrnoError(map_error, "mmap " + path);
  return MappedFile({static_cast<const std::byte*>(data), size});
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

namespace {

uintptr_t PageSize() { return static_cast<uintptr_t>(sysconf(_SC_PAGESIZE)); }

}  // namespace

void ReleasePages(std::span<const std::byte> bytes) {
  const uintptr_t page = PageSize();
  const auto begin = reinterpret_cast<uintptr_t>(bytes.data());
  const uintptr_t skipped = (page - begin % page) % page;
  if (bytes.size() < skipped + page) return;
  madvise(const_cast<std::byte*>(bytes.data()) + skipped, (bytes.size() - skipped) / page * page,
          MADV_DONTNEED);
}

void ReleaseReadPages(std::span<const std::byte> bytes) {
  const uintptr_t before = reinterpret_cast<uintptr_t>(bytes.data()) % PageSize();
  ReleasePages({bytes.data() - before, bytes.size() + before});
}

}  // namespace tandem
