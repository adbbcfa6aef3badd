#include "common/read_file.h"

#include <sys/stat.h>

#include <cerrno>
#include <fstream>

namespace tandem {

StatusOr<std::string> ReadFile(const std::string& path, int64_t max_bytes) {
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0) return ErrnoError(errno, path);
  if (S_ISDIR(facts.st_mode)) return InvalidArgumentError(path + ": is a folder, not a file");
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  if (!in) return ErrnoError(errno, path);
  if (facts.st_size > max_bytes) {
    return InvalidArgumentError(path + ": holds " + std::to_string(facts.st_size) +
                                " bytes, at most " + std::to_string(max_bytes) + " are allowed");
  }
  std::string text(static_cast<size_t>(facts.st_size), '\0');
  if (!in.read(text.data(), facts.st_size)) return DataLossError(path + ": cannot be read");
  return text;
}

}  // namespace tandem
