#pragma once

// Python calls with literal arguments, as some models write tool calls: f(city='Oslo', days=[1,
// 2]). Pure functions over a complete text. nullopt: the text is something else.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

struct PythonCall {
  std::string name;       // may have dots
  std::string arguments;  // a JSON object
};

// One call at the beginning of *text, which is shortened by it. Literals: strings (all quotes and
// prefixes, without braces in f-strings), numbers, True, False, None and JSON's names for them,
// lists, tuples, sets and dicts.
std::optional<PythonCall> TakePythonCall(std::string_view* text);

// "[f(a=1), g()]", and nothing but blanks around it.
std::optional<std::vector<PythonCall>> ParsePythonCallList(std::string_view text);
// One call per line.
std::optional<std::vector<PythonCall>> ParsePythonCallLines(std::string_view text);

}  // namespace tandem
