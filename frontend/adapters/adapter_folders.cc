#include "frontend/adapters/adapter_folders.h"

#include <algorithm>
#include <filesystem>

namespace tandem {
namespace {

// Hidden folders are no adapters; with them go "." and "..".
bool IsFolderName(std::string_view name) {
  constexpr size_t kMostBytes = 255;  // of a name in a file system
  const auto is_wrong = [](char c) { return c == '/' || static_cast<unsigned char>(c) < ' '; };
  return !name.empty() && name.size() <= kMostBytes && name.front() != '.' &&
         std::ranges::none_of(name, is_wrong);
}

}  // namespace

std::optional<std::string> AdapterFolders::Find(std::string_view name) const {
  if (root_.empty() || !IsFolderName(name)) return std::nullopt;
  std::string folder = root_ + "/" + std::string(name);
  std::error_code error;
  if (!std::filesystem::is_regular_file(folder + "/adapter_config.json", error)) {
    return std::nullopt;
  }
  return folder;
}

}  // namespace tandem
