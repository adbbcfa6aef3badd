#include "frontend/processing/output_processor.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <variant>

#include "common/check.h"
#include "frontend/openai/json.h"

namespace tandem {
namespace {

// No character and no normalizer reaches back further.
constexpr size_t kPromptTailTokens = 16;

void AppendRows(const wire::LogprobsRows& rows, wire::LogprobsRows* out) {
  out->num_rows += rows.num_rows;
  out->num_columns = rows.num_columns;
  out->token_ids.insert(out->token_ids.end(), rows.token_ids.begin(), rows.token_ids.end());
  out->logprobs.insert(out->logprobs.end(), rows.logprobs.begin(), rows.logprobs.end());
  out->ranks.insert(out->ranks.end(), rows.ranks.begin(), rows.ranks.end());
}

void AddExtras(const wire::EngineCoreOutput& output, MessageDelta* delta) {
  if (output.new_prompt_logprobs) {
    AppendRows(*output.new_prompt_logprobs, &delta->AddExtras().prompt_logprobs);
  }
  const auto add = [&](const wire::Rare<wire::RawValue>& value, wire::RawValue DeltaExtras::*to) {
    if (value) delta->AddExtras().*to = *value;
  };
  add(output.prompt_token_id_logprobs, &DeltaExtras::prompt_scores);
  add(output.kv_transfer_params, &DeltaExtras::kv_transfer_params);
  add(output.pooling_output, &DeltaExtras::pooling_output);
  add(output.ec_transfer_params, &DeltaExtras::ec_transfer_params);
}

std::span<const TokenId> Tail(std::span<const TokenId> ids) {
  return ids.last(std::min(ids.size(), kPromptTailTokens));
}

FinishReason ToFinishReason(wire::FinishReason reason) {
  switch (reason) {
    case wire::FinishReason::kStop:
      return FinishReason::kStop;
    case wire::FinishReason::kLength:
      return FinishReason::kLength;
    case wire::FinishReason::kAbort:
      return FinishReason::kAbort;
    case wire::FinishReason::kRepetition:
      return FinishReason::kRepetition;
    default:
      return FinishReason::kError;
  }
}

}  // namespace

void MessageDelta::ClearOutput() {
  content.clear();
  reasoning.clear();
  tool_calls.clear();
  breaks.clear();
  token_ids.clear();
  logprobs.clear();
}

void MessageDelta::Clear() {
  ClearOutput();
  extras_.reset();
  ready = false;
}

OutputProcessor::OutputProcessor(const Tokenizer& tokenizer, const OutputOptions& options,
                                 std::span<const TokenId> prompt_token_ids)
    : tokenizer_(tokenizer),
      options_(options),
      detokenizer_(tokenizer, options.detokenizer, Tail(prompt_token_ids)),
      stop_strings_(options.stop, options.include_stop_str_in_output) {
  if (options_.message) parser_ = std::make_unique<MessageParser>(options_.message->format);
}

MessageDelta& OutputProcessor::Process(const wire::EngineCoreOutput& output,
                                       std::vector<PositionLogprobs> new_logprobs) {
  CHECK(!finished()) << output.request_id;
  if (delta_.ready) delta_.Clear();
  std::vector<TokenId>& token_ids = hides_reasoning() ? held_.token_ids : delta_.token_ids;
  std::vector<PositionLogprobs>& logprobs = holds_logprobs() ? held_.logprobs : delta_.logprobs;
  // Mostly one id, which push_back adds inline.
  for (const TokenId id : output.new_token_ids) token_ids.push_back(id);
  if (output.new_logprobs) {
    AppendPositionLogprobs(tokenizer_, options_.logprobs_style, *output.new_logprobs, &logprobs);
  }
  for (PositionLogprobs& position : new_logprobs) logprobs.push_back(std::move(position));
  AddExtras(output, &delta_);
  const size_t num_new = AppendText(output), num_dropped = output.new_token_ids.size() - num_new;
  if (num_dropped > 0) {
    token_ids.resize(token_ids.size() - num_dropped);
    if (!logprobs.empty()) logprobs.resize(logprobs.size() - num_dropped);
  }
  num_output_tokens_ += static_cast<int64_t>(num_new);
  if (output.finished() && !finished()) Finish(output);
  if (finished() && parser_) EndMessage();

  const int64_t num_unshown = num_output_tokens_ - num_shown_tokens_;
  const int64_t interval = num_shown_tokens_ == 0 ? 1 : options_.stream_interval;
  delta_.ready = finished() || num_unshown >= interval;
  // A parser holds text back; only the first delta, which announces the role, is shown without any.
  if (parser_ && !finished() && num_shown_tokens_ > 0 && !delta_.has_message()) {
    delta_.ready = false;
  }
  if (delta_.ready) num_shown_tokens_ = num_output_tokens_;
  return delta_;
}

size_t OutputProcessor::AppendText(const wire::EngineCoreOutput& output) {
  const size_t num_new = output.new_token_ids.size();
  size_t num_tokens = num_new;
  // A stopped request's last token is the stop token, which is not part of the text.
  if (output.finish_reason == wire::FinishReason::kStop && num_tokens > 0 &&
      !options_.include_stop_str_in_output) {
    --num_tokens;
  }
  if (!parser_ && stop_strings_.empty()) {
    for (size_t i = 0; i < num_tokens; ++i) {
      detokenizer_.Append(output.new_token_ids[i], &delta_.content);
    }
    return num_new;
  }
  for (size_t i = 0; i < num_tokens; ++i) {
    piece_.clear();
    detokenizer_.Append(output.new_token_ids[i], &piece_);
    const int64_t num_so_far = num_output_tokens_ + static_cast<int64_t>(i) + 1;
    const bool stopped = Show(piece_, num_so_far > options_.min_tokens);
    if (parser_) ParseToken();
    if (stopped) {
      must_abort_ = !output.finished();
      return i + 1;
    }
  }
  return num_new;
}

bool OutputProcessor::Show(std::string_view text, bool may_stop) {
  std::string* const shown = parser_ ? &raw_ : &delta_.content;
  if (stop_strings_.empty()) {
    *shown += text;
    return false;
  }
  const auto match = stop_strings_.Append(text, may_stop, shown);
  if (!match) return false;
  delta_.finish_reason = FinishReason::kStop;
  delta_.stop_reason = std::string(*match);
  return true;
}

void OutputProcessor::Finish(const wire::EngineCoreOutput& output) {
  piece_.clear();
  detokenizer_.Flush(&piece_);
  if (Show(piece_, num_output_tokens_ > options_.min_tokens)) return;
  stop_strings_.Flush(parser_ ? &raw_ : &delta_.content);
  delta_.finish_reason = ToFinishReason(*output.finish_reason);
  delta_.stop_reason = output.stop_reason;
}

void OutputProcessor::ParseToken() {
  const bool was_reasoning = parser_->in_reasoning();
  const bool is_marker = parser_->is_marker(piece_);
  if (holds_logprobs()) ++held_.num_parsed;
  ParseRaw();
  if (was_reasoning && parser_->in_reasoning() && !is_marker) ++num_reasoning_tokens_;
}

void OutputProcessor::ParseRaw() {
  if (raw_.empty()) return;
  const bool was_reasoning = parser_->in_reasoning();
  ParsedDelta parsed = parser_->Feed(raw_);
  raw_.clear();
  if (holds_logprobs()) {
    const bool is_reasoning = was_reasoning || parser_->in_reasoning() || !parsed.reasoning.empty();
    const bool has_calls = !parsed.tool_calls.empty();
    const bool hides_calls = options_.message->logprobs_of_content;
    held_.Decide(is_reasoning || (has_calls && hides_calls),
                 !parsed.content.empty() || (has_calls && !hides_calls), &delta_);
  }
  AddParsed(std::move(parsed));
}

void OutputProcessor::AddParsed(ParsedDelta parsed) {
  const MessagePlan& plan = *options_.message;
  parsed.ForEach(
      [&](std::string_view text) {
        if (plan.include_reasoning) delta_.AddReasoning(text);
      },
      [&](std::string_view text) { delta_.AddContent(text); },
      [&](ToolCallDelta& call) { AddCall(call); });
}

void OutputProcessor::AddCall(ToolCallDelta& call) {
  const bool is_new = call.index == num_begun_calls_;
  if (is_new) {
    call.id = MakeCallId(options_.message->ids, call.index, call.id);
    ++num_begun_calls_;
    arguments_.clear();
  }
  arguments_ += call.arguments;
  const bool goes_on =
      !is_new && !delta_.tool_calls.empty() && delta_.tool_calls.back().index == call.index;
  if (goes_on) {
    delta_.tool_calls.back().arguments += call.arguments;
  } else {
    delta_.AddCall(std::move(call));
  }
}

void OutputProcessor::EndMessage() {
  ParseRaw();
  const bool in_reasoning = parser_->in_reasoning();
  ParsedDelta rest = parser_->End();
  if (holds_logprobs()) {
    const bool follows_call =
        options_.message->logprobs_of_content && held_.last_is_hidden && rest.content.empty();
    held_.DecideRest(in_reasoning || follows_call, &delta_);
  }
  AddParsed(std::move(rest));
  const bool stopped = delta_.finish_reason == FinishReason::kStop;
  const bool named = options_.message->format.choice == MessageFormat::Choice::kNamed;
  if (!stopped || num_begun_calls_ == 0 || named) return;
  // A stop string, or a stop token of the request, may cut a call off.
  const bool by_request = !std::holds_alternative<std::monostate>(delta_.stop_reason);
  if (!by_request || Json::accept(arguments_)) delta_.finish_reason = FinishReason::kToolCalls;
}

}  // namespace tandem
