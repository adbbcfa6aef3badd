#include "frontend/text/pretokenizer.h"

#include <map>
#include <utility>

#include "frontend/text/json_fields.h"
#include "frontend/text/pretokenizers/pretokenizer_step.h"

namespace tandem {
namespace {

constexpr int kMaxDepth = 8;

using NewStep = NewPretokenizerStep (*)(const nlohmann::json& spec);

const std::map<std::string, NewStep>& Kinds() {
  static const std::map<std::string, NewStep> kinds = {
      {"BertPreTokenizer", NewBertPretokenizer},
      {"CharDelimiterSplit", NewCharDelimiterPretokenizer},
      {"Digits", NewDigitsPretokenizer},
      {"FixedLength", NewFixedLengthPretokenizer},
      {"Metaspace", NewMetaspacePretokenizer},
      {"Punctuation", NewPunctuationPretokenizer},
      {"Split", NewSplitPretokenizer},
      {"UnicodeScripts", NewUnicodeScriptsPretokenizer},
      {"Whitespace", NewWhitespacePretokenizer},
      {"WhitespaceSplit", NewWhitespaceSplitPretokenizer},
  };
  return kinds;
}

}  // namespace

Pretokenizer::Pretokenizer() = default;
Pretokenizer::Pretokenizer(Pretokenizer&&) noexcept = default;
Pretokenizer& Pretokenizer::operator=(Pretokenizer&&) noexcept = default;
Pretokenizer::~Pretokenizer() = default;

StatusOr<Pretokenizer> Pretokenizer::Create(const nlohmann::json& spec, ByteLevelPieces pieces) {
  Pretokenizer pretokenizer;
  if (!spec.is_null()) RETURN_IF_ERROR(pretokenizer.Add(spec, 0));
  const bool alphabet = pretokenizer.byte_level_ && pieces == ByteLevelPieces::kAlphabet;
  if (alphabet == pretokenizer.in_alphabet_) return pretokenizer;
  ASSIGN_OR_RETURN(auto step,
                   alphabet ? NewToAlphabetPretokenizer() : NewFromAlphabetPretokenizer());
  pretokenizer.steps_.push_back(std::move(step));
  return pretokenizer;
}

Status Pretokenizer::Add(const nlohmann::json& spec, int depth) {
  if (depth > kMaxDepth) return InvalidArgumentError("pre_tokenizer is nested too deeply");
  ASSIGN_OR_RETURN(const std::string kind, KindOf(spec, "pre_tokenizer"));
  if (kind == "Sequence") {
    for (const auto& item : Field(spec, "pretokenizers")) RETURN_IF_ERROR(Add(item, depth + 1));
    return OkStatus();
  }
  const auto row = Kinds().find(kind);
  const bool is_byte_level = kind == "ByteLevel";
  if (row == Kinds().end() && !is_byte_level) {
    return UnimplementedError("pre_tokenizer \"" + kind + "\" is not supported");
  }
  if (byte_level_ && !in_alphabet_) {
    // The steps after ByteLevel see characters of the alphabet, which are letters and digits too.
    ASSIGN_OR_RETURN(auto step, NewToAlphabetPretokenizer());
    steps_.push_back(std::move(step));
    in_alphabet_ = true;
  }
  if (is_byte_level) return AddByteLevel(spec);
  ASSIGN_OR_RETURN(auto step, row->second(spec));
  steps_.push_back(std::move(step));
  // Its mark is mostly no character of the alphabet, so that the pieces spell no bytes any more.
  if (kind == "Metaspace") byte_level_ = in_alphabet_ = false;
  return OkStatus();
}

Status Pretokenizer::AddByteLevel(const nlohmann::json& spec) {
  ASSIGN_OR_RETURN(const bool prefix, BoolField(spec, "add_prefix_space", true));
  ASSIGN_OR_RETURN(const bool use_regex, BoolField(spec, "use_regex", true));
  if (prefix) {
    ASSIGN_OR_RETURN(auto step, NewPrefixSpacePretokenizer());
    steps_.push_back(std::move(step));
  }
  if (use_regex) {
    ASSIGN_OR_RETURN(auto step, NewGpt2WordsPretokenizer());
    steps_.push_back(std::move(step));
  }
  byte_level_ = true;
  in_alphabet_ = false;
  return OkStatus();
}

Status Pretokenizer::Split(std::string_view text, bool at_start, Pieces* out) const {
  out->pieces.clear();
  out->owned.clear();
  out->at_start = at_start;
  if (!text.empty()) out->pieces.push_back(text);
  for (const auto& step : steps_) RETURN_IF_ERROR(step->Apply(out));
  return OkStatus();
}

}  // namespace tandem
