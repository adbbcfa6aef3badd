#pragma once

// Regular expressions of strings in JSON schemas. xgrammar matches one against the text between
// the quotes as JSON writes it, and keeps quotes, backslashes and control characters out of it,
// which JSON has only escaped: but not where the expression has other than printable ASCII, nor
// where it would match nothing else. Then the text would be no JSON.
// Pure; any thread. What is no regular expression is left to the library to refuse.

#include <string>
#include <string_view>

namespace tandem {

// The same expression with escapes for what is not printable ASCII. REQUIRES: UTF-8.
std::string InPrintableAscii(std::string_view regex);

// Whether it matches a text of characters that JSON need not escape.
bool MatchesUnescapedText(std::string_view regex);

}  // namespace tandem
