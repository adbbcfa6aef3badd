#pragma once

// Numbers and booleans that a client wrote as texts, by the rules of pydantic's lax mode, on which
// vLLM's requests are built. Pure; any thread. nullopt: the text is none.

#include <cstdint>
#include <optional>
#include <string_view>

namespace tandem {

// "5", " -05 ", "1_000", "5.00": blanks around it, a sign, single underscores between digits, and a
// fraction of zeros. Also nullopt where it does not fit.
std::optional<int64_t> IntegerOfText(std::string_view text);
// "5", ".5", "5.", "1e3", "1_0.5". Those that are not finite are refused: no field takes one.
std::optional<double> NumberOfText(std::string_view text);
// 1, true, t, yes, y, on; 0, false, f, no, n, off; in any case and without blanks around it.
std::optional<bool> BooleanOfText(std::string_view text);

}  // namespace tandem
