#pragma once

// One kind of decoder, and the state it has in a stream. A step takes tokens and passes tokens on:
// Begin starts a token and Continue adds to it, until the next Begin or the End. Texts are whole
// characters. Thread: steps are immutable, any thread; a sink belongs to one stream.
// Cost: constant amortized work for each token.

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "common/status.h"
#include "frontend/text/decoder.h"

namespace tandem {

class TokenSink {
 public:
  virtual ~TokenSink() = default;
  virtual void Begin(std::string_view text) = 0;
  virtual void Continue(std::string_view text) = 0;
  virtual void End() = 0;
  virtual bool inside_character() const = 0;
};

// Passes tokens on; a step overrides what it does differently.
class PassingSink : public TokenSink {
 public:
  explicit PassingSink(TokenSink* next) : next_(*next) {}
  void Begin(std::string_view text) override { next_.Begin(text); }
  void Continue(std::string_view text) override { next_.Continue(text); }
  void End() override { next_.End(); }
  bool inside_character() const override { return next_.inside_character(); }

 protected:
  TokenSink& next_;
};

class DecoderStep {
 public:
  virtual ~DecoderStep() = default;

  // Whether the step looks at one token at a time; Prepare then does all of it.
  virtual bool is_token_by_token() const { return false; }
  virtual std::string Prepare(std::string_view token) const { return std::string(token); }
  // What the step makes of a token in the middle of a text.
  virtual std::string TokenBytes(std::string_view token) const { return Prepare(token); }

  // Whether the sink takes tokens in parts, and whether it passes them on in parts.
  virtual bool takes_parts() const { return false; }
  virtual bool makes_parts() const { return false; }
  virtual std::unique_ptr<TokenSink> Start(ByteRuns byte_runs, TokenSink* next) const = 0;
};

// Each kind's function reads the fields of its kind.
StatusOr<std::unique_ptr<DecoderStep>> NewBpeSuffixDecoder(const nlohmann::json& spec);
StatusOr<std::unique_ptr<DecoderStep>> NewByteFallbackDecoder(const nlohmann::json& spec);
StatusOr<std::unique_ptr<DecoderStep>> NewByteLevelDecoder(const nlohmann::json& spec);
StatusOr<std::unique_ptr<DecoderStep>> NewCtcDecoder(const nlohmann::json& spec);
StatusOr<std::unique_ptr<DecoderStep>> NewFuseDecoder(const nlohmann::json& spec);
StatusOr<std::unique_ptr<DecoderStep>> NewMetaspaceDecoder(const nlohmann::json& spec);
StatusOr<std::unique_ptr<DecoderStep>> NewReplaceDecoder(const nlohmann::json& spec);
StatusOr<std::unique_ptr<DecoderStep>> NewStripDecoder(const nlohmann::json& spec);
StatusOr<std::unique_ptr<DecoderStep>> NewWordPieceDecoder(const nlohmann::json& spec);
std::unique_ptr<DecoderStep> NewBlankDecoder();  // where the file names none

// The byte that "<0x41>" stands for.
std::optional<char> FallbackByte(std::string_view token);
// `cleanup` of WordPiece and CTC: no blank before punctuation and the ends of contractions.
std::string CleanUpSpaces(std::string text);

}  // namespace tandem
