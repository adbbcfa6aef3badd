#pragma once

// How the message of a validation error begins that a request's rules about tokens cause together:
// no one field is wrong.

#include <string_view>

namespace tandem::wire {

inline constexpr std::string_view kNoTokenLeft = "no token is left that may be sampled";

}  // namespace tandem::wire
