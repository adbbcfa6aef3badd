#pragma once

// The lines of a .jsonl.gz file, each parsed. A file that cannot be read fails the test.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace tandem {

std::vector<nlohmann::json> ReadGzipLines(const std::string& path);

}  // namespace tandem
