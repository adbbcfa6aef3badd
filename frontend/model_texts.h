#pragma once

// What turns requests into tokens, made of the model's folder and the flags: its tokenizer, its
// chat templates, its parsers and defaults. Logs what was chosen. Thread: main, before the others
// start. Failure: a file that is missing or wrong, with its name or the flag that names it.

#include <memory>
#include <string>

#include "common/status.h"
#include "frontend/config.h"
#include "frontend/processing/input_processor.h"

namespace tandem {

StatusOr<std::unique_ptr<InputProcessor>> MakeInputProcessor(const FrontendConfig& config);

// For /tokenizer_info; empty without the flag.
StatusOr<std::string> LoadTokenizerInfo(const FrontendConfig& config,
                                        const InputProcessor& input_processor);

}  // namespace tandem
