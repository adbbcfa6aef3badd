#include "frontend/api/completions.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace tandem {
namespace {

std::string FirstTokenText(const Tokenizer& tokenizer, const LogprobsStyle& style,
                           const std::vector<TokenId>& ids) {
  if (ids.empty()) return {};
  if (style.as_token_ids) return "token_id:" + std::to_string(ids[0]);
  return tokenizer.Decode({ids.data(), 1}, style.skip_special_tokens);
}

}  // namespace

CompletionShape MakeShape(const CompletionRequest& request, const ApiOptions& options) {
  CompletionShape shape;
  shape.choice = MakeChoiceShape(request, options);
  shape.logprobs = request.logprobs;
  if (!request.logprob_token_ids.empty()) shape.logprobs = -1;
  shape.show_prompt_logprobs = request.prompt_logprobs || (request.echo && request.logprobs);
  shape.echo = request.echo;
  shape.echo_only = request.echo && request.max_tokens == 0;
  shape.usage = MakeStreamUsage(request, options);
  return shape;
}

CompletionResponse::CompletionResponse(const Tokenizer& tokenizer, CompletionShape shape,
                                       const std::vector<ChoicePrompt>& prompts, std::string* out)
    : tokenizer_(tokenizer), shape_(std::move(shape)), out_(out) {
  for (const ChoicePrompt& prompt : prompts) {
    choices_.emplace_back().prompt = prompt;
    if (shape_.echo) choices_.back().answer.text = *prompt.text;
  }
}

void CompletionResponse::OnDelta(int index, const OutputDelta& delta, const Usage&) {
  Choice& choice = choices_[static_cast<size_t>(index)];
  const LogprobsStyle& style = shape_.choice.logprobs_style;
  AppendPositionLogprobs(tokenizer_, style, delta.prompt_logprobs, &choice.prompt_logprobs);
  if (!shape_.echo_only) choice.answer.Append(tokenizer_, shape_.choice, delta);
  if (choice.answer.TakeEnd(delta)) kv_transfer_params_ = delta.kv_transfer_params;
}

void CompletionResponse::OnEnd(const Usage& usage) {
  Json choices = Json::array();
  for (const Choice& choice : choices_) {
    Json logprobs = nullptr;
    if (shape_.logprobs) {
      CompletionLogprobs list(*shape_.logprobs);
      if (shape_.echo) {
        list.AddUnscored(
            FirstTokenText(tokenizer_, shape_.choice.logprobs_style, *choice.prompt.token_ids));
        for (const PositionLogprobs& position : choice.prompt_logprobs) list.Add(position);
      }
      for (const PositionLogprobs& position : choice.answer.logprobs) list.Add(position);
      logprobs = list.ToJson();
    }
    const bool ids = shape_.choice.return_token_ids;
    choices.push_back(
        {{"index", choices.size()},
         {"text", choice.answer.text},
         {"logprobs", std::move(logprobs)},
         {"finish_reason", choice.answer.finish_reason},
         {"stop_reason", StopReasonJson(choice.answer.stop_reason)},
         {"token_ids", ids ? TokenIdsJson(choice.answer.token_ids) : Json(nullptr)},
         {"prompt_logprobs",
          shape_.show_prompt_logprobs ? PromptLogprobsJson(choice.prompt_logprobs) : Json(nullptr)},
         {"prompt_token_ids", ids ? TokenIdsJson(*choice.prompt.token_ids) : Json(nullptr)},
         {"routed_experts", nullptr},
         {"weight_versions", nullptr}});
  }
  out_->append(DumpJson({{"id", shape_.head.id},
                         {"object", "text_completion"},
                         {"created", shape_.head.created},
                         {"model", shape_.head.model},
                         {"choices", std::move(choices)},
                         {"service_tier", nullptr},
                         {"system_fingerprint", FingerprintJson(shape_.head)},
                         {"usage", UsageJson(usage)},
                         {"kv_transfer_params", UnpackJson(kv_transfer_params_)},
                         {"ec_transfer_params", nullptr},
                         {"metrics", TimingsJson(usage.timings)}}));
}

CompletionStream::CompletionStream(const Tokenizer& tokenizer, CompletionShape shape,
                                   const std::vector<ChoicePrompt>& prompts, std::string* out)
    : tokenizer_(tokenizer),
      shape_(std::move(shape)),
      writer_(shape_.head, "text_completion"),
      out_(out) {
  for (const ChoicePrompt& prompt : prompts) choices_.push_back({prompt});
}

void CompletionStream::OnDelta(int index, const OutputDelta& delta, const Usage& usage) {
  Choice& choice = choices_[static_cast<size_t>(index)];
  const bool first = !choice.started;
  choice.started = true;
  writer_.Begin(index, out_);
  out_->append(",\"text\":\"");
  if (first && shape_.echo) AppendEscaped(*choice.prompt.text, out_);
  if (!shape_.echo_only) AppendEscaped(delta.text, out_);
  out_->append("\",\"logprobs\":");
  if (shape_.logprobs) {
    AppendLogprobs(&choice, delta, first);
  } else {
    out_->append("null");
  }
  AppendFinish(delta, out_);
  out_->append(",\"prompt_token_ids\":");
  const bool ids = shape_.choice.return_token_ids;
  if (ids && first) {
    AppendTokenIds(*choice.prompt.token_ids, out_);
  } else {
    out_->append("null");
  }
  out_->append(",\"token_ids\":");
  if (ids && !shape_.echo_only) {
    AppendTokenIds(delta.token_ids, out_);
  } else {
    out_->append("null");
  }
  writer_.End(",\"kv_transfer_params\":null", shape_.usage.on_every_chunk ? &usage : nullptr, out_);
}

void CompletionStream::AppendLogprobs(Choice* choice, const OutputDelta& delta, bool first) {
  const LogprobsStyle& style = shape_.choice.logprobs_style;
  std::vector<PositionLogprobs> positions;
  CompletionLogprobs list(*shape_.logprobs, choice->text_offset);
  if (first && shape_.echo) {
    list.AddUnscored(FirstTokenText(tokenizer_, style, *choice->prompt.token_ids));
    AppendPositionLogprobs(tokenizer_, style, delta.prompt_logprobs, &positions);
  }
  if (!shape_.echo_only) {
    for (const wire::LogprobsRows& rows : delta.logprobs) {
      AppendPositionLogprobs(tokenizer_, style, rows, &positions);
    }
  }
  for (const PositionLogprobs& position : positions) list.Add(position);
  choice->text_offset = list.text_offset();
  out_->append(DumpJson(list.ToJson()));
}

void CompletionStream::OnEnd(const Usage& usage) {
  if (shape_.usage.at_end) writer_.AppendUsage(usage, out_);
  ChunkWriter::AppendDone(out_);
}

StatusOr<PreparedRequest> PrepareCompletion(const Json& body, PrepareInput input) {
  ASSIGN_OR_RETURN(CompletionRequest request, ParseCompletionRequest(body));
  return PrepareAnswer<CompletionStream, CompletionResponse>(
      std::move(request), "cmpl-", std::move(input),
      [](const CompletionRequest& parsed, const PrepareInput& with) {
        return MakeShape(parsed, *with.options);
      });
}

Awaitable<void> HandleCompletions(Exchange& exchange, ApiContext* context) {
  return ServeGeneration(exchange, context, &PrepareCompletion);
}

}  // namespace tandem
