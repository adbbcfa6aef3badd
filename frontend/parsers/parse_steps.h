#pragma once

// What the formats of tool calls have in common: text up to a marker, and JSON that is looked at
// before it is consumed. Everything here is a coroutine over a TextSource, on its caller's thread.
// JSON is read as models write it: only brackets and strings count, so that a call with a slip in
// it still ends where it should, and control characters inside strings are escaped.

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/parsers/text_source.h"

namespace tandem {

class MessageSink;

using Markers = std::vector<std::string_view>;  // a longer one comes before its own beginning
// Markers in a co_await expression: gcc 12 does not compile a braced list there.
template <class... Words>
Markers AnyOf(const Words&... words) {
  return {std::string_view(words)...};
}
using TextFunction = std::function<void(std::string_view)>;

inline constexpr int kNoMarker = -1;

// Consumes the text up to one of the markers, and the marker; gives its index, or kNoMarker where
// the text ends first. Text that may be the beginning of a marker waits until that is known.
Parse<int> CopyUntil(TextSource& text, Markers markers, TextFunction add);

struct TextUntil {
  std::string text;
  int marker = kNoMarker;
};
Parse<TextUntil> TakeUntil(TextSource& text, Markers markers);

// Consumes what is left of the text.
Parse<> CopyRest(TextSource& text, TextFunction add);

// The offset after blanks, or after the JSON value, that begin at `offset`; consumes nothing.
// nullopt: the text ends within the value. Nesting beyond 256 ends a value.
Parse<size_t> ScanBlanks(TextSource& text, size_t offset);
Parse<std::optional<size_t>> ScanJson(TextSource& text, size_t offset);

// Consumes one JSON value. False: the text ended within it.
Parse<bool> CopyJson(TextSource& text, TextFunction add);

// The members of an object that is a call. id: empty, such objects have none.
struct CallKeys {
  std::string_view name = "name";
  std::string_view arguments = "arguments";
  std::string_view other_arguments = "parameters";
  std::string_view id = {};
};

// An object with a name and arguments, looked at from `offset` on.
struct ScannedCall {
  enum class Kind {
    kNone,       // no such object stands there
    kCut,        // the text ended before that was known
    kName,       // an object with a name and without arguments
    kArguments,  // the arguments begin at `arguments`; what comes after them has not been looked at
    kWhole,      // the arguments came before the name
  };
  Kind kind = Kind::kNone;
  std::string name;
  std::string id;  // where it came before what is reported
  size_t arguments = 0;
  size_t end = 0;  // after the object: kName, kWhole, and kNone where it is an object
};
Parse<ScannedCall> ScanCall(TextSource& text, size_t offset, CallKeys keys = {});

enum class StringArguments {
  kQuoted,    // arguments that are a JSON string are passed on as that
  kUnquoted,  // its content is what is passed on
};
// Consumes the object that ScanCall has found, with all that its text has, and adds the call. A
// call without arguments has {}.
Parse<> CopyCall(TextSource& text, ScannedCall call, StringArguments strings, MessageSink* sink);

// At a '[': consumes a list of call objects while it is one. False: the text went on otherwise, or
// ended; the rest is not consumed.
Parse<bool> CopyCallList(TextSource& text, StringArguments strings, MessageSink* sink,
                         CallKeys keys = {});

// A complete list of objects with name and arguments as calls. False, and nothing is added: it is
// no such list, or one of the objects has no arguments.
bool AddCallsOf(std::string_view json_list, StringArguments strings, MessageSink* sink);

}  // namespace tandem
