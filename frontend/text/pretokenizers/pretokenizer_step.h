#pragma once

// One kind of pre-tokenizer. Thread: immutable, any thread.

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "common/status.h"
#include "frontend/text/pretokenizer.h"

namespace tandem {

class PretokenizerStep {
 public:
  virtual ~PretokenizerStep() = default;
  // Replaces the pieces by what the step makes of them; none is empty. Linear in the text.
  virtual Status Apply(Pieces* pieces) const = 0;
};

// A step that cuts pieces and leaves their text as it is.
class CuttingStep : public PretokenizerStep {
 public:
  Status Apply(Pieces* pieces) const final;

 protected:
  virtual Status Cut(std::string_view piece, std::vector<std::string_view>* out) const = 0;
};

// What becomes of the delimiters that a piece is cut by.
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };
StatusOr<SplitBehavior> ParseSplitBehavior(const nlohmann::json& spec, std::string_view fallback);

// Joins the parts of one piece, which come in order, to new pieces.
class PartJoiner {
 public:
  PartJoiner(SplitBehavior behavior, std::vector<std::string_view>* out)
      : behavior_(behavior), out_(*out) {}
  void Add(std::string_view part, bool is_delimiter);
  void End();

 private:
  const SplitBehavior behavior_;
  std::vector<std::string_view>& out_;
  std::string_view pending_;
  bool pending_is_delimiter_ = false;
};

// Cuts at every character for which the function returns true.
void CutAtCharacters(std::string_view piece, bool (*is_delimiter)(char32_t), SplitBehavior behavior,
                     std::vector<std::string_view>* out);

using NewPretokenizerStep = StatusOr<std::unique_ptr<PretokenizerStep>>;

// Each kind's function reads the fields of its kind.
NewPretokenizerStep NewBertPretokenizer(const nlohmann::json& spec);
NewPretokenizerStep NewCharDelimiterPretokenizer(const nlohmann::json& spec);
NewPretokenizerStep NewDigitsPretokenizer(const nlohmann::json& spec);
NewPretokenizerStep NewFixedLengthPretokenizer(const nlohmann::json& spec);
NewPretokenizerStep NewMetaspacePretokenizer(const nlohmann::json& spec);
NewPretokenizerStep NewPunctuationPretokenizer(const nlohmann::json& spec);
NewPretokenizerStep NewSplitPretokenizer(const nlohmann::json& spec);
NewPretokenizerStep NewUnicodeScriptsPretokenizer(const nlohmann::json& spec);
NewPretokenizerStep NewWhitespacePretokenizer(const nlohmann::json& spec);
NewPretokenizerStep NewWhitespaceSplitPretokenizer(const nlohmann::json& spec);

// The parts of ByteLevel: the blank before each piece, GPT-2's words, and the alphabet.
NewPretokenizerStep NewPrefixSpacePretokenizer();
NewPretokenizerStep NewGpt2WordsPretokenizer();
NewPretokenizerStep NewToAlphabetPretokenizer();
NewPretokenizerStep NewFromAlphabetPretokenizer();

}  // namespace tandem
