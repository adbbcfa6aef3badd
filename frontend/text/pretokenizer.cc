#include "frontend/text/pretokenizer.h"

#include <map>

#include "common/utf8.h"
#include "frontend/text/json_fields.h"
#include "frontend/text/normalizer.h"

namespace tandem {
namespace {

constexpr int kMaxDepth = 8;

// What GPT-2 splits by, and ByteLevel with use_regex.
constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

void CutDigits(std::string_view text, bool individual, std::vector<std::string_view>* out) {
  size_t begin = 0;
  bool last_numeric = false;
  for (size_t pos = 0; pos < text.size();) {
    const size_t start = pos;
    const bool numeric = IsNumeric(NextUtf8(text, &pos));
    const bool cut = individual ? numeric || last_numeric : numeric != last_numeric;
    if (cut && start > begin) {
      out->push_back(text.substr(begin, start - begin));
      begin = start;
    }
    last_numeric = numeric;
  }
  if (begin < text.size()) out->push_back(text.substr(begin));
}

}  // namespace

StatusOr<Pretokenizer> Pretokenizer::Create(const nlohmann::json& spec) {
  Pretokenizer pretokenizer;
  if (!spec.is_null()) RETURN_IF_ERROR(pretokenizer.Add(spec, 0));
  return pretokenizer;
}

Status Pretokenizer::Add(const nlohmann::json& spec, int depth) {
  if (depth > kMaxDepth) return InvalidArgumentError("pre_tokenizer is nested too deeply");
  ASSIGN_OR_RETURN(const std::string kind, KindOf(spec, "pre_tokenizer"));
  if (byte_level_) {
    return UnimplementedError("pre_tokenizer \"" + kind + "\" after ByteLevel is not supported");
  }
  if (kind == "Sequence") {
    for (const auto& item : Field(spec, "pretokenizers")) RETURN_IF_ERROR(Add(item, depth + 1));
    return OkStatus();
  }
  if (kind == "ByteLevel") return AddByteLevel(spec);
  if (kind == "Split") return AddSplit(spec);
  if (kind == "Metaspace") return AddMetaspace(spec);
  if (kind == "Digits") {
    ASSIGN_OR_RETURN(const bool individual, BoolField(spec, "individual_digits", false));
    steps_.emplace_back(Digits{individual});
    return OkStatus();
  }
  return UnimplementedError("pre_tokenizer \"" + kind + "\" is not supported");
}

Status Pretokenizer::AddByteLevel(const nlohmann::json& spec) {
  ASSIGN_OR_RETURN(const bool prefix, BoolField(spec, "add_prefix_space", true));
  ASSIGN_OR_RETURN(const bool use_regex, BoolField(spec, "use_regex", true));
  if (prefix) steps_.emplace_back(PrefixSpace{});
  if (use_regex) {
    ASSIGN_OR_RETURN(Regex pattern, Regex::Compile(kGpt2Pattern));
    steps_.emplace_back(SplitBy{std::move(pattern), Behavior::kIsolated, false});
  }
  byte_level_ = true;
  return OkStatus();
}

Status Pretokenizer::AddSplit(const nlohmann::json& spec) {
  static const std::map<std::string, Behavior> kBehaviors = {
      {"Removed", Behavior::kRemoved},
      {"Isolated", Behavior::kIsolated},
      {"MergedWithPrevious", Behavior::kMergedWithPrevious},
      {"MergedWithNext", Behavior::kMergedWithNext},
      {"Contiguous", Behavior::kContiguous}};
  ASSIGN_OR_RETURN(const std::string name, StringField(spec, "behavior", ""));
  const auto behavior = kBehaviors.find(name);
  if (behavior == kBehaviors.end()) {
    return UnimplementedError("pre_tokenizer Split with behavior \"" + name +
                              "\" is not supported");
  }
  ASSIGN_OR_RETURN(Regex pattern, CompilePattern(Field(spec, "pattern")));
  ASSIGN_OR_RETURN(const bool invert, BoolField(spec, "invert", false));
  steps_.emplace_back(SplitBy{std::move(pattern), behavior->second, invert});
  return OkStatus();
}

Status Pretokenizer::AddMetaspace(const nlohmann::json& spec) {
  Metaspace step;
  ASSIGN_OR_RETURN(step.replacement, StringField(spec, "replacement", "\u2581"));
  ASSIGN_OR_RETURN(const std::string scheme, StringField(spec, "prepend_scheme", "always"));
  ASSIGN_OR_RETURN(step.split, BoolField(spec, "split", true));
  if (scheme != "always" && scheme != "first" && scheme != "never") {
    return UnimplementedError("Metaspace prepend_scheme \"" + scheme + "\" is not supported");
  }
  step.prepend = scheme == "always"  ? Metaspace::kAlways
                 : scheme == "first" ? Metaspace::kFirst
                                     : Metaspace::kNever;
  if (step.replacement.empty()) return InvalidArgumentError("Metaspace without a replacement");
  steps_.emplace_back(std::move(step));
  return OkStatus();
}

void Pretokenizer::ApplyMetaspace(const Metaspace& step, bool at_start, Pieces* pieces) {
  const std::vector<std::string_view> before = std::move(pieces->pieces);
  pieces->pieces.clear();
  for (size_t i = 0; i < before.size(); ++i) {
    std::string text;
    for (const char c : before[i]) {
      if (c == ' ') {
        text += step.replacement;
      } else {
        text += c;
      }
    }
    const bool prepend = step.prepend == Metaspace::kAlways ||
                         (step.prepend == Metaspace::kFirst && at_start && i == 0);
    if (prepend && !text.starts_with(step.replacement)) text.insert(0, step.replacement);
    const std::string_view piece = pieces->owned.emplace_back(std::move(text));
    size_t begin = 0;
    for (size_t at = step.split ? piece.find(step.replacement, 1) : std::string_view::npos;
         at != std::string_view::npos; at = piece.find(step.replacement, at + 1)) {
      pieces->pieces.push_back(piece.substr(begin, at - begin));
      begin = at;
    }
    pieces->pieces.push_back(piece.substr(begin));
  }
}

void Pretokenizer::Cut(std::string_view text, const std::vector<TextRange>& matches,
                       const SplitBy& split, std::vector<std::string_view>* out) {
  // Merging behaviours grow `pending`; the others pass parts on at once.
  std::string_view pending;
  bool pending_is_match = false;
  const auto emit = [out](std::string_view part) {
    if (!part.empty()) out->push_back(part);
  };
  const auto join = [](std::string_view left, std::string_view right) {
    return std::string_view(left.data(), left.size() + right.size());
  };
  const auto part = [&](std::string_view piece, bool is_match) {
    if (split.invert) is_match = !is_match;
    switch (split.behavior) {
      case Behavior::kRemoved:
        if (!is_match) emit(piece);
        return;
      case Behavior::kIsolated:
        emit(piece);
        return;
      case Behavior::kContiguous:
        if (!pending.empty() && is_match == pending_is_match) {
          pending = join(pending, piece);
        } else {
          emit(pending);
          pending = piece;
        }
        break;
      case Behavior::kMergedWithPrevious:
        if (is_match && !pending.empty() && !pending_is_match) {
          pending = join(pending, piece);
        } else {
          emit(pending);
          pending = piece;
        }
        break;
      case Behavior::kMergedWithNext:
        if (!is_match && !pending.empty() && pending_is_match) {
          pending = join(pending, piece);
        } else {
          emit(pending);
          pending = piece;
        }
        break;
    }
    pending_is_match = is_match;
  };
  size_t pos = 0;
  for (const TextRange& match : matches) {
    if (match.begin > pos) part(text.substr(pos, match.begin - pos), false);
    part(text.substr(match.begin, match.end - match.begin), true);
    pos = match.end;
  }
  if (pos < text.size()) part(text.substr(pos), false);
  emit(pending);
}

Status Pretokenizer::ApplyStep(const Step& step, bool at_start, Pieces* pieces) {
  if (const auto* metaspace = std::get_if<Metaspace>(&step)) {
    ApplyMetaspace(*metaspace, at_start, pieces);
    return OkStatus();
  }
  std::vector<std::string_view> out;
  out.reserve(pieces->pieces.size());
  if (const auto* split = std::get_if<SplitBy>(&step)) {
    RegexMatcher matcher(split->pattern);
    std::vector<TextRange> matches;
    for (const std::string_view piece : pieces->pieces) {
      RETURN_IF_ERROR(matcher.FindAll(piece, &matches));
      Cut(piece, matches, *split, &out);
    }
  } else if (const auto* digits = std::get_if<Digits>(&step)) {
    for (const std::string_view piece : pieces->pieces) CutDigits(piece, digits->individual, &out);
  } else {
    for (const std::string_view piece : pieces->pieces) {
      if (piece.starts_with(' ')) {
        out.push_back(piece);
      } else {
        out.push_back(pieces->owned.emplace_back(" " + std::string(piece)));
      }
    }
  }
  pieces->pieces = std::move(out);
  return OkStatus();
}

Status Pretokenizer::Split(std::string_view text, bool at_start, Pieces* out) const {
  out->pieces.clear();
  out->owned.clear();
  if (!text.empty()) out->pieces.push_back(text);
  for (const Step& step : steps_) RETURN_IF_ERROR(ApplyStep(step, at_start, out));
  return OkStatus();
}

}  // namespace tandem
