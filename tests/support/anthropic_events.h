#pragma once

// Reads a stream of Anthropic's API the way its clients do. Dies with a message on a stream that
// breaks the order of events, so a test need not check it.

#include <nlohmann/json.hpp>
#include <string_view>

namespace tandem {

// The message that the events add up to: content blocks with their deltas joined, input of calls as
// "input_json" (its text), stop_reason, stop_sequence, usage, and "start" (message_start's
// message).
nlohmann::json PutTogether(std::string_view stream);

}  // namespace tandem
