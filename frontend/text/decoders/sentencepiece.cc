// SentencePiece's decoder: marks become blanks but for those at the start, and byte tokens the
// characters they spell; a byte that is part of none is one U+FFFD.

#include "frontend/text/decoders/sentencepiece.h"

#include "common/utf8.h"
#include "frontend/text/replace_all.h"

namespace tandem {
namespace {

constexpr std::string_view kMark = "\u2581";

class SentencePieceSink : public PassingSink {
 public:
  SentencePieceSink(const SentencePieceDecoding& decoding, TokenSink* next)
      : PassingSink(next), decoding_(decoding) {}

  void Begin(std::string_view token) override {
    if (const auto byte = FallbackByte(token); byte.has_value()) {
      bytes_ += *byte;
      return PassCharacters();
    }
    EndBytes();
    at_start_ = at_start_ && !dropped_ && !passed_;
    if (token == decoding_.unknown_piece) return Pass(decoding_.unknown_text);
    if (at_start_ && decoding_.drops_first_blank && token.starts_with(kMark)) {
      token.remove_prefix(kMark.size());
      dropped_ = !decoding_.drops_all_blanks;
    }
    Pass(ReplaceAll(token, kMark, " "));
  }
  void End() override {
    EndBytes();
    next_.End();
  }
  bool inside_character() const override { return !bytes_.empty(); }

 private:
  void Pass(std::string_view text) {
    next_.Begin(text);
    passed_ = passed_ || !text.empty();
  }
  void PassCharacters() {
    while (!bytes_.empty()) {
      const Utf8Sequence sequence = ReadUtf8(bytes_, 0);
      if (sequence.truncated) return;
      const size_t size = sequence.well_formed ? sequence.size : 1;
      Pass(sequence.well_formed ? std::string_view(bytes_).substr(0, size) : "\uFFFD");
      bytes_.erase(0, size);
    }
  }
  void EndBytes() {
    for (; !bytes_.empty(); bytes_.erase(0, 1)) Pass("\uFFFD");
  }

  const SentencePieceDecoding& decoding_;
  std::string bytes_;     // the start of a character
  bool at_start_ = true;  // a mark may still be dropped
  bool dropped_ = false;
  bool passed_ = false;
};

class SentencePieceStep : public DecoderStep {
 public:
  explicit SentencePieceStep(SentencePieceDecoding decoding) : decoding_(std::move(decoding)) {}

  std::string TokenBytes(std::string_view token) const override {
    if (token == decoding_.unknown_piece) return decoding_.unknown_text;
    if (const auto byte = FallbackByte(token); byte.has_value()) return std::string(1, *byte);
    return ReplaceAll(token, kMark, " ");
  }
  std::unique_ptr<TokenSink> Start(ByteRuns, TokenSink* next) const override {
    return std::make_unique<SentencePieceSink>(decoding_, next);
  }

 private:
  const SentencePieceDecoding decoding_;
};

}  // namespace

std::unique_ptr<DecoderStep> NewSentencePieceDecoder(SentencePieceDecoding decoding) {
  return std::make_unique<SentencePieceStep>(std::move(decoding));
}

}  // namespace tandem
