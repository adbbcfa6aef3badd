#pragma once

// Numbers as Python writes them. Pure; any thread.

#include <optional>
#include <string>
#include <string_view>

namespace tandem::jinja {

// Python's integers have no limit; ours have 127 bits, and arithmetic that leaves them fails.
__extension__ using Int = __int128;

std::string FormatInt(Int value);
// Python's repr: the shortest text that reads back as the same double; 1.0, 1e+20, 1e-07, inf, nan.
std::string FormatFloat(double value);
// Digits with an optional sign and base prefix for `base`; nullopt for no digits or too large a
// number.
std::optional<Int> ParseInt(std::string_view digits, int base);
std::optional<double> ParseFloat(std::string_view text);

}  // namespace tandem::jinja
