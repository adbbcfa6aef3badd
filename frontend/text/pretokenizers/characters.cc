// The kinds that cut by classes of characters: Digits, Punctuation, WhitespaceSplit, Whitespace,
// BertPreTokenizer, CharDelimiterSplit, FixedLength and UnicodeScripts.

#include "frontend/text/characters.h"

#include "common/utf8.h"
#include "frontend/text/json_fields.h"
#include "frontend/text/pretokenizers/pretokenizer_step.h"

namespace tandem {
namespace {

class ClassStep : public CuttingStep {
 public:
  ClassStep(bool (*is_delimiter)(char32_t), SplitBehavior behavior)
      : is_delimiter_(is_delimiter), behavior_(behavior) {}

 protected:
  Status Cut(std::string_view piece, std::vector<std::string_view>* out) const override {
    CutAtCharacters(piece, is_delimiter_, behavior_, out);
    return OkStatus();
  }

 private:
  bool (*is_delimiter_)(char32_t);
  const SplitBehavior behavior_;
};

NewPretokenizerStep NewClassStep(bool (*is_delimiter)(char32_t), SplitBehavior behavior) {
  return std::unique_ptr<PretokenizerStep>(std::make_unique<ClassStep>(is_delimiter, behavior));
}

// Words between white space, with each punctuation mark apart.
class BertStep : public CuttingStep {
 protected:
  Status Cut(std::string_view piece, std::vector<std::string_view>* out) const override {
    std::vector<std::string_view> words;
    CutAtCharacters(piece, IsWhiteSpace, SplitBehavior::kRemoved, &words);
    for (const std::string_view word : words) {
      CutAtCharacters(word, IsPunctuation, SplitBehavior::kIsolated, out);
    }
    return OkStatus();
  }
};

// Runs of word characters and runs of neither word characters nor white space.
class WhitespaceStep : public CuttingStep {
 protected:
  Status Cut(std::string_view piece, std::vector<std::string_view>* out) const override {
    enum { kSpace, kWord, kOther } run = kSpace;
    size_t begin = 0;
    for (size_t pos = 0; pos < piece.size();) {
      const size_t start = pos;
      const char32_t c = NextUtf8(piece, &pos);
      const auto kind = IsWordChar(c) ? kWord : IsWhiteSpace(c) ? kSpace : kOther;
      if (kind == run) continue;
      if (run != kSpace) out->push_back(piece.substr(begin, start - begin));
      run = kind;
      begin = start;
    }
    if (run != kSpace) out->push_back(piece.substr(begin));
    return OkStatus();
  }
};

class CharDelimiterStep : public CuttingStep {
 public:
  explicit CharDelimiterStep(std::string delimiter) : delimiter_(std::move(delimiter)) {}

 protected:
  Status Cut(std::string_view piece, std::vector<std::string_view>* out) const override {
    while (!piece.empty()) {
      const std::string_view part = piece.substr(0, piece.find(delimiter_));
      if (!part.empty()) out->push_back(part);
      piece.remove_prefix(std::min(piece.size(), part.size() + delimiter_.size()));
    }
    return OkStatus();
  }

 private:
  const std::string delimiter_;
};

class FixedLengthStep : public CuttingStep {
 public:
  explicit FixedLengthStep(size_t num_chars) : num_chars_(num_chars) {}

 protected:
  Status Cut(std::string_view piece, std::vector<std::string_view>* out) const override {
    for (size_t pos = 0; pos < piece.size();) {
      const size_t begin = pos;
      for (size_t i = 0; i < num_chars_ && pos < piece.size(); ++i) NextUtf8(piece, &pos);
      out->push_back(piece.substr(begin, pos - begin));
    }
    return OkStatus();
  }

 private:
  const size_t num_chars_;
};

// Runs of one script. A character without a script stays with what precedes it; before the first
// character that has one there is no run, and it is lost, as in the library.
class ScriptsStep : public CuttingStep {
 protected:
  Status Cut(std::string_view piece, std::vector<std::string_view>* out) const override {
    uint8_t run = 0;
    size_t begin = 0;
    for (size_t pos = 0; pos < piece.size();) {
      const size_t start = pos;
      const uint8_t script = ScriptOf(NextUtf8(piece, &pos));
      if (script == 0 || script == run) continue;
      if (run != 0) out->push_back(piece.substr(begin, start - begin));
      run = script;
      begin = start;
    }
    if (run != 0) out->push_back(piece.substr(begin));
    return OkStatus();
  }
};

}  // namespace

NewPretokenizerStep NewDigitsPretokenizer(const nlohmann::json& spec) {
  ASSIGN_OR_RETURN(const bool individual, BoolField(spec, "individual_digits", false));
  return NewClassStep(IsNumeric,
                      individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous);
}

NewPretokenizerStep NewPunctuationPretokenizer(const nlohmann::json& spec) {
  ASSIGN_OR_RETURN(const SplitBehavior behavior, ParseSplitBehavior(spec, "Isolated"));
  return NewClassStep(IsPunctuation, behavior);
}

NewPretokenizerStep NewWhitespaceSplitPretokenizer(const nlohmann::json&) {
  return NewClassStep(IsWhiteSpace, SplitBehavior::kRemoved);
}

NewPretokenizerStep NewBertPretokenizer(const nlohmann::json&) {
  return std::unique_ptr<PretokenizerStep>(std::make_unique<BertStep>());
}

NewPretokenizerStep NewWhitespacePretokenizer(const nlohmann::json&) {
  return std::unique_ptr<PretokenizerStep>(std::make_unique<WhitespaceStep>());
}

NewPretokenizerStep NewUnicodeScriptsPretokenizer(const nlohmann::json&) {
  return std::unique_ptr<PretokenizerStep>(std::make_unique<ScriptsStep>());
}

NewPretokenizerStep NewCharDelimiterPretokenizer(const nlohmann::json& spec) {
  ASSIGN_OR_RETURN(std::string delimiter, StringField(spec, "delimiter", ""));
  if (delimiter.empty()) return InvalidArgumentError("CharDelimiterSplit without a delimiter");
  return std::unique_ptr<PretokenizerStep>(
      std::make_unique<CharDelimiterStep>(std::move(delimiter)));
}

NewPretokenizerStep NewFixedLengthPretokenizer(const nlohmann::json& spec) {
  const nlohmann::json& length = Field(spec, "length");
  if (!length.is_null() && (!length.is_number_unsigned() || length == 0)) {
    return WrongType("FixedLength length", length, "a count above 0");
  }
  const size_t num_chars = length.is_null() ? 5 : length.get<size_t>();
  return std::unique_ptr<PretokenizerStep>(std::make_unique<FixedLengthStep>(num_chars));
}

}  // namespace tandem
