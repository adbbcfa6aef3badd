// ByteFallback: a run of tokens <0xNN> is the text that the bytes spell.

#include "common/strings.h"
#include "common/utf8.h"
#include "frontend/text/decoders/decoder_step.h"

namespace tandem {
namespace {

constexpr std::string_view kReplacement = "\uFFFD";

class ByteFallbackSink : public PassingSink {
 public:
  ByteFallbackSink(ByteRuns byte_runs, TokenSink* next)
      : PassingSink(next), by_character_(byte_runs == ByteRuns::kByCharacter) {}

  void Begin(std::string_view token) override {
    const auto byte = FallbackByte(token);
    if (!byte.has_value()) {
      EndRun();
      next_.Begin(token);
    } else if (broken_) {
      next_.Begin(kReplacement);
    } else {
      run_ += *byte;
      if (by_character_) PassCharacter();
    }
  }

  void End() override {
    EndRun();
    next_.End();
  }

  bool inside_character() const override { return !run_.empty() || next_.inside_character(); }

 private:
  // run_ holds at most one character, or what may become one.
  void PassCharacter() {
    const Utf8Sequence sequence = ReadUtf8(run_, 0);
    if (sequence.truncated) return;
    if (sequence.well_formed) {
      // All characters of a run are one token.
      passed_ ? next_.Continue(run_) : next_.Begin(run_);
      passed_ = true;
    } else {
      PassBroken();
      broken_ = true;
    }
    run_.clear();
  }

  void PassBroken() {
    for (size_t i = 0; i < run_.size(); ++i) next_.Begin(kReplacement);
  }

  void EndRun() {
    if (!run_.empty()) {
      FindInvalidUtf8(run_) == std::string_view::npos ? next_.Begin(run_) : PassBroken();
    }
    run_.clear();
    passed_ = false;
    broken_ = false;
  }

  const bool by_character_;
  std::string run_;      // bytes not passed on
  bool passed_ = false;  // a character of the run was passed on
  bool broken_ = false;  // no later byte of the run can be part of a character
};

class ByteFallbackStep : public DecoderStep {
 public:
  std::string TokenBytes(std::string_view token) const override {
    const auto byte = FallbackByte(token);
    return byte.has_value() ? std::string(1, *byte) : std::string(token);
  }
  bool makes_parts() const override { return true; }
  std::unique_ptr<TokenSink> Start(ByteRuns byte_runs, TokenSink* next) const override {
    return std::make_unique<ByteFallbackSink>(byte_runs, next);
  }
};

}  // namespace

std::optional<char> FallbackByte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  const auto bytes = HexDecode(token.substr(3, 2));
  if (!bytes.has_value()) return std::nullopt;
  return (*bytes)[0];
}

StatusOr<std::unique_ptr<DecoderStep>> NewByteFallbackDecoder(const nlohmann::json&) {
  return std::unique_ptr<DecoderStep>(std::make_unique<ByteFallbackStep>());
}

}  // namespace tandem
