#include "frontend/parsers/template_keys.h"

#include <algorithm>

#include "common/shorten.h"

namespace tandem::template_keys {

bool IsWordByte(char byte) {
  return (byte >= '0' && byte <= '9') || (byte >= 'A' && byte <= 'Z') ||
         (byte >= 'a' && byte <= 'z') || byte == '_' || static_cast<unsigned char>(byte) >= 0x80;
}

Status Wrong(std::string_view place, std::string_view why) {
  return InvalidArgumentError("response_template" + std::string(place.empty() ? "" : ".") +
                              std::string(place) + " " + std::string(why));
}

Status CheckKeys(std::string_view place, const Json& object,
                 std::initializer_list<std::string_view> known) {
  if (!object.is_object()) return Wrong(place, "must be an object");
  for (const auto& [key, value] : object.items()) {
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      return Wrong(place, "has a key that is not known: " + Shorten(key));
    }
  }
  return OkStatus();
}

const Json* Member(const Json& object, const char* key) {
  const auto it = object.find(key);
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

StatusOr<bool> Flag(std::string_view place, const Json& object, const char* key, bool otherwise) {
  const Json* const value = Member(object, key);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) return Wrong(place, std::string(key) + " must be true or false");
  return value->get<bool>();
}

StatusOr<std::string> Text(std::string_view place, const Json& object, const char* key,
                           std::string otherwise) {
  const Json* const value = Member(object, key);
  if (value == nullptr) return otherwise;
  if (!value->is_string() || value->get_ref<const std::string&>().empty()) {
    return Wrong(place, std::string(key) + " must be a text that is not empty");
  }
  return value->get<std::string>();
}

}  // namespace tandem::template_keys
