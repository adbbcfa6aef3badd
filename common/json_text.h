#pragma once

// JSON as Python writes it, in the standard's words. Thread: any; pure.

#include <string>
#include <string_view>

namespace tandem {

// Python writes infinities as words that JSON does not have. In their place numbers beyond any that
// matters, of the same length.
std::string WithoutInfinities(std::string_view text);

}  // namespace tandem
