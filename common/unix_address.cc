#include "common/unix_address.h"

#include <string>

namespace tandem {

StatusOr<sockaddr_un> UnixAddress(std::string_view path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  constexpr size_t kMaxSize = sizeof address.sun_path - 1;  // and its terminator
  if (path.empty()) return InvalidArgumentError("a socket's path is empty");
  if (path.size() > kMaxSize) {
    return InvalidArgumentError("path " + std::string(path) +
                                " is too long for a socket, whose path may have " +
                                std::to_string(kMaxSize) + " bytes");
  }
  if (path.find('\0') != path.npos) {
    return InvalidArgumentError("a socket's path has a NUL in it");
  }
  path.copy(address.sun_path, path.size());
  return address;
}

}  // namespace tandem
