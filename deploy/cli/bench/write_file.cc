#include "deploy/cli/bench/text_file.h"

#include <fstream>
#include <sstream>

namespace tandem {

StatusOr<std::string> ReadAllText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return NotFoundError("cannot read " + path);
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

Status WriteAllText(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.flush();
  return file ? OkStatus() : UnavailableError("cannot write " + path);
}

}  // namespace tandem
