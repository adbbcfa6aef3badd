// Fuse: all tokens become one, so that the steps after it see the text as a whole.

#include "frontend/text/decoders/decoder_step.h"

namespace tandem {
namespace {

class FuseSink : public PassingSink {
 public:
  using PassingSink::PassingSink;
  void Begin(std::string_view text) override {
    begun_ ? next_.Continue(text) : next_.Begin(text);
    begun_ = true;
  }

 private:
  bool begun_ = false;
};

class FuseStep : public DecoderStep {
 public:
  bool takes_parts() const override { return true; }
  bool makes_parts() const override { return true; }
  std::unique_ptr<TokenSink> Start(ByteRuns, TokenSink* next) const override {
    return std::make_unique<FuseSink>(next);
  }
};

}  // namespace

StatusOr<std::unique_ptr<DecoderStep>> NewFuseDecoder(const nlohmann::json&) {
  return std::unique_ptr<DecoderStep>(std::make_unique<FuseStep>());
}

}  // namespace tandem
