#pragma once

// The directory of a ZIP archive whose entries are stored as they are, which is how torch.save
// writes it. Compressed entries and archives beyond 4 GB are not read.
// Pure; any thread. Views point into the archive. Failure: INVALID_ARGUMENT.

#include <string_view>
#include <vector>

#include "common/status.h"

namespace tandem {

struct ZipEntry {
  std::string_view name;
  std::string_view data;
};

StatusOr<std::vector<ZipEntry>> ReadZipEntries(std::string_view archive);

}  // namespace tandem
