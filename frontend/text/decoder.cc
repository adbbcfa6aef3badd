#include "frontend/text/decoder.h"

#include <map>
#include <utility>

#include "frontend/text/decoders/decoder_step.h"
#include "frontend/text/json_fields.h"

namespace tandem {
namespace {

constexpr int kMaxDepth = 8;

using NewStep = StatusOr<std::unique_ptr<DecoderStep>> (*)(const nlohmann::json& spec);

const std::map<std::string, NewStep>& Kinds() {
  static const std::map<std::string, NewStep> kinds = {
      {"BPEDecoder", NewBpeSuffixDecoder},
      {"ByteFallback", NewByteFallbackDecoder},
      {"ByteLevel", NewByteLevelDecoder},
      {"CTC", NewCtcDecoder},
      {"Fuse", NewFuseDecoder},
      {"Metaspace", NewMetaspaceDecoder},
      {"Replace", NewReplaceDecoder},
      {"Strip", NewStripDecoder},
      {"WordPiece", NewWordPieceDecoder},
  };
  return kinds;
}

// Where a stream's text goes.
class TextSink : public TokenSink {
 public:
  void Begin(std::string_view text) override { out->append(text); }
  void Continue(std::string_view text) override { out->append(text); }
  void End() override {}
  bool inside_character() const override { return false; }

  std::string* out = nullptr;
};

}  // namespace

struct TokenStream::Chain {
  TextSink last;
  std::vector<std::unique_ptr<TokenSink>> sinks;  // from the last step to the first
  TokenSink& first() { return sinks.empty() ? last : *sinks.back(); }
};

TokenStream::TokenStream(std::unique_ptr<Chain> chain) : chain_(std::move(chain)) {}
TokenStream::TokenStream(TokenStream&&) noexcept = default;
TokenStream::~TokenStream() = default;

void TokenStream::Append(std::string_view prepared, std::string* text) {
  chain_->last.out = text;
  chain_->first().Begin(prepared);
}

void TokenStream::End(std::string* text) {
  chain_->last.out = text;
  chain_->first().End();
}

bool TokenStream::inside_character() const { return chain_->first().inside_character(); }

TokenDecoder::TokenDecoder() = default;
TokenDecoder::TokenDecoder(std::unique_ptr<DecoderStep> only_step) {
  steps_.push_back(std::move(only_step));
}
TokenDecoder::TokenDecoder(TokenDecoder&&) noexcept = default;
TokenDecoder& TokenDecoder::operator=(TokenDecoder&&) noexcept = default;
TokenDecoder::~TokenDecoder() = default;

StatusOr<TokenDecoder> TokenDecoder::Create(const nlohmann::json& spec) {
  if (spec.is_null()) return TokenDecoder(NewBlankDecoder());
  TokenDecoder decoder;
  RETURN_IF_ERROR(decoder.Add(spec, 0));
  return decoder;
}

Status TokenDecoder::Add(const nlohmann::json& spec, int depth) {
  if (depth > kMaxDepth) return InvalidArgumentError("decoder is nested too deeply");
  ASSIGN_OR_RETURN(const std::string kind, KindOf(spec, "decoder"));
  if (kind == "Sequence") {
    for (const auto& item : Field(spec, "decoders")) RETURN_IF_ERROR(Add(item, depth + 1));
    return OkStatus();
  }
  const auto row = Kinds().find(kind);
  if (row == Kinds().end()) {
    return UnimplementedError("decoder \"" + kind + "\" is not supported");
  }
  ASSIGN_OR_RETURN(auto step, row->second(spec));
  const bool only_prepared = num_prepared_ == steps_.size();
  const bool is_byte_level = row->second == NewByteLevelDecoder;
  if ((is_byte_level && !only_prepared) || (makes_parts_ && !step->takes_parts())) {
    return UnimplementedError("decoder \"" + kind + "\" after others is not supported");
  }
  byte_level_ = byte_level_ || is_byte_level;
  if (only_prepared && step->is_token_by_token()) {
    ++num_prepared_;
  } else {
    makes_parts_ = makes_parts_ || step->makes_parts();
  }
  steps_.push_back(std::move(step));
  return OkStatus();
}

std::string TokenDecoder::Prepare(std::string_view token) const {
  std::string text(token);
  const size_t end = num_prepared_ + (byte_level_ ? 1 : 0);
  for (size_t i = 0; i < end; ++i) text = steps_[i]->Prepare(text);
  return text;
}

TokenStream TokenDecoder::Start(ByteRuns byte_runs) const {
  auto chain = std::make_unique<TokenStream::Chain>();
  for (size_t i = steps_.size(); i > num_prepared_; --i) {
    chain->sinks.push_back(steps_[i - 1]->Start(byte_runs, &chain->first()));
  }
  return TokenStream(std::move(chain));
}

std::string TokenDecoder::Decode(const std::vector<std::string>& tokens) const {
  std::string text;
  TokenStream stream = Start(ByteRuns::kWhole);
  for (const std::string& token : tokens) stream.Append(Prepare(token), &text);
  stream.End(&text);
  return text;
}

std::string TokenDecoder::TokenBytes(std::string_view token) const {
  std::string text = Prepare(token);
  if (byte_level_) return text;
  for (size_t i = num_prepared_; i < steps_.size(); ++i) text = steps_[i]->TokenBytes(text);
  return text;
}

}  // namespace tandem
