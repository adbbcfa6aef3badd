#pragma once

// Keys of sentence-transformers' files that would change a model's vectors and are not followed.
// Thread: any; pure but for the files. Failure: none; a file that is broken is for
// ReadPoolerConfig.

#include <string>
#include <vector>

namespace tandem {

// A line for each, for the log at start.
std::vector<std::string> IgnoredPoolingKeys(const std::string& model);

}  // namespace tandem
