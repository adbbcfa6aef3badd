#pragma once

// The JSON body of a request. Pure.

#include <cstddef>
#include <string>

#include "deploy/cli/bench/prompts.h"
#include "deploy/cli/bench/serve_options.h"

namespace tandem {

// What the index-th request asks for: the model, or one of the adapters. Borrows.
const std::string& RequestModel(const BenchServeOptions& options, const std::string& model,
                                size_t index);

// A streamed completion or chat completion that ends with a usage chunk, or a request for vectors
// or scores, by options.backend.
// REQUIRES: options checked.
std::string RequestBody(const BenchServeOptions& options, const std::string& model,
                        const BenchPrompt& prompt);

}  // namespace tandem
