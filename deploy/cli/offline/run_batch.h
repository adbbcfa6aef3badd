#pragma once

// `tandem run-batch -i IN -o OUT --model FOLDER [flags of tandem serve]`: runs a file of requests
// in OpenAI's batch format through a pair of its own. Results are written in the order of the
// requests; those that OUT already has are not run again, so a run that was interrupted continues.
// Returns the exit status: 0 when every request has its line (failed ones too), 2 for a bad command
// line, else 1.

#include <string>
#include <vector>

namespace tandem {

int RunBatch(const std::vector<std::string>& args);

}  // namespace tandem
