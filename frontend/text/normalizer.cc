#include "frontend/text/normalizer.h"

#include <utf8proc.h>

#include <map>

#include "common/utf8.h"
#include "frontend/text/json_fields.h"

namespace tandem {
namespace {

constexpr int kMaxDepth = 8;

std::string StripSpaces(std::string_view text, bool left, bool right) {
  size_t begin = 0;
  size_t end = 0;  // behind the last character that is no space
  bool inside = false;
  for (size_t pos = 0; pos < text.size();) {
    const bool space = IsWhiteSpace(NextUtf8(text, &pos));
    if (space && !inside && left) begin = pos;
    if (!space) inside = true;
    if (!space || !right) end = pos;
  }
  return begin < end ? std::string(text.substr(begin, end - begin)) : std::string();
}

std::string ToLowerUnicode(std::string_view text) {
  std::string out;
  for (size_t pos = 0; pos < text.size();) {
    const char32_t c = NextUtf8(text, &pos);
    if (c == 0x130) {  // the one character whose lower case is two
      out += "i\xCC\x87";
    } else {
      AppendUtf8(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))), &out);
    }
  }
  return out;
}

StatusOr<std::string> ReplaceAll(const Regex& pattern, std::string_view content,
                                 std::string_view text) {
  std::vector<TextRange> matches;
  RETURN_IF_ERROR(RegexMatcher(pattern).FindAll(text, &matches));
  std::string out;
  size_t pos = 0;
  for (const TextRange& match : matches) {
    out.append(text, pos, match.begin - pos).append(content);
    pos = match.end;
  }
  out.append(text, pos);
  return out;
}

}  // namespace

StatusOr<Regex> CompilePattern(const nlohmann::json& spec) {
  if (Field(spec, "Regex").is_string()) {
    return Regex::Compile(Field(spec, "Regex").get<std::string>());
  }
  if (Field(spec, "String").is_string()) {
    return Regex::Compile(Regex::Escape(Field(spec, "String").get<std::string>()));
  }
  return InvalidArgumentError("pattern must be {\"String\": ...} or {\"Regex\": ...}");
}

StatusOr<Normalizer> Normalizer::Create(const nlohmann::json& spec) {
  Normalizer normalizer;
  if (!spec.is_null()) RETURN_IF_ERROR(normalizer.Add(spec, 0));
  return normalizer;
}

Status Normalizer::Add(const nlohmann::json& spec, int depth) {
  static const std::map<std::string, NormalForm> kForms = {{"NFC", NormalForm::kNfc},
                                                           {"NFD", NormalForm::kNfd},
                                                           {"NFKC", NormalForm::kNfkc},
                                                           {"NFKD", NormalForm::kNfkd}};
  if (depth > kMaxDepth) return InvalidArgumentError("normalizer is nested too deeply");
  ASSIGN_OR_RETURN(const std::string kind, KindOf(spec, "normalizer"));
  if (const auto form = kForms.find(kind); form != kForms.end()) {
    steps_.emplace_back(form->second);
  } else if (kind == "Sequence") {
    for (const auto& item : Field(spec, "normalizers")) RETURN_IF_ERROR(Add(item, depth + 1));
  } else if (kind == "Replace") {
    ASSIGN_OR_RETURN(Regex pattern, CompilePattern(Field(spec, "pattern")));
    ASSIGN_OR_RETURN(std::string content, StringField(spec, "content", ""));
    steps_.emplace_back(Replace{std::move(pattern), std::move(content)});
  } else if (kind == "Prepend") {
    ASSIGN_OR_RETURN(std::string content, StringField(spec, "prepend", ""));
    steps_.emplace_back(Prepend{std::move(content)});
  } else if (kind == "Strip") {
    ASSIGN_OR_RETURN(const bool left, BoolField(spec, "strip_left", true));
    ASSIGN_OR_RETURN(const bool right, BoolField(spec, "strip_right", true));
    steps_.emplace_back(Strip{left, right});
  } else if (kind == "Lowercase") {
    steps_.emplace_back(Lowercase{});
  } else {
    return UnimplementedError("normalizer \"" + kind + "\" is not supported");
  }
  return OkStatus();
}

StatusOr<std::string> Normalizer::ApplyStep(const Step& step, const std::string& text) {
  if (const auto* form = std::get_if<NormalForm>(&step)) return Normalize(text, *form);
  if (const auto* replace = std::get_if<Replace>(&step)) {
    return ReplaceAll(replace->pattern, replace->content, text);
  }
  if (const auto* prepend = std::get_if<Prepend>(&step)) {
    return text.empty() ? text : prepend->content + text;
  }
  if (const auto* strip = std::get_if<Strip>(&step)) {
    return StripSpaces(text, strip->left, strip->right);
  }
  return ToLowerUnicode(text);
}

StatusOr<std::string> Normalizer::Apply(std::string_view text) const {
  std::string current(text);
  for (const Step& step : steps_) {
    ASSIGN_OR_RETURN(current, ApplyStep(step, current));
  }
  return current;
}

}  // namespace tandem
