#pragma once

// Python's regular expressions over a text that may go on, run by PCRE2: a match is reported only
// once no further text can change it. '.' matches line ends, classes know all of Unicode.
// Thread: immutable, any. Text REQUIRES well-formed UTF-8; positions are bytes. Compile:
// InvalidArgument for a wrong pattern. A pattern that runs for too long ends the search.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/status.h"

namespace tandem {

// CPU time that the patterns of one message have left.
struct RegexBudget {
  double seconds = 0.25;
};

class PartialRegex {
 public:
  static StatusOr<PartialRegex> Compile(std::string_view pattern);
  // A pattern of these words, of which a longer one comes first.
  static StatusOr<PartialRegex> OfWords(std::vector<std::string> words);
  PartialRegex(PartialRegex&&) noexcept;
  PartialRegex& operator=(PartialRegex&&) noexcept;
  ~PartialRegex();

  struct Match {
    enum class Kind {
      kNone,     // the text has none, and what comes begins after it
      kFound,    // [begin, end)
      kPending,  // the text that comes decides about what begins at `begin`
      kTooLong,  // the budget is used up
    };
    Kind kind = Kind::kNone;
    size_t begin = 0;
    size_t end = 0;
    // Of the named groups that took part.
    std::vector<std::pair<std::string, std::string>> groups = {};
  };
  // The first match that begins at `from` or later. ended: the text is all that there will be.
  Match Search(std::string_view text, size_t from, bool ended, RegexBudget* budget) const;

  bool has_named_groups() const { return !names_.empty(); }
  bool has_group(std::string_view name) const;

 private:
  struct Code;
  explicit PartialRegex(std::unique_ptr<Code> code);
  std::unique_ptr<Code> code_;
  std::vector<std::pair<std::string, uint32_t>> names_;
};

}  // namespace tandem
