// Strip: takes a string off both ends of each token, at most `start` and `stop` times; after Fuse
// off the ends of the whole text.

#include "frontend/text/decoders/decoder_step.h"
#include "frontend/text/json_fields.h"

namespace tandem {
namespace {

struct StripOptions {
  std::string content;  // not empty
  size_t start = 0;
  size_t stop = 0;
};

// Takes content off the start of *text, at most *times, which it counts down. Returns whether the
// text began with something else, or the count is used up: nothing more is to be taken.
bool StripStart(std::string_view content, size_t* times, std::string_view* text) {
  for (; *times > 0 && text->starts_with(content); --*times) text->remove_prefix(content.size());
  return *times == 0 || !text->empty();
}

size_t CountAtEnd(std::string_view content, std::string_view text) {
  size_t count = 0;
  for (; text.ends_with(content); text.remove_suffix(content.size())) ++count;
  return count;
}

class StripSink : public PassingSink {
 public:
  StripSink(const StripOptions& options, TokenSink* next) : PassingSink(next), options_(options) {}

  void Begin(std::string_view text) override {
    to_strip_ = options_.start;
    num_held_ = 0;  // they were the end of the token before
    next_.Begin("");
    Continue(text);
  }

  void Continue(std::string_view text) override {
    if (to_strip_ > 0 && StripStart(options_.content, &to_strip_, &text)) to_strip_ = 0;
    const size_t num_at_end = CountAtEnd(options_.content, text);
    text.remove_suffix(num_at_end * options_.content.size());
    // Copies of content before other text stay; of those at the end the last `stop` may go.
    if (!text.empty()) {
      Release(num_held_);
      num_held_ = 0;
      next_.Continue(text);
    }
    num_held_ += num_at_end;
    if (num_held_ > options_.stop) {
      Release(num_held_ - options_.stop);
      num_held_ = options_.stop;
    }
  }

 private:
  void Release(size_t count) {
    for (; count > 0; --count) next_.Continue(options_.content);
  }

  const StripOptions& options_;
  size_t to_strip_ = 0;  // at the start of this token
  size_t num_held_ = 0;  // copies of content at the end of this token
};

class StripStep : public DecoderStep {
 public:
  explicit StripStep(StripOptions options) : options_(std::move(options)) {}

  bool is_token_by_token() const override { return true; }
  std::string Prepare(std::string_view token) const override {
    size_t start = options_.start;
    StripStart(options_.content, &start, &token);
    for (size_t stop = options_.stop; stop > 0 && token.ends_with(options_.content); --stop) {
      token.remove_suffix(options_.content.size());
    }
    return std::string(token);
  }
  // Prepare apart, the step works on joined tokens and changes nothing in the middle of a text.
  std::string TokenBytes(std::string_view token) const override { return std::string(token); }
  bool takes_parts() const override { return true; }
  bool makes_parts() const override { return true; }
  std::unique_ptr<TokenSink> Start(ByteRuns, TokenSink* next) const override {
    return std::make_unique<StripSink>(options_, next);
  }

 private:
  const StripOptions options_;
};

StatusOr<size_t> CountField(const nlohmann::json& spec, const char* name) {
  const nlohmann::json& value = Field(spec, name);
  if (value.is_null()) return size_t{0};
  if (!value.is_number_unsigned()) return WrongType(name, value, "a count");
  return value.get<size_t>();
}

}  // namespace

StatusOr<std::unique_ptr<DecoderStep>> NewStripDecoder(const nlohmann::json& spec) {
  StripOptions options;
  ASSIGN_OR_RETURN(options.content, StringField(spec, "content", " "));
  ASSIGN_OR_RETURN(options.start, CountField(spec, "start"));
  ASSIGN_OR_RETURN(options.stop, CountField(spec, "stop"));
  if (options.content.empty()) return InvalidArgumentError("decoder Strip with empty content");
  return std::unique_ptr<DecoderStep>(std::make_unique<StripStep>(std::move(options)));
}

}  // namespace tandem
