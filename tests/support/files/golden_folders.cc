#include "tests/support/files/golden_folders.h"

#include <cstdlib>
#include <filesystem>
#include <map>

#include "common/check.h"

namespace tandem {

std::optional<std::string> WholeGoldens() {
  const char* folder = std::getenv("TANDEM_GOLDENS");
  if (folder == nullptr || *folder == '\0') return std::nullopt;
  return folder;
}

bool HasGolden(const std::string& folder, const std::string& file) {
  const std::string path = folder + "/" + file;
  return std::filesystem::exists(path) || std::filesystem::exists(path + ".gz");
}

std::vector<std::string> GoldenFolders(const std::string& golden_dir, const std::string& kind,
                                       const std::string& file) {
  std::vector<std::string> roots = {golden_dir};
  if (const auto more = WholeGoldens()) {
    CHECK(std::filesystem::is_directory(*more + "/" + kind)) << *more << "/" << kind;
    roots.push_back(*more);
  }
  std::map<std::string, std::string> folders;
  for (const std::string& root : roots) {
    for (const auto& entry : std::filesystem::directory_iterator(root + "/" + kind)) {
      if (!HasGolden(entry.path().string(), file)) continue;
      folders[entry.path().filename().string()] = entry.path().string();
    }
  }
  std::vector<std::string> paths;
  for (const auto& [name, path] : folders) paths.push_back(path);
  return paths;
}

}  // namespace tandem
