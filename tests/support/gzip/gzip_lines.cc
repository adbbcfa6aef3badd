#include "tests/support/gzip/gzip_lines.h"

#include <zlib.h>

#include <catch2/catch.hpp>

namespace tandem {

std::vector<nlohmann::json> ReadGzipLines(const std::string& path) {
  INFO(path);
  gzFile file = gzopen(path.c_str(), "rb");
  REQUIRE(file != nullptr);
  std::string text;
  char buffer[1 << 16];
  for (int n; (n = gzread(file, buffer, sizeof(buffer))) > 0;) {
    text.append(buffer, static_cast<size_t>(n));
  }
  gzclose(file);
  std::vector<nlohmann::json> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    lines.push_back(nlohmann::json::parse(text.substr(begin, end - begin)));
    begin = end + 1;
  }
  return lines;
}

}  // namespace tandem
