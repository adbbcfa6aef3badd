#pragma once

// GPT-2's alphabet: every byte as one printable character, so that a vocabulary file can spell any
// byte string (" hi" is "Ġhi"). Pure; any thread. Source: the GPT-2 encoder.

#include <optional>
#include <string>
#include <string_view>

namespace tandem {

// nullopt when the token holds a character outside the alphabet. REQUIRES well-formed UTF-8.
std::optional<std::string> AlphabetToBytes(std::string_view token);
std::string BytesToAlphabet(std::string_view bytes);

}  // namespace tandem
