#pragma once

// The regular expressions of tokenizer.json (Oniguruma's dialect there) run by PCRE2.
// Thread: a Regex is immutable; make one RegexMatcher per thread and call.
// Ownership: the matcher borrows the Regex. Positions are bytes. Text REQUIRES well-formed UTF-8.
// Compile: InvalidArgument for a wrong pattern, Unimplemented for a construct whose meaning differs
// between the two dialects. FindAll: ResourceExhausted when a text makes the pattern run too long.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "common/status.h"

namespace tandem {

class Regex {
 public:
  static StatusOr<Regex> Compile(std::string_view pattern);
  static std::string Escape(std::string_view literal);  // a pattern that matches just that
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;
  ~Regex();

 private:
  friend class RegexMatcher;
  struct Code;
  explicit Regex(std::unique_ptr<Code> code);
  std::unique_ptr<Code> code_;
};

struct TextRange {
  size_t begin;
  size_t end;
};

class RegexMatcher {
 public:
  explicit RegexMatcher(const Regex& regex);
  RegexMatcher(const RegexMatcher&) = delete;
  RegexMatcher& operator=(const RegexMatcher&) = delete;
  ~RegexMatcher();

  // Replaces *matches by all matches, left to right, not overlapping.
  Status FindAll(std::string_view text, std::vector<TextRange>* matches);

 private:
  struct Scratch;
  const Regex& regex_;
  std::unique_ptr<Scratch> scratch_;
};

// The `pattern` of a Replace or Split: {"String": "..."} or {"Regex": "..."}.
StatusOr<Regex> CompilePattern(const nlohmann::json& spec);
// text with each match replaced by `content`.
StatusOr<std::string> ReplaceMatches(std::string_view text, const Regex& pattern,
                                     std::string_view content);

}  // namespace tandem
