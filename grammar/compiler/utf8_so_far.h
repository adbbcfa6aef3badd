#pragma once

// Whether bytes that come piece by piece can become UTF-8: tokens end within characters. xgrammar
// counts continuation bytes and leaves open which.
// Pure; any thread.

#include <string_view>

namespace tandem {

// Whether the bytes are UTF-8, but for a last character that is not complete yet.
bool IsUtf8SoFar(std::string_view bytes);
// That last character; empty when there is none. REQUIRES IsUtf8SoFar(bytes).
std::string_view OpenCharacter(std::string_view bytes);
// Whether some text before it makes it so.
bool CanFollowOpenCharacter(std::string_view bytes);

}  // namespace tandem
