#pragma once

// The `decoder` of tokenizer.json: turns tokens, as the vocabulary spells them, into text.
// Thread: TokenDecoder is immutable after Create, any thread; a TokenStream belongs to one thread
// at a time and borrows the TokenDecoder, which must outlive it. Create: Unimplemented names a kind
// that is not supported; InvalidArgument for a malformed one. To add a kind: a file in decoders/
// and a row in decoder.cc.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "common/status.h"

namespace tandem {

class DecoderStep;

// When a run of byte tokens becomes text.
enum class ByteRuns {
  // At the end of the run: the text it spells, or one U+FFFD for each byte when it is not UTF-8.
  // This is what `tokenizers` makes of a whole list of tokens.
  kWhole,
  // At each character, which is final. From the first byte on that cannot be part of a character,
  // each byte of the run is one U+FFFD. This is what a stream needs: what it has shown stays.
  kByCharacter,
};

// Makes the text of one list of tokens, which are appended one by one at constant amortized cost.
class TokenStream {
 public:
  TokenStream(TokenStream&&) noexcept;
  ~TokenStream();

  // Appends to *text what the token makes certain: whole characters that no later token changes.
  // `prepared` comes from TokenDecoder::Prepare.
  void Append(std::string_view prepared, std::string* text);
  // Appends what waited for another token. Append must not be called afterwards.
  void End(std::string* text);
  // Whether the tokens so far end inside a character.
  bool inside_character() const;

 private:
  friend class TokenDecoder;
  struct Chain;
  explicit TokenStream(std::unique_ptr<Chain> chain);
  std::unique_ptr<Chain> chain_;
};

class TokenDecoder {
 public:
  static StatusOr<TokenDecoder> Create(const nlohmann::json& spec);  // null: joins by blanks
  TokenDecoder();
  explicit TokenDecoder(std::unique_ptr<DecoderStep> only_step);
  TokenDecoder(TokenDecoder&&) noexcept;
  TokenDecoder& operator=(TokenDecoder&&) noexcept;
  ~TokenDecoder();

  // The part of decoding that depends on the token alone; done once for each token of a vocabulary.
  std::string Prepare(std::string_view token) const;
  TokenStream Start(ByteRuns byte_runs) const;
  std::string Decode(const std::vector<std::string>& tokens) const;

  // What one token adds in the middle of a text, whole character or not.
  std::string TokenBytes(std::string_view token) const;
  // Whether Prepare and TokenBytes give the same.
  bool byte_level() const { return byte_level_; }

 private:
  Status Add(const nlohmann::json& spec, int depth);

  std::vector<std::unique_ptr<DecoderStep>> steps_;
  size_t num_prepared_ = 0;   // the first steps, which Prepare does
  bool byte_level_ = false;   // the step after them joins bytes; Prepare makes them
  bool makes_parts_ = false;  // a step passes tokens on in parts
};

}  // namespace tandem
