// Metaspace: the visible mark of a blank becomes a blank; in the first token it vanishes, unless
// `prepend_scheme` is "never".

#include "frontend/text/decoders/decoder_step.h"
#include "frontend/text/json_fields.h"
#include "frontend/text/replace_all.h"

namespace tandem {
namespace {

class MetaspaceSink : public PassingSink {
 public:
  MetaspaceSink(std::string_view mark, bool drops_first, TokenSink* next)
      : PassingSink(next), mark_(mark), drops_(drops_first) {}

  void Begin(std::string_view text) override {
    if (begun_) drops_ = false;
    begun_ = true;
    next_.Begin(ReplaceAll(text, mark_, drops_ ? "" : " "));
  }
  void Continue(std::string_view text) override {
    next_.Continue(ReplaceAll(text, mark_, drops_ ? "" : " "));
  }

 private:
  const std::string_view mark_;
  bool drops_;
  bool begun_ = false;
};

class MetaspaceStep : public DecoderStep {
 public:
  MetaspaceStep(std::string mark, bool drops_first)
      : mark_(std::move(mark)), drops_first_(drops_first) {}

  std::string TokenBytes(std::string_view token) const override {
    return ReplaceAll(token, mark_, " ");
  }
  bool takes_parts() const override { return true; }
  std::unique_ptr<TokenSink> Start(ByteRuns, TokenSink* next) const override {
    return std::make_unique<MetaspaceSink>(mark_, drops_first_, next);
  }

 private:
  const std::string mark_;
  const bool drops_first_;
};

}  // namespace

StatusOr<std::unique_ptr<DecoderStep>> NewMetaspaceDecoder(const nlohmann::json& spec) {
  ASSIGN_OR_RETURN(std::string mark, StringField(spec, "replacement", "\u2581"));
  ASSIGN_OR_RETURN(const std::string scheme, StringField(spec, "prepend_scheme", "always"));
  return std::unique_ptr<DecoderStep>(
      std::make_unique<MetaspaceStep>(std::move(mark), scheme != "never"));
}

}  // namespace tandem
