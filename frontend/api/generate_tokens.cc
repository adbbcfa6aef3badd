#include "frontend/api/generate_tokens.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "frontend/api/collected_choice.h"
#include "frontend/api/render.h"
#include "frontend/openai/generate_request.h"

namespace tandem {
namespace {

// What of the request the response depends on.
struct TokensShape {
  std::optional<int64_t> logprobs;  // how many others at each token; -1: all
  bool show_prompt_logprobs = false;
};

Json LogprobsJson(const TokensShape& shape, const std::vector<PositionLogprobs>& positions) {
  if (!shape.logprobs) return nullptr;
  const int64_t num_top = *shape.logprobs < 0 ? -1 : std::max<int64_t>(*shape.logprobs, 1);
  return ChatLogprobsJson(positions, num_top);
}

class TokensBody final : public ResponseWriter {
 public:
  TokensBody(TokensShape shape, WriterInput input)
      : ResponseWriter(input.out),
        shape_(shape),
        input_(std::move(input)),
        choices_(input_.prompts.size()) {}

  void WriteDelta(int index, MessageDelta& delta, const Usage&) override {
    if (index == 0) {  // all choices have the same prompt
      AppendPositionLogprobs(*input_.tokenizer, input_.logprobs_style, delta.prompt_logprobs,
                             &prompt_logprobs_);
    }
    if (delta.finish_reason) kv_transfer_params_ = delta.kv_transfer_params;
    choices_[static_cast<size_t>(index)].Append(delta);
  }

  void WriteEnd(const Usage&) override {
    Json choices = Json::array();
    for (const CollectedChoice& choice : choices_) {
      choices.push_back({{"index", choices.size()},
                         {"logprobs", LogprobsJson(shape_, choice.logprobs)},
                         {"finish_reason", choice.finish_reason},
                         {"token_ids", TokenIdsJson(choice.token_ids)}});
    }
    out_->append(DumpJson(
        {{"request_id", input_.head.id},
         {"choices", std::move(choices)},
         {"prompt_logprobs",
          shape_.show_prompt_logprobs ? PromptLogprobsJson(prompt_logprobs_) : Json(nullptr)},
         {"kv_transfer_params", UnpackJson(kv_transfer_params_)}}));
  }

 private:
  const TokensShape shape_;
  const WriterInput input_;
  std::vector<CollectedChoice> choices_;
  std::vector<PositionLogprobs> prompt_logprobs_;
  wire::RawValue kv_transfer_params_;
};

class TokensStream final : public ResponseWriter {
 public:
  TokensStream(TokensShape shape, WriterInput input)
      : ResponseWriter(input.out), shape_(shape), input_(std::move(input)) {}

  void WriteDelta(int index, MessageDelta& delta, const Usage& usage) override {
    Json choice = {
        {"index", index},
        {"logprobs", LogprobsJson(shape_, delta.logprobs)},
        {"finish_reason",
         delta.finish_reason ? Json(FinishReasonName(*delta.finish_reason)) : Json(nullptr)},
        {"token_ids", TokenIdsJson(delta.token_ids)}};
    Append(Json::array({std::move(choice)}),
           input_.stream_usage.on_every_chunk ? UsageJson(usage) : Json(nullptr));
  }

  void WriteEnd(const Usage& usage) override {
    if (input_.stream_usage.at_end) Append(Json::array(), UsageJson(usage));
    ChunkWriter::AppendDone(out_);
  }

 private:
  void Append(Json choices, Json usage) {
    const Json chunk = {{"request_id", input_.head.id},
                        {"choices", std::move(choices)},
                        {"usage", std::move(usage)}};
    out_->append("data: ").append(DumpJson(chunk)).append("\n\n");
  }

  const TokensShape shape_;
  const WriterInput input_;
};

class TokensCall final : public GenerationCall {
 public:
  explicit TokensCall(const ApiContext& context) : input_processor_(*context.input_processor) {}

  const char* id_prefix() const override { return ""; }

  Status Parse(JsonDocument body) override {
    ASSIGN_OR_RETURN(request_, ParseGenerateRequest(std::move(body.mutable_value())));
    return OkStatus();
  }

  GenerationRequest& request() override { return request_; }

  StatusOr<ProcessedRequest> Process(const RequestContext& context) override {
    shape_.logprobs = request_.logprobs;
    if (!request_.logprob_token_ids.empty()) shape_.logprobs = -1;
    shape_.show_prompt_logprobs = request_.prompt_logprobs.has_value();
    auto processed = input_processor_.Process(static_cast<CompletionRequest&&>(request_), context);
    if (processed.ok() || processed.status().param() != "prompt") return processed;
    return Status(processed.status()).WithParam("token_ids");
  }

  std::unique_ptr<ResponseWriter> MakeWriter(WriterInput input) const override {
    if (input.stream) return std::make_unique<TokensStream>(shape_, std::move(input));
    return std::make_unique<TokensBody>(shape_, std::move(input));
  }

 private:
  const InputProcessor& input_processor_;
  GenerateRequest request_;
  TokensShape shape_;
};

}  // namespace

std::unique_ptr<GenerationCall> MakeTokenGeneration(const ApiContext& context) {
  return std::make_unique<TokensCall>(context);
}

}  // namespace tandem
