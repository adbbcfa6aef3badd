#pragma once

// Splits one command line between the frontend's and the engine core's flag tables, changes flags
// of one, and hides the keys in one. Thread: main.

#include <string>
#include <string_view>
#include <vector>

#include "common/flags.h"
#include "common/status.h"

namespace tandem {

struct PairCommandLine {
  std::vector<std::string> frontend;
  std::vector<std::string> engine_core;
  std::vector<std::string> warnings;  // one for each of vLLM's flags that has no effect here
};

// A flag goes to each table that has it, with its values; a bare word (the model) goes to both.
// Flags of vLLM that no table has: a warning, or INVALID_ARGUMENT with what to do (vllm_flags.h).
// Unknown flags: INVALID_ARGUMENT with the nearest name that is known.
StatusOr<PairCommandLine> SplitCommandLine(const std::vector<std::string>& args,
                                           const std::vector<Flag>& frontend_flags,
                                           const std::vector<Flag>& engine_flags);

// UnknownFlagError whose nearest name may also be one of vLLM's.
Status UnknownNameError(const std::vector<Flag>& flags, std::string_view argument);

// `words` with `changes`: a flag of the changes replaces that flag of the words. Bare words become
// the values of the positional flag. REQUIRES: both have known flags only.
std::vector<std::string> ChangedFlags(const std::vector<Flag>& flags,
                                      const std::vector<std::string>& words,
                                      const std::vector<std::string>& changes);

// Overwrites API keys in argv, so that ps does not show them. For after a copy was made.
void HideKeys(int argc, char** argv);

}  // namespace tandem
