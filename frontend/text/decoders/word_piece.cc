// WordPiece: a blank before each token but the first and those that continue a word, and with
// `cleanup` none before punctuation.

#include <array>
#include <utility>

#include "frontend/text/decoders/decoder_step.h"
#include "frontend/text/json_fields.h"
#include "frontend/text/replace_all.h"

namespace tandem {

std::string CleanUpSpaces(std::string text) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 11> kReplacements = {
      {{" .", "."},
       {" ?", "?"},
       {" !", "!"},
       {" ,", ","},
       {" ' ", "'"},
       {" n't", "n't"},
       {" 'm", "'m"},
       {" do not", " don't"},
       {" 's", "'s"},
       {" 've", "'ve"},
       {" 're", "'re"}}};
  for (const auto& [from, to] : kReplacements) text = ReplaceAll(text, from, to);
  return text;
}

namespace {

struct WordPieceOptions {
  std::string prefix;
  bool cleanup;

  std::string Join(std::string_view token, bool first) const {
    std::string text;
    if (first) {
      text = token;
    } else if (token.starts_with(prefix)) {
      text = token.substr(prefix.size());
    } else {
      text = " " + std::string(token);
    }
    return cleanup ? CleanUpSpaces(std::move(text)) : text;
  }
};

class WordPieceSink : public PassingSink {
 public:
  WordPieceSink(const WordPieceOptions& options, TokenSink* next)
      : PassingSink(next), options_(options) {}
  void Begin(std::string_view token) override {
    next_.Begin(options_.Join(token, first_));
    first_ = false;
  }

 private:
  const WordPieceOptions& options_;
  bool first_ = true;
};

class WordPieceStep : public DecoderStep {
 public:
  explicit WordPieceStep(WordPieceOptions options) : options_(std::move(options)) {}
  std::string TokenBytes(std::string_view token) const override {
    return options_.Join(token, false);
  }
  std::unique_ptr<TokenSink> Start(ByteRuns, TokenSink* next) const override {
    return std::make_unique<WordPieceSink>(options_, next);
  }

 private:
  const WordPieceOptions options_;
};

// The blank between tokens where the file names no decoder.
class BlankSink : public PassingSink {
 public:
  using PassingSink::PassingSink;
  void Begin(std::string_view token) override {
    next_.Begin(first_ ? std::string(token) : " " + std::string(token));
    first_ = false;
  }

 private:
  bool first_ = true;
};

class BlankStep : public DecoderStep {
 public:
  std::string TokenBytes(std::string_view token) const override { return " " + std::string(token); }
  std::unique_ptr<TokenSink> Start(ByteRuns, TokenSink* next) const override {
    return std::make_unique<BlankSink>(next);
  }
};

}  // namespace

StatusOr<std::unique_ptr<DecoderStep>> NewWordPieceDecoder(const nlohmann::json& spec) {
  WordPieceOptions options;
  ASSIGN_OR_RETURN(options.prefix, StringField(spec, "prefix", "##"));
  ASSIGN_OR_RETURN(options.cleanup, BoolField(spec, "cleanup", true));
  return std::unique_ptr<DecoderStep>(std::make_unique<WordPieceStep>(std::move(options)));
}

std::unique_ptr<DecoderStep> NewBlankDecoder() { return std::make_unique<BlankStep>(); }

}  // namespace tandem
