#include "frontend/parsers/partial_regex.h"

#include <algorithm>

#include "common/check.h"
#include "common/pcre2_text.h"
#include "common/shorten.h"
#include "common/thread_clock.h"
#include "common/utf8.h"

namespace tandem {
namespace {

constexpr size_t kMaxPatternBytes = 16 << 10;
// Of one place where a match may begin: a group that repeats over a long value takes a step for
// each of its characters.
constexpr uint32_t kMaxSteps = 1'000'000;
constexpr uint32_t kMaxHeapKiB = 16 << 10;
// Places that are tried between two looks at the clock.
constexpr size_t kPlaces = 256;

// What Python and PCRE2 write in different ways: \Z, \uXXXX and \UXXXXXXXX.
std::string Translate(std::string_view pattern) {
  std::string out;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char escaped = pattern[i] == '\\' && i + 1 < pattern.size() ? pattern[i + 1] : '\0';
    const size_t num_digits = escaped == 'u' ? 4 : escaped == 'U' ? 8 : 0;
    if (escaped == 'Z') {
      out += "\\z";
      ++i;
    } else if (num_digits > 0 && i + 2 + num_digits <= pattern.size()) {
      out.append("\\x{").append(pattern.substr(i + 2, num_digits)).append("}");
      i += 1 + num_digits;
    } else {
      out += pattern[i];
      if (escaped != '\0') out += pattern[++i];
    }
  }
  return out;
}

}  // namespace

struct PartialRegex::Code {
  pcre2_code* code = nullptr;
  Code() = default;
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  ~Code() { pcre2_code_free(code); }
};

PartialRegex::PartialRegex(std::unique_ptr<Code> code) : code_(std::move(code)) {
  uint32_t num_names = 0, entry_bytes = 0;
  PCRE2_SPTR table = nullptr;
  pcre2_pattern_info(code_->code, PCRE2_INFO_NAMECOUNT, &num_names);
  pcre2_pattern_info(code_->code, PCRE2_INFO_NAMEENTRYSIZE, &entry_bytes);
  pcre2_pattern_info(code_->code, PCRE2_INFO_NAMETABLE, &table);
  for (uint32_t i = 0; i < num_names; ++i, table += entry_bytes) {
    const uint32_t number = static_cast<uint32_t>(table[0]) << 8 | table[1];
    names_.emplace_back(reinterpret_cast<const char*>(table + 2), number);
  }
}

PartialRegex::PartialRegex(PartialRegex&&) noexcept = default;
PartialRegex& PartialRegex::operator=(PartialRegex&&) noexcept = default;
PartialRegex::~PartialRegex() = default;

StatusOr<PartialRegex> PartialRegex::Compile(std::string_view pattern) {
  if (pattern.size() > kMaxPatternBytes) {
    return InvalidArgumentError("regular expression of " + std::to_string(pattern.size()) +
                                " bytes, at most " + std::to_string(kMaxPatternBytes) +
                                " are allowed");
  }
  const std::string translated = Translate(pattern);
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto code = std::make_unique<Code>();
  code->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                             PCRE2_UTF | PCRE2_UCP | PCRE2_DOTALL | PCRE2_USE_OFFSET_LIMIT, &error,
                             &offset, nullptr);
  if (code->code == nullptr) {
    return InvalidArgumentError("regular expression " + Shorten(pattern) + ": " +
                                Pcre2ErrorText(error));
  }
  return PartialRegex(std::move(code));
}

StatusOr<PartialRegex> PartialRegex::OfWords(std::vector<std::string> words) {
  std::stable_sort(words.begin(), words.end(),
                   [](const std::string& a, const std::string& b) { return a.size() > b.size(); });
  std::string pattern;
  for (const std::string& word : words) {
    if (!pattern.empty()) pattern += '|';
    pattern += Pcre2Literal(word);
  }
  return Compile(pattern);
}

bool PartialRegex::has_group(std::string_view name) const {
  return std::any_of(names_.begin(), names_.end(),
                     [name](const auto& group) { return group.first == name; });
}

PartialRegex::Match PartialRegex::Search(std::string_view text, size_t from, bool ended,
                                         RegexBudget* budget) const {
  using Kind = Match::Kind;
  Match match;
  if (budget->seconds <= 0) {
    match.kind = Kind::kTooLong;
    return match;
  }
  struct Scratch {
    pcre2_match_context* context = pcre2_match_context_create(nullptr);
    pcre2_match_data* data;
    explicit Scratch(const pcre2_code* code)
        : data(pcre2_match_data_create_from_pattern(code, nullptr)) {
      CHECK(context != nullptr && data != nullptr);
      pcre2_set_match_limit(context, kMaxSteps);
      pcre2_set_heap_limit(context, kMaxHeapKiB);
    }
    ~Scratch() {
      pcre2_match_data_free(data);
      pcre2_match_context_free(context);
    }
  } scratch(code_->code);
  const ThreadClock clock;
  const double start = clock.Seconds();
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const PCRE2_SIZE* found = pcre2_get_ovector_pointer(scratch.data);
  const uint32_t options = PCRE2_NO_UTF_CHECK | (ended ? 0 : PCRE2_PARTIAL_HARD);
  for (size_t at = from; at <= text.size();) {
    size_t last = std::min(text.size(), at + kPlaces);
    while (last < text.size() && IsUtf8Continuation(text[last])) ++last;
    pcre2_set_offset_limit(scratch.context, last);
    const int result =
        pcre2_match(code_->code, subject, text.size(), at, options, scratch.data, scratch.context);
    const double used = clock.Seconds() - start;
    if (result >= 0 || result == PCRE2_ERROR_PARTIAL) {
      budget->seconds -= used;
      match.kind = result >= 0 ? Kind::kFound : Kind::kPending;
      match.begin = found[0];
      match.end = found[1];
      // An empty match at the end: what comes may be part of a longer one.
      if (!ended && match.begin == text.size()) match.kind = Kind::kNone;
      if (match.kind != Kind::kFound) return match;
      for (const auto& [name, number] : names_) {
        const size_t begin = found[2 * number], end = found[2 * number + 1];
        if (begin == PCRE2_UNSET || end < begin) continue;
        match.groups.emplace_back(name, text.substr(begin, end - begin));
      }
      return match;
    }
    if (result != PCRE2_ERROR_NOMATCH || used > budget->seconds) {
      budget->seconds = 0;
      match.kind = Kind::kTooLong;
      return match;
    }
    at = last + 1;
    while (at < text.size() && IsUtf8Continuation(text[at])) ++at;
  }
  budget->seconds -= clock.Seconds() - start;
  return match;
}

}  // namespace tandem
