#include "common/file_identity.h"

#include <sys/stat.h>

#include <cstdint>

namespace tandem {

std::string FileIdentity(const std::string& path) {
  struct stat facts;
  if (stat(path.c_str(), &facts) != 0) return {};
  std::string identity;
  for (const auto number :
       {static_cast<int64_t>(facts.st_dev), static_cast<int64_t>(facts.st_ino),
        static_cast<int64_t>(facts.st_size), static_cast<int64_t>(facts.st_mtim.tv_sec),
        static_cast<int64_t>(facts.st_mtim.tv_nsec)}) {
    identity += std::to_string(number) + " ";
  }
  return identity;
}

}  // namespace tandem
