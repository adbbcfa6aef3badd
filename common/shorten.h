#pragma once

// A stranger's text as an error or a line of the log repeats it. Pure; any thread.

#include <cstddef>
#include <string>
#include <string_view>

namespace tandem {

// The text; where it has more than max_bytes, its first max_bytes and "...". A character of
// well-formed UTF-8 is never cut, so up to 3 bytes fewer are left.
std::string Shorten(std::string_view text, size_t max_bytes = 256);

}  // namespace tandem
