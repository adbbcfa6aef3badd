// BPEDecoder: the suffix that ends a word becomes a blank, in the last token nothing.

#include "frontend/text/decoders/decoder_step.h"
#include "frontend/text/json_fields.h"
#include "frontend/text/replace_all.h"

namespace tandem {
namespace {

class BpeSuffixSink : public PassingSink {
 public:
  BpeSuffixSink(std::string_view suffix, TokenSink* next) : PassingSink(next), suffix_(suffix) {}

  // What follows the first suffix depends on whether another token comes.
  void Begin(std::string_view token) override {
    if (!held_.empty()) next_.Continue(ReplaceAll(held_, suffix_, " "));
    const size_t at = suffix_.empty() ? std::string_view::npos : token.find(suffix_);
    next_.Begin(token.substr(0, at));
    held_ = at == std::string_view::npos ? "" : token.substr(at);
  }
  void End() override {
    if (!held_.empty()) next_.Continue(ReplaceAll(held_, suffix_, ""));
    held_.clear();
    next_.End();
  }

 private:
  const std::string_view suffix_;
  std::string held_;
};

class BpeSuffixStep : public DecoderStep {
 public:
  explicit BpeSuffixStep(std::string suffix) : suffix_(std::move(suffix)) {}
  std::string TokenBytes(std::string_view token) const override {
    return ReplaceAll(token, suffix_, " ");
  }
  bool makes_parts() const override { return true; }
  std::unique_ptr<TokenSink> Start(ByteRuns, TokenSink* next) const override {
    return std::make_unique<BpeSuffixSink>(suffix_, next);
  }

 private:
  const std::string suffix_;
};

}  // namespace

StatusOr<std::unique_ptr<DecoderStep>> NewBpeSuffixDecoder(const nlohmann::json& spec) {
  ASSIGN_OR_RETURN(std::string suffix, StringField(spec, "suffix", "</w>"));
  return std::unique_ptr<DecoderStep>(std::make_unique<BpeSuffixStep>(std::move(suffix)));
}

}  // namespace tandem
