#pragma once

// Text to token ids and back, from a model folder's tokenizer.json or another file that
// tokenizer_folder.h names, and tokenizer_config.json; or from a GGUF file.
// Thread: immutable after Load; any thread may call any const method at the same time.
// Ownership: the Tokenizer owns everything it returns views of. Ids are TokenId in [0,
// vocab_size()). Load fails with NotFound (no file of these), InvalidArgument (malformed) or
// Unimplemented (another program's file, an unsupported normalizer, pre-tokenizer, model, decoder,
// post-processor, family or class; the message names it). Results equal those of the `tokenizers`,
// sentencepiece, tiktoken and mistral-common libraries, those of GGUF files llama.cpp's.

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/ids.h"
#include "common/status.h"
#include "frontend/text/decoder.h"

namespace tandem {

class EncodedTextCache;
struct OffsetTrim;
struct PairTemplate;
struct TokenizerConfig;
struct TokenizerFile;

class Tokenizer {
 public:
  static StatusOr<std::shared_ptr<const Tokenizer>> Load(const std::string& model_folder);
  // The same from the files' contents; an empty config_json stands for a missing file.
  static StatusOr<std::shared_ptr<const Tokenizer>> Parse(std::string_view tokenizer_json,
                                                          std::string_view config_json);
  ~Tokenizer();

  // `add_special_tokens` adds the post-processor's ids around the text (BOS and the like). Added
  // tokens that occur in the text become their ids either way. InvalidArgument when text is not
  // UTF-8. What the cache knows (of this tokenizer's; null: nothing) is not encoded again.
  StatusOr<std::vector<TokenId>> Encode(std::string_view text, bool add_special_tokens,
                                        EncodedTextCache* cache = nullptr) const;

  // Ids without a token are left out. Bytes that are not UTF-8 become U+FFFD.
  std::string Decode(std::span<const TokenId> ids, bool skip_special_tokens) const;

  // What the token adds in the middle of a text; may be part of a character. Empty for an unknown
  // id.
  std::string_view TokenBytes(TokenId id) const;

  // Decoding token by token: the stream takes Prepared(id) of each id that Contains.
  TokenStream StartDecoding(ByteRuns byte_runs) const;
  std::string_view Prepared(TokenId id) const;
  bool Contains(TokenId id) const;
  bool decodes_bytes() const;  // Prepared is TokenBytes: the text is the tokens' bytes joined

  // The token as the vocabulary file spells it ("Ġhello"); nullopt for an unknown id.
  std::optional<std::string_view> IdToToken(TokenId id) const;
  std::optional<TokenId> TokenToId(std::string_view token) const;

  // What the post-processor puts around and between two texts.
  const PairTemplate& pair() const;
  // Of the post-processor; null: offsets stay as they are.
  const OffsetTrim* offset_trim() const;

  bool IsSpecial(TokenId id) const;  // left out by skip_special_tokens
  bool IsAdded(TokenId id) const;    // an added token, special or not
  TokenId vocab_size() const;        // largest id + 1

  std::optional<TokenId> bos_id() const;
  std::optional<TokenId> eos_id() const;
  // "bos_token" → "<s>" and so on, as tokenizer_config.json states them: variables of the template.
  const std::map<std::string, std::string>& special_tokens() const;
  // Chat templates by name: chat_template.jinja ("default") and additional_chat_templates/*.jinja,
  // or else those of tokenizer_config.json; of a GGUF file its own.
  const std::map<std::string, std::string>& chat_templates() const;

 private:
  struct Parts;
  explicit Tokenizer(std::unique_ptr<Parts> parts);
  static StatusOr<std::shared_ptr<const Tokenizer>> LoadGguf(const std::string& path);
  static StatusOr<std::shared_ptr<const Tokenizer>> Build(std::unique_ptr<TokenizerFile> file,
                                                          TokenizerConfig config);
  std::unique_ptr<Parts> parts_;
};

}  // namespace tandem
