#include "tests/support/gzip/gzip_lines.h"

#include <zlib.h>
#include <filesystem>

#include "common/check.h"

namespace tandem {
namespace {

std::string ReadText(const std::string& path) {
  gzFile file = gzopen(path.c_str(), "rb");
  CHECK(file != nullptr) << path;
  std::string text;
  char buffer[1 << 16];
  for (int n; (n = gzread(file, buffer, sizeof(buffer))) > 0;) {
    text.append(buffer, static_cast<size_t>(n));
  }
  gzclose(file);
  return text;
}

}  // namespace

std::vector<nlohmann::json> ReadGzipLines(const std::string& path) {
  const std::string text = ReadText(path);
  std::vector<nlohmann::json> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    lines.push_back(nlohmann::json::parse(text.substr(begin, end - begin)));
    begin = end + 1;
  }
  return lines;
}

std::string ReadGzipText(const std::string& path) {
  return ReadText(std::filesystem::exists(path) ? path : path + ".gz");
}

nlohmann::json ReadGzipJson(const std::string& path) {
  return nlohmann::json::parse(ReadGzipText(path));
}

}  // namespace tandem
