#pragma once

// The `pre_tokenizer` of tokenizer.json: cuts text into the pieces that the model encodes one by
// one.
// Thread: immutable after Create; any thread. Owns its parts.
// Create: Unimplemented names the kind we do not know; InvalidArgument for a malformed one.
// Split fails only when a text makes a regular expression run too long (ResourceExhausted).

#include <deque>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "common/status.h"
#include "frontend/text/regex.h"

namespace tandem {

// Pieces are views of the text given to Split, or of `owned` where a step changed the text.
struct Pieces {
  std::vector<std::string_view> pieces;
  std::deque<std::string> owned;
};

class Pretokenizer {
 public:
  static StatusOr<Pretokenizer> Create(const nlohmann::json& spec);  // null: one piece

  // Whether the model behind sees bytes spelled in GPT-2's alphabet; pieces are raw bytes always.
  bool byte_level() const { return byte_level_; }
  // Puts the pieces of text, none of them empty, in *out. REQUIRES well-formed UTF-8.
  // at_start: nothing stands before the text.
  Status Split(std::string_view text, bool at_start, Pieces* out) const;

 private:
  enum class Behavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };
  struct SplitBy {
    Regex pattern;
    Behavior behavior;
    bool invert;
  };
  struct Digits {
    bool individual;
  };
  struct PrefixSpace {};
  struct Metaspace {  // blanks become a visible character
    std::string replacement;
    enum { kAlways, kFirst, kNever } prepend;
    bool split;
  };
  using Step = std::variant<SplitBy, Digits, PrefixSpace, Metaspace>;

  Status Add(const nlohmann::json& spec, int depth);
  Status AddByteLevel(const nlohmann::json& spec);
  Status AddSplit(const nlohmann::json& spec);
  Status AddMetaspace(const nlohmann::json& spec);
  static Status ApplyStep(const Step& step, bool at_start, Pieces* pieces);
  static void ApplyMetaspace(const Metaspace& step, bool at_start, Pieces* pieces);
  static void Cut(std::string_view text, const std::vector<TextRange>& matches,
                  const SplitBy& split, std::vector<std::string_view>* out);

  std::vector<Step> steps_;
  bool byte_level_ = false;
};

}  // namespace tandem
