#pragma once

// Fills a request struct from a JSON body by its field table. Pure functions; any thread.
// Two kinds of refusal, both INVALID_ARGUMENT; the parameter tells them apart:
//   the body does not have the form of a request: "N validation errors:" with at most ten of them,
//     param "body.<field>" of the first;
//   a value is out of range or a field is not supported: the field's name as param.
// A null counts as not given. Fields without a row are ignored and named in the debug log.

#include <string>
#include <string_view>

#include "common/fields.h"
#include "common/status.h"
#include "frontend/openai/json.h"

namespace tandem {

// A field with a form of its own; may move parts out of the value. The message of the Status
// follows "body.<field>: ".
template <class T>
using JsonParser = Status (*)(Json& value, T* out);

// A field we know but do not act on: refused unless the value is this JSON text (its default).
struct Unsupported {
  std::string_view accepted = "null";
};

// A field that changes nothing here, whatever its value.
struct Ignored {};

// A field that the API has dropped: ignored with a warning, as vLLM does.
struct Retired {
  std::string_view instead;  // the field that took its place
};

// One that a client sent.
struct RetiredField {
  std::string_view name;
  std::string_view instead;
};

template <class T>
using ApiField = Field<T, JsonParser<T>, Unsupported, Ignored, Retired>;

// Collects what is wrong with a body while its fields are read.
class BodyErrors {
 public:
  void AddForm(std::string_view location, std::string_view message);
  void AddValue(Status status);  // the first one is kept
  // What to answer; a wrong form comes before a wrong value.
  Status Result() const;

 private:
  static constexpr int kMaxShown = 10;
  int num_form_errors_ = 0;
  std::string first_location_;
  std::string list_;
  Status value_error_;
};

// The body as JSON; what is not JSON is refused as a wrong form of "body".
StatusOr<JsonDocument> ParseJsonBody(std::string_view body, const JsonLimits& limits);

// "a string", "an integer", "null" …: how a message names what it got.
std::string_view JsonTypeName(const Json& value);

// The words for a value that is not what the field allows, with the field as param:
// "top_p must be in (0, 1], got 2.0 (parameter=top_p, value=2.0)".
Status ValueError(std::string_view field, std::string_view must_be, const Json& value);

}  // namespace tandem
