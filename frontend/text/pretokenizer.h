#pragma once

// The `pre_tokenizer` of tokenizer.json: cuts text into the pieces that the model encodes one by
// one.
// Thread: immutable after Create; any thread. Owns its steps.
// Create: Unimplemented names a kind that is not supported; InvalidArgument for a malformed one.
// Split fails only when a text makes a regular expression run too long (ResourceExhausted).
// To add a kind: a file in pretokenizers/ and a row in pretokenizer.cc.

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "common/status.h"

namespace tandem {

class PretokenizerStep;

// Pieces are views of the text given to Split, or of `owned` where a step changed the text.
struct Pieces {
  std::vector<std::string_view> pieces;
  std::deque<std::string> owned;
  bool at_start = false;  // the first piece begins where the whole text does
};

// What the model takes where the pieces spell bytes: bytes, or their characters in GPT-2's
// alphabet.
enum class ByteLevelPieces { kBytes, kAlphabet };

class Pretokenizer {
 public:
  // null: one piece
  static StatusOr<Pretokenizer> Create(const nlohmann::json& spec, ByteLevelPieces pieces);
  Pretokenizer();
  Pretokenizer(Pretokenizer&&) noexcept;
  Pretokenizer& operator=(Pretokenizer&&) noexcept;
  ~Pretokenizer();

  // Whether the pieces spell bytes: there is a ByteLevel, and no Metaspace after the last one.
  bool byte_level() const { return byte_level_; }
  // Puts the pieces of text, none of them empty, in *out. REQUIRES well-formed UTF-8.
  // at_start: the text is the start of the whole text.
  Status Split(std::string_view text, bool at_start, Pieces* out) const;

 private:
  Status Add(const nlohmann::json& spec, int depth);
  Status AddByteLevel(const nlohmann::json& spec);

  std::vector<std::unique_ptr<PretokenizerStep>> steps_;
  bool byte_level_ = false;
  bool in_alphabet_ = false;  // the steps so far have spelled the bytes
};

}  // namespace tandem
