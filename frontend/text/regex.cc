#include "frontend/text/regex.h"

#include <array>

#include "common/pcre2_text.h"
#include "frontend/text/json_fields.h"

namespace tandem {
namespace {

// Oniguruma's \s. PCRE2's own also matches U+180E.
constexpr std::string_view kSpaceInClass = R"(\t-\r\x{85}\p{Z})";

// PCRE2 reads a bare script name as "used with this script", Oniguruma as "belongs to it".
constexpr std::array<std::string_view, 16> kScripts = {
    "Han",    "Hiragana", "Katakana", "Hangul", "Latin",   "Greek", "Cyrillic",   "Arabic",
    "Hebrew", "Thai",     "Lao",      "Khmer",  "Bengali", "Tamil", "Devanagari", "Myanmar"};

Status Unsupported(std::string_view what, std::string_view pattern) {
  return UnimplementedError("regular expression: " + std::string(what) + " in \"" +
                            std::string(pattern) + "\"");
}

// The escape at pattern[pos] (a backslash) in PCRE2's words; moves pos past it.
Status TranslateEscape(std::string_view pattern, bool in_class, size_t* pos, std::string* out) {
  if (*pos + 1 >= pattern.size()) return Unsupported("a lone backslash", pattern);
  const char kind = pattern[*pos + 1];
  *pos += 2;
  switch (kind) {
    case 's':
      *out += in_class ? std::string(kSpaceInClass) : "[" + std::string(kSpaceInClass) + "]";
      return OkStatus();
    case 'S':
      // Inside a class there is no way to splice a negation; there they differ in U+180E alone.
      *out += in_class ? "\\S" : "[^" + std::string(kSpaceInClass) + "]";
      return OkStatus();
    case 'h':
      *out += in_class ? "0-9A-Fa-f" : "[0-9A-Fa-f]";
      return OkStatus();
    case 'p':
    case 'P':
      for (const std::string_view script : kScripts) {
        const std::string braced = "{" + std::string(script) + "}";
        if (pattern.substr(*pos).starts_with(braced)) {
          *out += std::string("\\") + kind + "{sc:" + std::string(script) + "}";
          *pos += braced.size();
          return OkStatus();
        }
      }
      break;
    default:
      break;
  }
  *out += '\\';
  *out += kind;
  return OkStatus();
}

StatusOr<std::string> Translate(std::string_view pattern) {
  std::string out;
  bool in_class = false;
  for (size_t pos = 0; pos < pattern.size();) {
    const char c = pattern[pos];
    if (c == '\\') {
      RETURN_IF_ERROR(TranslateEscape(pattern, in_class, &pos, &out));
      continue;
    }
    if (!in_class && c == '[') {
      in_class = true;
      out += c;
      ++pos;
      if (pos < pattern.size() && pattern[pos] == '^') out += pattern[pos++];
      continue;
    }
    if (in_class) {
      if (c == ']') in_class = false;
      if (c == '[') return Unsupported("a class inside a class", pattern);
      if (c == '&' && pattern.substr(pos).starts_with("&&")) {
        return Unsupported("the class operator &&", pattern);
      }
    } else if (c == '{' && pattern.substr(pos).starts_with("{,")) {
      out += "{0";
      ++pos;
      continue;
    }
    out += c;
    ++pos;
  }
  return out;
}

}  // namespace

struct Regex::Code {
  pcre2_code* code = nullptr;
  bool jit = false;
  ~Code() { pcre2_code_free(code); }
};

struct RegexMatcher::Scratch {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  ~Scratch() { pcre2_match_data_free(data); }
};

Regex::Regex(std::unique_ptr<Code> code) : code_(std::move(code)) {}
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;
Regex::~Regex() = default;

StatusOr<Regex> Regex::Compile(std::string_view pattern) {
  constexpr size_t kMaxPatternBytes = 64 << 10;
  if (pattern.size() > kMaxPatternBytes) {
    return InvalidArgumentError("regular expression of " + std::to_string(pattern.size()) +
                                " bytes, at most 65536 allowed");
  }
  ASSIGN_OR_RETURN(const std::string translated, Translate(pattern));
  int error = 0;
  PCRE2_SIZE error_offset = 0;
  auto code = std::make_unique<Code>();
  code->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                             PCRE2_UTF | PCRE2_UCP, &error, &error_offset, nullptr);
  if (code->code == nullptr) {
    return InvalidArgumentError("regular expression \"" + std::string(pattern) +
                                "\": " + Pcre2ErrorText(error));
  }
  // A hardened process may not map executable memory; then the interpreter does it.
  code->jit = pcre2_jit_compile(code->code, PCRE2_JIT_COMPLETE) == 0;
  return Regex(std::move(code));
}

std::string Regex::Escape(std::string_view literal) { return Pcre2Literal(literal); }

RegexMatcher::RegexMatcher(const Regex& regex)
    : regex_(regex), scratch_(std::make_unique<Scratch>()) {}
RegexMatcher::~RegexMatcher() = default;

Status RegexMatcher::FindAll(std::string_view text, std::vector<TextRange>* matches) {
  matches->clear();
  const Regex::Code& code = *regex_.code_;
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const PCRE2_SIZE* found = pcre2_get_ovector_pointer(scratch_->data);
  size_t last_end = text.size() + 1;
  for (size_t pos = 0; pos <= text.size();) {
    int count = code.jit ? pcre2_jit_match(code.code, subject, text.size(), pos, PCRE2_NO_UTF_CHECK,
                                           scratch_->data, nullptr)
                         : PCRE2_ERROR_JIT_STACKLIMIT;
    if (count == PCRE2_ERROR_JIT_STACKLIMIT) {
      count = pcre2_match(code.code, subject, text.size(), pos, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                          scratch_->data, nullptr);
    }
    if (count == PCRE2_ERROR_NOMATCH) break;
    if (count < 0) {
      return ResourceExhaustedError("splitting the text into words: " + Pcre2ErrorText(count));
    }
    const TextRange match = {found[0], found[1]};
    if (match.end > match.begin || match.begin != last_end) matches->push_back(match);
    last_end = pos = match.end;
    if (match.end > match.begin) continue;
    // After an empty match the search goes on after the next character.
    do {
      ++pos;
    } while (pos < text.size() && (static_cast<unsigned char>(text[pos]) & 0xC0) == 0x80);
  }
  return OkStatus();
}

StatusOr<Regex> CompilePattern(const nlohmann::json& spec) {
  if (Field(spec, "Regex").is_string()) {
    return Regex::Compile(Field(spec, "Regex").get<std::string>());
  }
  if (Field(spec, "String").is_string()) {
    return Regex::Compile(Regex::Escape(Field(spec, "String").get<std::string>()));
  }
  return InvalidArgumentError("pattern must be {\"String\": ...} or {\"Regex\": ...}");
}

StatusOr<std::string> ReplaceMatches(std::string_view text, const Regex& pattern,
                                     std::string_view content) {
  std::vector<TextRange> matches;
  RETURN_IF_ERROR(RegexMatcher(pattern).FindAll(text, &matches));
  std::string out;
  size_t pos = 0;
  for (const TextRange& match : matches) {
    out.append(text, pos, match.begin - pos).append(content);
    pos = match.end;
  }
  return out.append(text, pos);
}

}  // namespace tandem
