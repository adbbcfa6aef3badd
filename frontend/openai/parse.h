#pragma once

// Fills a request struct from a JSON body by its field table. Pure functions; any thread.
// There are two kinds of refusal, both INVALID_ARGUMENT, with different params:
//   a body that does not have the form of a request: "N validation errors:" with at most ten of
//     them; the param is "body.<field>" of the first;
//   a value out of range or an unsupported field: the param is the field's name.
// A null counts as absent. Fields without a row are ignored and named in the debug log.

#include <string>
#include <string_view>

#include "common/fields.h"
#include "common/status.h"
#include "frontend/openai/json.h"

namespace tandem {

// Parses a field with a form of its own; may move parts out of the value. A Status without a param
// is of the field's form, one whose param is "body.<field>.…" of the form of that part; the message
// follows this place. Another param: the value is not allowed.
template <class T>
using JsonParser = Status (*)(Json& value, T* out);

// A known field that is not built: refused unless the value is this JSON text (its default).
struct Unsupported {
  std::string_view accepted = "null";
};

// A field without effect, whatever its value.
struct Ignored {};

// A field that the API has dropped: ignored with a warning.
struct Retired {
  std::string_view instead;  // the field that replaced it
};

// A field that this API does not have, or no longer, and that a client sent all the same.
struct RetiredField {
  std::string_view name;
  std::string_view instead;  // empty: nothing
};

template <class T>
using ApiField = Field<T, JsonParser<T>, Unsupported, Ignored, Retired>;

// Collects a body's errors while its fields are read.
class BodyErrors {
 public:
  void AddForm(std::string_view location, std::string_view message);
  void AddValue(Status status);  // the first one is kept
  // OK, or the error to report; a wrong form comes before a wrong value.
  Status Result() const;

 private:
  static constexpr int kMaxShown = 10;
  int num_form_errors_ = 0;
  std::string first_location_;
  std::string list_;
  Status value_error_;
};

// The body as JSON. A body that is not JSON is refused as a wrong form of "body".
StatusOr<JsonDocument> ParseJsonBody(std::string_view body, const JsonLimits& limits);

// "a string", "an integer", "null" …: the name of a value's type in messages.
std::string_view JsonTypeName(const Json& value);

// The value at the key of an object; null: it is absent, or null.
const Json* Find(const Json& object, const char* key);

// "message 3 content must be a list, got a string"; where: "message 3 content ".
Status WrongType(std::string_view where, std::string_view must_be, const Json& value);

// The error for a value that the field does not allow, with the field as param:
// "top_p must be in (0, 1], got 2.0 (parameter=top_p, value=2.0)".
Status ValueError(std::string_view field, std::string_view must_be, const Json& value);

}  // namespace tandem
