#include "frontend/api/generate_tokens.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "frontend/api/chat_completions.h"
#include "frontend/api/collected_choice.h"
#include "frontend/api/error.h"
#include "frontend/api/parse_context.h"
#include "frontend/api/render.h"
#include "frontend/openai/generate_request.h"
#include "frontend/openai/refuse.h"
#include "frontend/text/base64.h"
#include "proto_msgpack/codec.h"

namespace tandem {
namespace {

using OutputMode = GenerateRequest::OutputMode;

// What of the request the response depends on.
struct TokensShape {
  OutputMode mode = OutputMode::kTokens;
  std::optional<int64_t> logprobs;  // how many others at each token; -1: all
  bool show_prompt_logprobs = false;
  bool return_token_ids = false;  // those of the prompt; the generated ones are there anyway
  std::string role;               // of a message
  bool forces_calls = false;
  bool hides_tokens = false;  // they would show the reasoning that the message leaves out
};

Json ScoredIdJson(const ScoredToken& token) {
  return {{"token_id", token.token_id},
          {"logprob", token.logprob},
          {"rank", token.rank > 0 ? Json(token.rank) : Json(nullptr)}};
}

// Tokens by their ids: the sampled one, then the most likely ones.
Json IdLogprobsJson(const std::vector<PositionLogprobs>& positions) {
  Json content = Json::array();
  for (const PositionLogprobs& position : positions) {
    Json entry = ScoredIdJson(position.token);
    Json& top = entry["top_logprobs"] = Json::array();
    for (const ScoredToken& token : position.top) top.push_back(ScoredIdJson(token));
    content.push_back(std::move(entry));
  }
  return {{"content", std::move(content)}};
}

Json LogprobsJson(const TokensShape& shape, const std::vector<PositionLogprobs>& positions) {
  if (!shape.logprobs || shape.hides_tokens) return nullptr;
  if (shape.mode == OutputMode::kTokens) return IdLogprobsJson(positions);
  // A message has those that a chat's has; a text has all that the engine reports.
  return ChatLogprobsJson(positions, shape.mode == OutputMode::kText ? -1 : *shape.logprobs);
}

// What all modes have in common.
Json ChoiceJson(const TokensShape& shape, size_t index,
                const std::vector<PositionLogprobs>& logprobs, Json finish_reason,
                const wire::StopReason& stop_reason, const std::vector<TokenId>& token_ids) {
  return {{"index", index},
          {"logprobs", LogprobsJson(shape, logprobs)},
          {"finish_reason", std::move(finish_reason)},
          {"stop_reason", StopReasonJson(stop_reason)},
          {"token_ids", shape.hides_tokens ? Json(nullptr) : TokenIdsJson(token_ids)},
          {"routed_experts", nullptr},
          {"sampling_mask", nullptr},
          {"weight_versions", nullptr}};
}

// A tensor of floats as numpy.save writes it, in base64; null: there is none.
Json NpyJson(const wire::RawValue& tensor) {
  if (tensor.is_nil()) return nullptr;
  const auto view = wire::DecodeTensor(tensor, {});
  if (!view.ok() || view->shape.size() != 2) return nullptr;
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (" +
                       std::to_string(view->shape[0]) + ", " + std::to_string(view->shape[1]) +
                       "), }";
  const std::string magic("\x93NUMPY\x01\x00", 8);  // and the version, 1.0
  constexpr size_t kSizeBytes = 2, kAlignment = 64;
  while ((magic.size() + kSizeBytes + header.size() + 1) % kAlignment != 0) header += ' ';
  header += '\n';
  const std::string size = {static_cast<char>(header.size() & 0xff),
                            static_cast<char>(header.size() >> 8)};
  return Base64Encode(magic + size + header + std::string(view->data));
}

class TokensBody final : public ResponseWriter {
 public:
  TokensBody(TokensShape shape, WriterInput input)
      : ResponseWriter(input.out),
        shape_(std::move(shape)),
        input_(std::move(input)),
        choices_(input_.prompts.size()) {}

  void WriteDelta(int index, MessageDelta& delta, const Usage&) override {
    if (index == 0) {  // all choices have the same prompt
      AppendPositionLogprobs(*input_.tokenizer, input_.logprobs_style,
                             delta.extras().prompt_logprobs, &prompt_logprobs_);
      if (!delta.extras().prompt_scores.is_nil()) prompt_scores_ = delta.extras().prompt_scores;
    }
    if (delta.finish_reason) {
      kv_transfer_params_ = delta.extras().kv_transfer_params;
      ec_transfer_params_ = delta.extras().ec_transfer_params;
    }
    choices_[static_cast<size_t>(index)].Append(delta);
  }

  void WriteEnd(const Usage& usage) override {
    Json choices = Json::array();
    for (const CollectedChoice& choice : choices_) {
      Json json = ChoiceJson(shape_, choices.size(), choice.logprobs, choice.finish_reason,
                             choice.stop_reason, choice.token_ids);
      if (shape_.mode == OutputMode::kText) json["text"] = choice.content;
      if (shape_.mode == OutputMode::kDerender) {
        json["message"] = ChatMessageJson(shape_.role, shape_.forces_calls, choice);
      }
      choices.push_back(std::move(json));
    }
    const ChoicePrompt& prompt = input_.prompts.front();
    out_->append(DumpJson(
        {{"request_id", input_.head.id},
         {"output_mode", OutputModeName(shape_.mode)},
         {"model", input_.head.model},
         {"created", input_.head.created},
         {"choices", std::move(choices)},
         {"usage", UsageJson(usage)},
         {"prompt_logprobs",
          shape_.show_prompt_logprobs ? PromptLogprobsJson(prompt_logprobs_) : Json(nullptr)},
         {"prompt_token_id_logprobs", NpyJson(prompt_scores_)},
         {"prompt_token_ids",
          shape_.return_token_ids ? TokenIdsJson(*prompt.token_ids) : Json(nullptr)},
         {"mm_placeholders", nullptr},
         {"metrics", MetricsJson(usage)},
         {"kv_transfer_params", UnpackJson(kv_transfer_params_)},
         {"ec_transfer_params", UnpackJson(ec_transfer_params_)}}));
  }

 private:
  const TokensShape shape_;
  const WriterInput input_;
  std::vector<CollectedChoice> choices_;
  std::vector<PositionLogprobs> prompt_logprobs_;
  wire::RawValue prompt_scores_;
  wire::RawValue kv_transfer_params_;
  wire::RawValue ec_transfer_params_;
};

class TokensStream final : public ResponseWriter {
 public:
  TokensStream(TokensShape shape, WriterInput input)
      : ResponseWriter(input.out), shape_(std::move(shape)), input_(std::move(input)) {}

  void WriteDelta(int index, MessageDelta& delta, const Usage& usage) override {
    Json finish_reason = nullptr;
    if (delta.finish_reason) finish_reason = FinishReasonName(*delta.finish_reason);
    const wire::StopReason stop_reason =
        delta.finish_reason ? delta.stop_reason : wire::StopReason();
    Json choice = ChoiceJson(shape_, static_cast<size_t>(index), delta.logprobs,
                             std::move(finish_reason), stop_reason, delta.token_ids);
    if (shape_.mode == OutputMode::kText) choice["text"] = delta.content;
    Append(Json::array({std::move(choice)}),
           input_.stream_usage.on_every_chunk ? UsageJson(usage) : Json(nullptr));
  }

  void WriteEnd(const Usage& usage) override {
    if (input_.stream_usage.at_end) Append(Json::array(), UsageJson(usage));
    ChunkWriter::AppendDone(out_);
  }

 private:
  void Append(Json choices, Json usage) {
    Json chunk = {{"request_id", input_.head.id},
                  {"output_mode", OutputModeName(shape_.mode)},
                  {"choices", std::move(choices)},
                  {"usage", std::move(usage)}};
    if (shape_.return_token_ids && is_first_) {
      chunk["prompt_token_ids"] = TokenIdsJson(*input_.prompts.front().token_ids);
    }
    is_first_ = false;
    out_->append("data: ").append(DumpJson(chunk)).append("\n\n");
  }

  const TokensShape shape_;
  const WriterInput input_;
  bool is_first_ = true;
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
    shape_.mode = request_.output_mode;
    shape_.logprobs = request_.logprobs;
    if (!request_.logprob_token_ids.empty()) shape_.logprobs = -1;
    shape_.return_token_ids = request_.return_token_ids;
    if (request_.trace_decode_token_ids) RETURN_IF_ERROR(TakeGivenOutputs(context));
    std::optional<ChatRequest> chat;
    if (shape_.mode == OutputMode::kDerender) {
      ASSIGN_OR_RETURN(chat, Chat());
    }
    auto processed = input_processor_.Process(static_cast<CompletionRequest&&>(request_), context);
    constexpr FieldName kNames[] = {{"prompt", "token_ids"}};
    if (!processed.ok()) return InWordsOfBody(kNames, processed.status());
    shape_.show_prompt_logprobs = processed->has_prompt_logprobs();
    if (chat) RETURN_IF_ERROR(SetMessage(*chat, &*processed));
    return processed;
  }

  std::unique_ptr<ResponseWriter> MakeWriter(WriterInput input) const override {
    if (input.stream) return std::make_unique<TokensStream>(shape_, std::move(input));
    return std::make_unique<TokensBody>(shape_, std::move(input));
  }

 private:
  // Nothing ends outputs that are given but their own end, max_tokens and the model's length.
  Status TakeGivenOutputs(const RequestContext& context) {
    if (!input_processor_.config().enable_trace_replay) {
      return Refuse("trace_decode_token_ids",
                    "trace_decode_token_ids needs a server started with --enable-trace-replay");
    }
    std::vector<int64_t>& ids = *request_.trace_decode_token_ids;
    const auto length = std::min(ids.size(), static_cast<size_t>(context.max_model_len));
    ids.resize(length);
    const auto num_given = static_cast<int64_t>(length);
    request_.max_tokens = std::min(request_.max_tokens.value_or(num_given), num_given);
    request_.min_tokens = 0;
    request_.ignore_eos = true;
    request_.stop.clear();
    request_.stop_token_ids.clear();
    request_.allowed_token_ids.reset();
    return OkStatus();
  }

  StatusOr<ChatRequest> Chat() const {
    const ParserConfig& parsers = input_processor_.config().parsers;
    const bool has_parser =
        parsers.tool_parser != nullptr || parsers.reasoning != nullptr || parsers.is_harmony;
    if (request_.parse_context.is_null() && has_parser) {
      return Refuse("parse_context",
                    "output_mode derender needs the parse_context that render returns, because "
                    "this server parses tool calls or reasoning");
    }
    return ChatOfParseContext(request_.parse_context.is_null() ? Json::object()
                                                               : *request_.parse_context);
  }

  // How the text of the choices becomes messages.
  Status SetMessage(const ChatRequest& chat, ProcessedRequest* processed) {
    const std::vector<TokenId>& prompt = processed->requests.front().prompt_token_ids;
    const std::string text = input_processor_.tokenizer().Decode(prompt, false);
    ASSIGN_OR_RETURN(processed->message,
                     PlanMessage(input_processor_.config().parsers, chat, text, JsonDocument()));
    shape_.role = input_processor_.config().response_role;
    shape_.forces_calls = processed->message && processed->message->forces_calls();
    shape_.hides_tokens = processed->message && !chat.include_reasoning;
    return OkStatus();
  }

  const InputProcessor& input_processor_;
  GenerateRequest request_;
  TokensShape shape_;
};

}  // namespace

std::unique_ptr<GenerationCall> MakeTokenGeneration(const ApiContext& context) {
  return std::make_unique<TokensCall>(context);
}

}  // namespace tandem
