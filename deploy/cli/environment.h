#pragma once

// Variables of the environment that are named as ours or vLLM's are, but that no program here
// reads: what they ask for does not happen, which a start reports. Pure; any thread.

#include <string>
#include <vector>

#include "common/flags.h"

namespace tandem {

// Names that begin with TANDEM_ or VLLM_ in `environment` ("NAME=value", ended by null, as
// environ), sorted, without those that a flag has or that are read elsewhere. An empty value is
// "not set".
std::vector<std::string> UnreadVariables(const char* const* environment,
                                         const std::vector<Flag>& flags);

// What a start reports of them; "" for none.
std::string UnreadVariablesWarning(const std::vector<std::string>& names);

}  // namespace tandem
