#pragma once

// One row per named field of a struct that is filled from outside (a JSON body): its name, the
// member it fills, the range it must be in, what it means. The parser and the checker read the same
// rows, so a new field is a new row. Values; any thread.
// A range limits a number's value, each number of a list, or the number of bytes of each string.

#include <charconv>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace tandem {

struct Range {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool min_open = false;  // min itself is refused

  bool Contains(double value) const {  // never for NaN
    return (min_open ? value > min : value >= min) && value <= max;
  }

  // What is allowed, to follow "must be ": "in [0, 2]", "at least 1", "greater than 0".
  std::string Describe() const {
    const bool has_min = min > -std::numeric_limits<double>::infinity();
    const bool has_max = max < std::numeric_limits<double>::infinity();
    if (has_min && has_max) {
      return std::string("in ") + (min_open ? "(" : "[") + Number(min) + ", " + Number(max) + "]";
    }
    if (has_min) return (min_open ? "greater than " : "at least ") + Number(min);
    if (has_max) return "at most " + Number(max);
    return "a finite number";
  }

 private:
  static std::string Number(double value) {
    char text[32];
    return std::string(text, std::to_chars(text, text + sizeof text, value).ptr);
  }
};

// The kinds of member that a row can fill; More adds a reader's own kinds.
template <class T, class... More>
using Member =
    std::variant<bool T::*, std::optional<bool> T::*, int64_t T::*, std::optional<int64_t> T::*,
                 std::optional<double> T::*, std::string T::*, std::optional<std::string> T::*,
                 std::vector<std::string> T::*, std::vector<int64_t> T::*,
                 std::optional<std::vector<int64_t>> T::*, More...>;

template <class T, class... More>
struct Field {
  std::string_view name;
  Member<T, More...> member;
  Range range;
  std::string_view help;
  std::string_view schema = {};  // JSON schema of a member that is read by a kind of More
};

}  // namespace tandem
