// ByteLevel: tokens spell bytes in GPT-2's alphabet; the text is their bytes joined. Every broken
// part of a character is one U+FFFD. The sink takes bytes: Prepare reads the alphabet.

#include <algorithm>

#include "common/strings.h"
#include "common/utf8.h"
#include "frontend/text/byte_level.h"
#include "frontend/text/decoders/decoder_step.h"

namespace tandem {
namespace {

// Size of the unfinished character that bytes end in; 0 when they end in anything else.
size_t UnfinishedBytes(std::string_view bytes) {
  constexpr size_t kMaxCharBytes = 4;
  const size_t first = bytes.size() - std::min(bytes.size(), kMaxCharBytes);
  for (size_t lead = bytes.size(); lead-- > first;) {
    if (IsUtf8Continuation(bytes[lead])) continue;
    const Utf8Sequence last = ReadUtf8(bytes, lead);
    return last.truncated && lead + last.size == bytes.size() ? last.size : 0;
  }
  return 0;
}

class ByteLevelSink : public PassingSink {
 public:
  using PassingSink::PassingSink;

  void Begin(std::string_view bytes) override {
    if (unfinished_.empty() && FindInvalidUtf8(bytes) == std::string_view::npos) {
      return Pass(bytes);
    }
    unfinished_ += bytes;
    const size_t num_certain = unfinished_.size() - UnfinishedBytes(unfinished_);
    std::string certain;
    AppendLossyUtf8(std::string_view(unfinished_).substr(0, num_certain), &certain);
    unfinished_.erase(0, num_certain);
    Pass(certain);
  }

  void End() override {
    std::string rest;
    AppendLossyUtf8(unfinished_, &rest);
    unfinished_.clear();
    Pass(rest);
    next_.End();
  }

  bool inside_character() const override { return !unfinished_.empty(); }

 private:
  // All the text is one token.
  void Pass(std::string_view text) {
    passed_ ? next_.Continue(text) : next_.Begin(text);
    passed_ = true;
  }

  std::string unfinished_;  // at most the start of one character
  bool passed_ = false;
};

class ByteLevelStep : public DecoderStep {
 public:
  std::string Prepare(std::string_view token) const override {
    return AlphabetToBytes(token).value_or(std::string(token));
  }
  bool makes_parts() const override { return true; }
  std::unique_ptr<TokenSink> Start(ByteRuns, TokenSink* next) const override {
    return std::make_unique<ByteLevelSink>(next);
  }
};

}  // namespace

StatusOr<std::unique_ptr<DecoderStep>> NewByteLevelDecoder(const nlohmann::json&) {
  return std::unique_ptr<DecoderStep>(std::make_unique<ByteLevelStep>());
}

}  // namespace tandem
