// Replace: one string for another, in each token; after Fuse also across tokens.

#include <algorithm>

#include "frontend/text/decoders/decoder_step.h"
#include "frontend/text/json_fields.h"
#include "frontend/text/regex.h"
#include "frontend/text/replace_all.h"

namespace tandem {
namespace {

class ReplaceSink : public PassingSink {
 public:
  ReplaceSink(std::string_view from, std::string_view to, TokenSink* next)
      : PassingSink(next), from_(from), to_(to) {}

  void Begin(std::string_view text) override {
    EndToken();
    begun_ = false;
    Continue(text);
  }
  void Continue(std::string_view text) override {
    held_ += text;
    std::string done;
    size_t pos = 0;
    for (size_t at = 0; (at = held_.find(from_, pos)) != std::string::npos;
         pos = at + from_.size()) {
      done.append(held_, pos, at - pos).append(to_);
    }
    held_.erase(0, pos);
    // What ends in the start of `from` may become it.
    size_t num_held = std::min(held_.size(), from_.size() - 1);
    while (!from_.starts_with(std::string_view(held_).substr(held_.size() - num_held))) --num_held;
    done.append(held_, 0, held_.size() - num_held);
    held_.erase(0, held_.size() - num_held);
    Pass(done);
  }
  void End() override {
    EndToken();
    next_.End();
  }

 private:
  void Pass(std::string_view text) {
    begun_ ? next_.Continue(text) : next_.Begin(text);
    begun_ = true;
  }
  void EndToken() {
    if (!held_.empty()) Pass(held_);
    held_.clear();
  }

  const std::string_view from_;
  const std::string_view to_;
  std::string held_;  // a start of from_, not all of it
  bool begun_ = false;
};

// A regular expression works on whole tokens.
class ReplaceRegexStep : public DecoderStep {
 public:
  ReplaceRegexStep(Regex pattern, std::string to)
      : pattern_(std::move(pattern)), to_(std::move(to)) {}

  bool is_token_by_token() const override { return true; }
  std::string Prepare(std::string_view token) const override {
    auto text = ReplaceMatches(token, pattern_, to_);
    return text.ok() ? *std::move(text) : std::string(token);
  }
  std::unique_ptr<TokenSink> Start(ByteRuns, TokenSink* next) const override {
    return std::make_unique<Sink>(this, next);
  }

 private:
  class Sink : public PassingSink {
   public:
    Sink(const ReplaceRegexStep* step, TokenSink* next) : PassingSink(next), step_(*step) {}
    void Begin(std::string_view token) override { next_.Begin(step_.Prepare(token)); }

   private:
    const ReplaceRegexStep& step_;
  };

  const Regex pattern_;
  const std::string to_;
};

class ReplaceStep : public DecoderStep {
 public:
  ReplaceStep(std::string from, std::string to) : from_(std::move(from)), to_(std::move(to)) {}

  bool is_token_by_token() const override { return true; }
  std::string Prepare(std::string_view token) const override {
    return ReplaceAll(token, from_, to_);
  }
  bool takes_parts() const override { return true; }
  bool makes_parts() const override { return true; }
  std::unique_ptr<TokenSink> Start(ByteRuns, TokenSink* next) const override {
    if (from_.empty()) return std::make_unique<PassingSink>(next);
    return std::make_unique<ReplaceSink>(from_, to_, next);
  }

 private:
  const std::string from_;
  const std::string to_;
};

}  // namespace

StatusOr<std::unique_ptr<DecoderStep>> NewReplaceDecoder(const nlohmann::json& spec) {
  ASSIGN_OR_RETURN(std::string to, StringField(spec, "content", ""));
  const nlohmann::json& pattern = Field(spec, "pattern");
  const nlohmann::json& from = Field(pattern, "String");
  if (!from.is_string()) {
    ASSIGN_OR_RETURN(Regex regex, CompilePattern(pattern));
    return std::unique_ptr<DecoderStep>(
        std::make_unique<ReplaceRegexStep>(std::move(regex), std::move(to)));
  }
  return std::unique_ptr<DecoderStep>(
      std::make_unique<ReplaceStep>(from.get<std::string>(), std::move(to)));
}

}  // namespace tandem
