#pragma once

// The words for true and false of flags and environment variables. Those of request bodies are
// pydantic's (frontend/openai/lax_values.h), those of settings files YAML's. Thread: any; pure.

#include <optional>
#include <string_view>

namespace tandem {

// true, 1, yes, on; false, 0, no, off; in any case. nullopt: another word.
std::optional<bool> ParseBool(std::string_view text);

}  // namespace tandem
