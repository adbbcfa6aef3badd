#include "frontend/api/completions.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "frontend/api/collected_choice.h"
#include "frontend/api/render.h"
#include "frontend/openai/completion_request.h"

namespace tandem {
namespace {

using std::string_view_literals::operator""sv;  // gcc 12 calls strlen for other literals

// What of the request the response depends on.
struct CompletionShape {
  bool return_token_ids = false;
  std::optional<int64_t> logprobs;  // how many others at each token; -1: all
  bool echo = false;
  bool echo_only = false;  // max_tokens 0: the prompt, nothing generated
  bool show_prompt_logprobs = false;
};

std::string FirstTokenText(const WriterInput& input, const ChoicePrompt& prompt) {
  const std::vector<TokenId>& ids = *prompt.token_ids;
  if (ids.empty()) return {};
  if (input.logprobs_style.as_token_ids) return "token_id:" + std::to_string(ids[0]);
  return input.tokenizer->Decode({ids.data(), 1}, input.logprobs_style.skip_special_tokens);
}

// ---- One body ----

class CompletionBody final : public ResponseWriter {
 public:
  CompletionBody(CompletionShape shape, WriterInput input);
  void WriteDelta(int choice, MessageDelta& delta, const Usage& usage) override;
  void WriteEnd(const Usage& usage) override;

 private:
  struct Choice {
    std::vector<PositionLogprobs> prompt_logprobs;
    CollectedChoice collected;
  };
  Json LogprobsJson(const Choice& choice, const ChoicePrompt& prompt) const;

  const CompletionShape shape_;
  const WriterInput input_;
  std::vector<Choice> choices_;
  wire::RawValue kv_transfer_params_;
  wire::RawValue ec_transfer_params_;
};

CompletionBody::CompletionBody(CompletionShape shape, WriterInput input)
    : ResponseWriter(input.out),
      shape_(shape),
      input_(std::move(input)),
      choices_(input_.prompts.size()) {
  if (!shape_.echo) return;
  for (size_t i = 0; i < choices_.size(); ++i) {
    choices_[i].collected.content = *input_.prompts[i].text;
  }
}

void CompletionBody::WriteDelta(int index, MessageDelta& delta, const Usage&) {
  Choice& choice = choices_[static_cast<size_t>(index)];
  AppendPositionLogprobs(*input_.tokenizer, input_.logprobs_style, delta.extras().prompt_logprobs,
                         &choice.prompt_logprobs);
  if (delta.finish_reason) {
    kv_transfer_params_ = delta.extras().kv_transfer_params;
    ec_transfer_params_ = delta.extras().ec_transfer_params;
  }
  if (shape_.echo_only) delta.ClearOutput();
  choice.collected.Append(delta);
}

Json CompletionBody::LogprobsJson(const Choice& choice, const ChoicePrompt& prompt) const {
  if (!shape_.logprobs) return nullptr;
  CompletionLogprobs list(*shape_.logprobs);
  if (shape_.echo) {
    list.AddUnscored(FirstTokenText(input_, prompt));
    for (const PositionLogprobs& position : choice.prompt_logprobs) list.Add(position);
  }
  for (const PositionLogprobs& position : choice.collected.logprobs) list.Add(position);
  return list.ToJson();
}

void CompletionBody::WriteEnd(const Usage& usage) {
  const bool ids = shape_.return_token_ids;
  Json choices = Json::array();
  for (size_t i = 0; i < choices_.size(); ++i) {
    const Choice& choice = choices_[i];
    const ChoicePrompt& prompt = input_.prompts[i];
    choices.push_back(
        {{"index", i},
         {"text", choice.collected.content},
         {"logprobs", LogprobsJson(choice, prompt)},
         {"finish_reason", choice.collected.finish_reason},
         {"stop_reason", StopReasonJson(choice.collected.stop_reason)},
         {"token_ids", ids ? TokenIdsJson(choice.collected.token_ids) : Json(nullptr)},
         {"prompt_logprobs",
          shape_.show_prompt_logprobs ? PromptLogprobsJson(choice.prompt_logprobs) : Json(nullptr)},
         {"prompt_token_ids", ids ? TokenIdsJson(*prompt.token_ids) : Json(nullptr)},
         {"routed_experts", nullptr},
         {"weight_versions", nullptr}});
  }
  out_->append(DumpJson({{"id", input_.head.id},
                         {"object", "text_completion"},
                         {"created", input_.head.created},
                         {"model", input_.head.model},
                         {"choices", std::move(choices)},
                         {"service_tier", nullptr},
                         {"system_fingerprint", FingerprintJson(input_.head)},
                         {"usage", UsageJson(usage)},
                         {"kv_transfer_params", UnpackJson(kv_transfer_params_)},
                         {"ec_transfer_params", UnpackJson(ec_transfer_params_)},
                         {"metrics", MetricsJson(usage)}}));
}

// ---- Events ----

class CompletionStream final : public ResponseWriter {
 public:
  CompletionStream(CompletionShape shape, WriterInput input);
  void WriteDelta(int choice, MessageDelta& delta, const Usage& usage) override;
  void WriteEnd(const Usage& usage) override;

 private:
  struct Choice {
    bool started = false;
    size_t text_offset = 0;
  };
  void AppendLogprobs(int index, const MessageDelta& delta, bool first);

  const CompletionShape shape_;
  const WriterInput input_;
  const ChunkWriter chunk_;
  std::vector<Choice> choices_;
};

CompletionStream::CompletionStream(CompletionShape shape, WriterInput input)
    : ResponseWriter(input.out),
      shape_(shape),
      input_(std::move(input)),
      chunk_(input_.head, "text_completion"),
      choices_(input_.prompts.size()) {}

void CompletionStream::WriteDelta(int index, MessageDelta& delta, const Usage& usage) {
  Choice& choice = choices_[static_cast<size_t>(index)];
  const ChoicePrompt& prompt = input_.prompts[static_cast<size_t>(index)];
  const bool first = !choice.started;
  choice.started = true;
  if (shape_.echo_only) delta.ClearOutput();
  chunk_.Begin(index, out_);
  out_->append(",\"text\":\""sv);
  if (first && shape_.echo) AppendEscaped(*prompt.text, out_);
  AppendEscaped(delta.content, out_);
  out_->append("\",\"logprobs\":"sv);
  if (shape_.logprobs) {
    AppendLogprobs(index, delta, first);
  } else {
    out_->append("null"sv);
  }
  AppendFinish(delta, out_);
  out_->append(",\"prompt_token_ids\":"sv);
  if (shape_.return_token_ids && first) {
    AppendTokenIds(*prompt.token_ids, out_);
  } else {
    out_->append("null"sv);
  }
  out_->append(",\"token_ids\":"sv);
  if (shape_.return_token_ids && !shape_.echo_only) {
    AppendTokenIds(delta.token_ids, out_);
  } else {
    out_->append("null"sv);
  }
  const Usage* const shown = input_.stream_usage.on_every_chunk ? &usage : nullptr;
  if (!delta.finish_reason) return chunk_.End(kNoKvTransfer, shown, out_);
  chunk_.End(KvTransferField(delta), shown, out_);
}

void CompletionStream::AppendLogprobs(int index, const MessageDelta& delta, bool first) {
  Choice& choice = choices_[static_cast<size_t>(index)];
  CompletionLogprobs list(*shape_.logprobs, choice.text_offset);
  if (first && shape_.echo) {
    list.AddUnscored(FirstTokenText(input_, input_.prompts[static_cast<size_t>(index)]));
    std::vector<PositionLogprobs> prompt_logprobs;
    AppendPositionLogprobs(*input_.tokenizer, input_.logprobs_style, delta.extras().prompt_logprobs,
                           &prompt_logprobs);
    for (const PositionLogprobs& position : prompt_logprobs) list.Add(position);
  }
  for (const PositionLogprobs& position : delta.logprobs) list.Add(position);
  choice.text_offset = list.text_offset();
  out_->append(DumpJson(list.ToJson()));
}

void CompletionStream::WriteEnd(const Usage& usage) {
  if (input_.stream_usage.at_end) chunk_.AppendUsage(usage, out_);
  ChunkWriter::AppendDone(out_);
}

// ---- The call ----

class CompletionCall final : public GenerationCall {
 public:
  explicit CompletionCall(const ApiContext& context) : input_processor_(*context.input_processor) {}

  const char* id_prefix() const override { return "cmpl-"; }

  Status Parse(JsonDocument body) override {
    ASSIGN_OR_RETURN(request_, ParseCompletionRequest(std::move(body.mutable_value())));
    return OkStatus();
  }

  GenerationRequest& request() override { return request_; }

  StatusOr<ProcessedRequest> Process(const RequestContext& context) override {
    shape_.return_token_ids = request_.return_token_ids;
    shape_.logprobs = request_.logprobs;
    if (!request_.logprob_token_ids.empty()) shape_.logprobs = -1;
    shape_.echo = request_.echo;
    shape_.echo_only = request_.echo && request_.max_tokens == 0;
    ASSIGN_OR_RETURN(ProcessedRequest processed,
                     input_processor_.Process(std::move(request_), context));
    shape_.show_prompt_logprobs = processed.has_prompt_logprobs();
    return processed;
  }

  std::unique_ptr<ResponseWriter> MakeWriter(WriterInput input) const override {
    if (input.stream) return std::make_unique<CompletionStream>(shape_, std::move(input));
    return std::make_unique<CompletionBody>(shape_, std::move(input));
  }

 private:
  const InputProcessor& input_processor_;
  CompletionRequest request_;
  CompletionShape shape_;
};

}  // namespace

std::unique_ptr<GenerationCall> MakeCompletion(const ApiContext& context) {
  return std::make_unique<CompletionCall>(context);
}

}  // namespace tandem
