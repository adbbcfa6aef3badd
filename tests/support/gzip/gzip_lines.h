#pragma once

// Recorded JSON, packed by gzip or plain. A file that cannot be read ends the process.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace tandem {

// The lines of a file, each parsed.
std::vector<nlohmann::json> ReadGzipLines(const std::string& path);

// The file path, or path.gz where that is there instead.
std::string ReadGzipText(const std::string& path);

// The one value of such a file.
nlohmann::json ReadGzipJson(const std::string& path);

}  // namespace tandem
