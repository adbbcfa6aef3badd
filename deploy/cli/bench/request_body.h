#pragma once

// The JSON body of a request. Pure.

#include <string>

#include "deploy/cli/bench/prompts.h"
#include "deploy/cli/bench/serve_options.h"

namespace tandem {

// A streamed completion or chat completion, by options.backend, that ends with a usage chunk.
// REQUIRES: options checked.
std::string RequestBody(const BenchServeOptions& options, const std::string& model,
                        const BenchPrompt& prompt);

}  // namespace tandem
