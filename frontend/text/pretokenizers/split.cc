// Split: cuts where a string or a regular expression matches, or with `invert` where it does not.

#include "frontend/text/json_fields.h"
#include "frontend/text/pretokenizers/pretokenizer_step.h"
#include "frontend/text/regex.h"

namespace tandem {
namespace {

// What GPT-2 splits by, and ByteLevel with use_regex.
constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

class SplitStep : public PretokenizerStep {
 public:
  SplitStep(Regex pattern, SplitBehavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}

  Status Apply(Pieces* pieces) const override {
    std::vector<std::string_view> out;
    out.reserve(pieces->pieces.size());
    RegexMatcher matcher(pattern_);
    std::vector<TextRange> matches;
    for (const std::string_view piece : pieces->pieces) {
      RETURN_IF_ERROR(matcher.FindAll(piece, &matches));
      Cut(piece, matches, &out);
    }
    if (out.empty() || out.front().data() != pieces->pieces.front().data()) {
      pieces->at_start = false;
    }
    pieces->pieces = std::move(out);
    return OkStatus();
  }

 private:
  void Cut(std::string_view piece, const std::vector<TextRange>& matches,
           std::vector<std::string_view>* out) const {
    PartJoiner joiner(behavior_, out);
    const auto add = [&](size_t begin, size_t end, bool is_match) {
      if (begin < end) joiner.Add(piece.substr(begin, end - begin), is_match != invert_);
    };
    size_t pos = 0;
    for (const TextRange& match : matches) {
      add(pos, match.begin, false);
      add(match.begin, match.end, true);
      pos = match.end;
    }
    add(pos, piece.size(), false);
    joiner.End();
  }

  const Regex pattern_;
  const SplitBehavior behavior_;
  const bool invert_;
};

}  // namespace

NewPretokenizerStep NewSplitPretokenizer(const nlohmann::json& spec) {
  ASSIGN_OR_RETURN(const SplitBehavior behavior, ParseSplitBehavior(spec, ""));
  ASSIGN_OR_RETURN(Regex pattern, CompilePattern(Field(spec, "pattern")));
  ASSIGN_OR_RETURN(const bool invert, BoolField(spec, "invert", false));
  return std::unique_ptr<PretokenizerStep>(
      std::make_unique<SplitStep>(std::move(pattern), behavior, invert));
}

NewPretokenizerStep NewGpt2WordsPretokenizer() {
  ASSIGN_OR_RETURN(Regex pattern, Regex::Compile(kGpt2Pattern));
  return std::unique_ptr<PretokenizerStep>(
      std::make_unique<SplitStep>(std::move(pattern), SplitBehavior::kIsolated, false));
}

}  // namespace tandem
