#pragma once

// Where recorded results lie: tests/golden of the source tree, and the larger set that the variable
// TANDEM_GOLDENS names when it is set. Pure but for the file system.

#include <optional>
#include <string>
#include <vector>

namespace tandem {

// The folder that TANDEM_GOLDENS names; nullopt when it is not set, or empty.
std::optional<std::string> WholeGoldens();

// Whether the folder has `file` or `file`.gz; tests/support/gzip reads either.
bool HasGolden(const std::string& folder, const std::string& file);

// The folders <root>/<kind>/<name> that have `file` so, sorted by name; of two with one
// name the one in TANDEM_GOLDENS counts. Dies when TANDEM_GOLDENS is set and has no folder <kind>.
std::vector<std::string> GoldenFolders(const std::string& golden_dir, const std::string& kind,
                                       const std::string& file);

}  // namespace tandem
