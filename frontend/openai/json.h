#pragma once

// Reads a client's JSON with limits on nesting, number of values and keys per object. Refuses
// malformed text, bad UTF-8, lone surrogates, NaN and infinities, numbers beyond a double, a
// repeated key in one object (unless it is asked for), and anything after the value. Pure
// functions; any thread.
// JsonDocument owns a value, so that structs with JSON inside need not include the JSON library.

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "common/status.h"

namespace tandem {

using Json = nlohmann::ordered_json;  // keeps the order of keys, which templates show

struct JsonLimits {
  int max_depth = 100;
  size_t max_values = 4'000'000;     // 16 bytes each; a list of prompts as token ids is the largest
  size_t max_object_keys = 100'000;  // look-ups are linear
  // A key that comes again in one object has the last value, at the place of the first, as Python
  // reads it. False: it is refused.
  bool takes_repeated_keys = false;
};

class JsonDocument {
 public:
  JsonDocument();  // null
  explicit JsonDocument(Json value);
  JsonDocument(const JsonDocument& other);
  JsonDocument(JsonDocument&&) noexcept;
  JsonDocument& operator=(JsonDocument) noexcept;
  ~JsonDocument();

  bool is_null() const;
  const Json& operator*() const { return *value_; }
  const Json* operator->() const { return value_.get(); }
  Json& mutable_value() { return *value_; }

 private:
  std::unique_ptr<Json> value_;
};

// The message gives the byte offset and the reason, and does not repeat the text.
StatusOr<JsonDocument> ParseJson(std::string_view text, const JsonLimits& limits = {});

// Compact text. Invalid UTF-8 (a token cut through a character) becomes U+FFFD.
std::string DumpJson(const Json& value);

}  // namespace tandem
