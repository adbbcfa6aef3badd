#include "engine_core/executor/cgroup_memory.h"

#include <algorithm>
#include <fstream>
#include <initializer_list>
#include <optional>

namespace tandem {
namespace {

// Names of the same files in the two versions.
struct Version {
  const char* mount;
  const char* limit;
  const char* usage;
  std::initializer_list<const char*> file_cache;  // lines of memory.stat
};

const Version kVersion2 = {
    "/sys/fs/cgroup", "memory.max", "memory.current", {"active_file", "inactive_file"}};
const Version kVersion1 = {"/sys/fs/cgroup/memory",
                           "memory.limit_in_bytes",
                           "memory.usage_in_bytes",
                           {"total_active_file", "total_inactive_file"}};

// Version 1 writes a number above this where version 2 writes "max".
constexpr int64_t kNoLimit = int64_t{1} << 62;

// nullopt when the file is absent or contains "max".
std::optional<int64_t> ReadNumber(const std::string& path) {
  std::ifstream in(path);
  int64_t number = 0;
  if (!(in >> number)) return std::nullopt;
  return number;
}

int64_t FileCacheBytes(const std::string& folder, const Version& version) {
  std::ifstream in(folder + "/memory.stat");
  std::string name;
  int64_t bytes = 0, sum = 0;
  while (in >> name >> bytes) {
    for (const char* wanted : version.file_cache) sum += name == wanted ? bytes : 0;
  }
  return sum;
}

// One cgroup's own numbers, if it has a limit.
void Tighten(const std::string& folder, const Version& version, CgroupMemory* memory) {
  const std::optional<int64_t> limit = ReadNumber(folder + "/" + version.limit);
  if (!limit || *limit >= kNoLimit) return;  // the next files cost the kernel a sum over all CPUs
  memory->limit_bytes = std::min(memory->limit_bytes, *limit);
  const int64_t used = ReadNumber(folder + "/" + version.usage).value_or(0);
  const int64_t held = std::max<int64_t>(0, used - FileCacheBytes(folder, version));
  memory->available_bytes = std::min(memory->available_bytes, std::max<int64_t>(0, *limit - held));
}

// From the cgroup up to the mount. In a container the path may be the host's and not exist below
// the mount; the mount itself is the container's cgroup then.
void TightenUpwards(const std::string& root, std::string path, const Version& version,
                    CgroupMemory* memory) {
  if (path.find("/..") != std::string::npos) path.clear();  // outside of the mount
  while (path.ends_with('/')) path.pop_back();
  for (;;) {
    Tighten(root + version.mount + path, version, memory);
    if (path.empty()) return;
    path.erase(path.rfind('/'));
  }
}

bool IsMemory(const std::string& controllers) {
  return ("," + controllers + ",").find(",memory,") != std::string::npos;
}

}  // namespace

CgroupMemory ReadCgroupMemory(const std::string& root) {
  CgroupMemory memory;
  // "0::/path" is version 2, "9:cpu,memory:/path" version 1.
  std::ifstream in(root + "/proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos || line.find('/', second) != second + 1) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty()) TightenUpwards(root, path, kVersion2, &memory);
    if (IsMemory(controllers)) TightenUpwards(root, path, kVersion1, &memory);
  }
  return memory;
}

}  // namespace tandem
