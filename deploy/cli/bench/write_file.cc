#include "deploy/cli/bench/write_file.h"

#include <fstream>

namespace tandem {

Status WriteFile(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.flush();
  return file ? OkStatus() : UnavailableError("cannot write " + path);
}

}  // namespace tandem
