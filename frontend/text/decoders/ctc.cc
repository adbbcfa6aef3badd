// CTC: of equal tokens in a row one counts, and the padding between them is dropped.

#include "frontend/text/decoders/decoder_step.h"
#include "frontend/text/json_fields.h"
#include "frontend/text/replace_all.h"

namespace tandem {
namespace {

struct CtcOptions {
  std::string pad_token;
  std::string word_delimiter;
  bool cleanup;

  std::string Text(std::string_view token) const {
    std::string text = ReplaceAll(token, pad_token, "");
    return cleanup ? ReplaceAll(CleanUpSpaces(std::move(text)), word_delimiter, " ") : text;
  }
};

class CtcSink : public PassingSink {
 public:
  CtcSink(const CtcOptions& options, TokenSink* next) : PassingSink(next), options_(options) {}
  void Begin(std::string_view token) override {
    if (begun_ && token == last_) return;
    begun_ = true;
    last_ = token;
    const std::string text = options_.Text(token);
    if (!text.empty()) next_.Begin(text);
  }

 private:
  const CtcOptions& options_;
  std::string last_;
  bool begun_ = false;
};

class CtcStep : public DecoderStep {
 public:
  explicit CtcStep(CtcOptions options) : options_(std::move(options)) {}
  std::string TokenBytes(std::string_view token) const override { return options_.Text(token); }
  std::unique_ptr<TokenSink> Start(ByteRuns, TokenSink* next) const override {
    return std::make_unique<CtcSink>(options_, next);
  }

 private:
  const CtcOptions options_;
};

}  // namespace

StatusOr<std::unique_ptr<DecoderStep>> NewCtcDecoder(const nlohmann::json& spec) {
  CtcOptions options;
  ASSIGN_OR_RETURN(options.pad_token, StringField(spec, "pad_token", "<pad>"));
  ASSIGN_OR_RETURN(options.word_delimiter, StringField(spec, "word_delimiter_token", "|"));
  ASSIGN_OR_RETURN(options.cleanup, BoolField(spec, "cleanup", true));
  return std::unique_ptr<DecoderStep>(std::make_unique<CtcStep>(std::move(options)));
}

}  // namespace tandem
