#pragma once

// Reads the keys of a response_template; a message names the place and the key. Pure; any thread.

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "common/status.h"

namespace tandem::template_keys {

using Json = nlohmann::ordered_json;

inline constexpr size_t kMaxWords = 64;  // of one list

// Of a character that Python's \w matches, where those beyond ASCII all count.
bool IsWordByte(char byte);

// place: "fields.content"; empty: the template itself.
Status Wrong(std::string_view place, std::string_view why);
Status CheckKeys(std::string_view place, const Json& object,
                 std::initializer_list<std::string_view> known);
// null: the key is not there, or null.
const Json* Member(const Json& object, const char* key);
StatusOr<bool> Flag(std::string_view place, const Json& object, const char* key, bool otherwise);
StatusOr<std::string> Text(std::string_view place, const Json& object, const char* key,
                           std::string otherwise);

}  // namespace tandem::template_keys
