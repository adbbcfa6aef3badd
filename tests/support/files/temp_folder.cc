#include "tests/support/files/temp_folder.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "common/check.h"

namespace tandem {

TempFolder::TempFolder() {
  path_ = (std::filesystem::temp_directory_path() / "tandem-test-XXXXXX").string();
  CHECK(mkdtemp(path_.data()) != nullptr) << path_;
}

TempFolder::~TempFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string TempFolder::PathOf(std::string_view name) const {
  return path_ + "/" + std::string(name);
}

void TempFolder::Write(std::string_view name, std::string_view bytes) const {
  const std::filesystem::path path = PathOf(name);
  std::filesystem::create_directories(path.parent_path());
  std::ofstream file(path, std::ios::binary);
  file << bytes;
  file.flush();
  CHECK(file.good()) << path;
}

std::string TempFolder::Read(std::string_view name) const {
  std::ifstream file(PathOf(name), std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace tandem
