#pragma once

// Base64 with the standard alphabet and padding (RFC 4648 §4). Pure; any thread.

#include <optional>
#include <string>
#include <string_view>

namespace tandem {

// nullopt for anything else than base64, line ends included. Missing padding is accepted.
std::optional<std::string> Base64Decode(std::string_view text);
std::string Base64Encode(std::string_view bytes);

}  // namespace tandem
