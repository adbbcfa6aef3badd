#include "common/read_file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace tandem {
namespace {

constexpr size_t kChunkBytes = 64 << 10;

// Until one who writes has opened the pipe, or bytes are in it. False: nobody has in time.
bool WaitForWriter(int fd, int limit_s) {
  pollfd waiting = {fd, POLLIN, 0};
  int num_ready;
  while ((num_ready = ::poll(&waiting, 1, limit_s * 1000)) < 0 && errno == EINTR) {
  }
  return num_ready != 0;
}

StatusOr<std::string> ReadAll(int fd, const std::string& path, int64_t max_bytes,
                              int writer_limit_s) {
  struct stat facts {};
  if (::fstat(fd, &facts) != 0) return ErrnoError(errno, path);
  if (S_ISDIR(facts.st_mode)) return InvalidArgumentError(path + ": is a folder, not a file");
  const bool has_writer = !S_ISFIFO(facts.st_mode) || WaitForWriter(fd, writer_limit_s);
  // From here on a read waits as long as somebody has the pipe open to write.
  if (::fcntl(fd, F_SETFL, O_RDONLY) != 0) return ErrnoError(errno, path);
  if (facts.st_size > max_bytes) {
    return InvalidArgumentError(path + ": holds " + std::to_string(facts.st_size) +
                                " bytes, at most " + std::to_string(max_bytes) + " are allowed");
  }
  // One byte more than expected, so that the end is found without growing.
  std::string text(static_cast<size_t>(facts.st_size) + 1, '\0');
  size_t num_read = 0;
  while (true) {
    if (num_read == text.size()) text.resize(num_read + kChunkBytes);
    const ssize_t result = ::read(fd, text.data() + num_read, text.size() - num_read);
    if (result < 0 && errno == EINTR) continue;
    if (result < 0) return ErrnoError(errno, path);
    if (result == 0 && num_read == 0 && !has_writer) {
      return FailedPreconditionError(path + ": a pipe to which nobody has written for " +
                                     std::to_string(writer_limit_s) + " s");
    }
    if (result == 0) break;
    num_read += static_cast<size_t>(result);
    if (num_read > static_cast<size_t>(max_bytes)) {
      return InvalidArgumentError(path + ": holds more than the " + std::to_string(max_bytes) +
                                  " bytes that are allowed");
    }
  }
  text.resize(num_read);
  return text;
}

}  // namespace

StatusOr<std::string> ReadFile(const std::string& path, int64_t max_bytes, int writer_limit_s) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return ErrnoError(errno, path);
  StatusOr<std::string> text = ReadAll(fd, path, max_bytes, writer_limit_s);
  ::close(fd);
  return text;
}

StatusOr<std::string> ReadFileIfAny(const std::string& path, int64_t max_bytes) {
  StatusOr<std::string> text = ReadFile(path, max_bytes);
  if (!text.ok() && text.status().code() == StatusCode::kNotFound) return std::string();
  return text;
}

}  // namespace tandem
