#pragma once

// `tandem complete "text" --model FOLDER [flags]`: continues one text through a pair of its own,
// prints what is generated as it comes, and ends. Returns the exit status: 0 when the text is
// complete, 2 for a bad command line, else 1.

#include <string>
#include <vector>

namespace tandem {

int RunComplete(const std::vector<std::string>& args);

}  // namespace tandem
