#include "frontend/api/output_rendering.h"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/strings.h"
#include "frontend/api/chat_completions.h"
#include "frontend/api/completions.h"
#include "frontend/api/error.h"
#include "frontend/api/render.h"
#include "frontend/openai/derender_request.h"
#include "frontend/openai/refuse.h"

namespace tandem {
namespace {

// ---- Tokens and logprobs of a choice ----

StatusOr<std::vector<TokenId>> CheckedIds(const std::vector<int64_t>& ids, const char* field,
                                          const ApiContext& context, int64_t max_model_len) {
  const TokenId vocab_size = context.input_processor->vocab_size();
  if (static_cast<int64_t>(ids.size()) > max_model_len) {
    return Refuse(field, std::string(field) + ": " + std::to_string(ids.size()) +
                             " token ids are more than the " + std::to_string(max_model_len) +
                             " of this model");
  }
  std::vector<TokenId> checked;
  checked.reserve(ids.size());
  for (const int64_t id : ids) {
    if (id < 0 || id >= vocab_size) {
      return Refuse(field, std::string(field) + ": token id " + std::to_string(id) +
                               " is out of vocabulary: ids are in [0, " +
                               std::to_string(vocab_size - 1) + "]");
    }
    checked.push_back(static_cast<TokenId>(id));
  }
  return checked;
}

bool HasLogprobs(const GeneratedTokens& generated) {
  return std::any_of(generated.choices.begin(), generated.choices.end(),
                     [](const auto& choice) { return !choice.logprobs.is_null(); });
}

// Tokens whose texts are needed, not their logprobs.
wire::LogprobsRows UnscoredRows(const std::vector<TokenId>& ids) {
  wire::LogprobsRows rows;
  rows.num_rows = static_cast<int32_t>(ids.size());
  rows.num_columns = 1;
  rows.token_ids = ids;
  rows.logprobs.resize(ids.size());
  rows.ranks.resize(ids.size(), 1);
  return rows;
}

// {"token": "token_id:5"} or {"token_id": 5}, and the logprob.
bool ReadScored(const Json& entry, TokenId vocab_size, TokenId* id, float* logprob) {
  constexpr std::string_view kMark = "token_id:";
  if (!entry.is_object() || !entry.contains("logprob") || !entry["logprob"].is_number()) {
    return false;
  }
  std::optional<int64_t> number;
  if (const auto it = entry.find("token_id"); it != entry.end() && it->is_number_integer()) {
    number = it->get<int64_t>();
  } else if (const auto token = entry.find("token"); token != entry.end() && token->is_string()) {
    const std::string_view text = token->get_ref<const std::string&>();
    if (text.starts_with(kMark)) number = ParseNumber<int64_t>(text.substr(kMark.size()));
  }
  if (!number || *number < 0 || *number >= vocab_size) return false;
  *id = static_cast<TokenId>(*number);
  *logprob = entry["logprob"].get<float>();
  return true;
}

// Appends the logprobs of each token, with their texts.
Status AppendLogprobs(const JsonDocument& logprobs, const char* field, const LogprobsStyle& style,
                      const ApiContext& context, std::vector<PositionLogprobs>* out) {
  if (logprobs.is_null()) return OkStatus();
  Status wrong = Refuse(
      field, std::string(field) + ": logprobs must be as /inference/v1/generate returns them");
  if (!logprobs->is_object()) return wrong;
  const auto content = logprobs->find("content");
  if (content == logprobs->end() || content->is_null()) return OkStatus();
  if (!content->is_array()) return wrong;
  const InputProcessor& processor = *context.input_processor;
  for (const Json& entry : *content) {
    wire::LogprobsRows row;
    row.num_rows = 1;
    row.ranks = {1};
    const auto add = [&](const Json& scored) {
      row.token_ids.emplace_back();
      row.logprobs.emplace_back();
      return ReadScored(scored, processor.vocab_size(), &row.token_ids.back(),
                        &row.logprobs.back());
    };
    if (!add(entry)) return wrong;
    if (const auto top = entry.find("top_logprobs"); top != entry.end() && !top->is_null()) {
      if (!top->is_array()) return wrong;
      for (const Json& scored : *top) {
        if (!add(scored)) return wrong;
      }
    }
    row.num_columns = static_cast<int32_t>(row.token_ids.size());
    AppendPositionLogprobs(processor.tokenizer(), style, row, out);
  }
  return OkStatus();
}

wire::FinishReason WireReason(std::string_view name) {
  if (name == "length") return wire::FinishReason::kLength;
  if (name == "abort") return wire::FinishReason::kAbort;
  if (name == "repetition") return wire::FinishReason::kRepetition;
  return wire::FinishReason::kStop;
}

// ---- A whole response ----

// Where the choices of one generate response stand in the request that they are written for.
struct Source {
  const GeneratedTokens* generated = nullptr;
  const char* field = "";
  std::vector<TokenId> prompt_tail;
};

// ---- An event of a stream ----

// Adds a later delta or choice to an earlier one: texts and lists grow, other values take over.
void Fold(const Json& later, Json* earlier) {
  for (const auto& [key, value] : later.items()) {
    Json& own = (*earlier)[key];
    if (value.is_string() && own.is_string() && (key == "content" || key == "text")) {
      own = own.get<std::string>() + value.get<std::string>();
    } else if (value.is_object() && own.is_object()) {
      Fold(value, &own);
    } else if (value.is_array() && own.is_array()) {
      own.insert(own.end(), value.begin(), value.end());
    } else if (!value.is_null() || own.is_null()) {
      own = value;
    }
  }
}

// The events of a writer as one; null when there is none.
StatusOr<Json> FoldedEvents(std::string_view text, bool role_was_sent) {
  constexpr std::string_view kData = "data: ";
  Json folded;
  for (std::string_view line : Split(text, '\n')) {
    if (!line.starts_with(kData)) continue;
    ASSIGN_OR_RETURN(JsonDocument event, ParseJson(line.substr(kData.size())));
    if (folded.is_null()) {
      folded = std::move(event.mutable_value());
    } else {
      Fold(event->at("choices").front(), &folded["choices"].front());
    }
  }
  if (folded.is_null() || !role_was_sent) return folded;
  if (Json& choice = folded["choices"].front(); choice.contains("delta")) {
    choice["delta"].erase("role");
  }
  return folded;
}

// Feeds tokens to the parts that a running request feeds, and returns the writer's body.
class Derenderer {
 public:
  Derenderer(const ApiContext& context, int64_t max_model_len, const PreparedRequest& prepared)
      : context_(context), max_model_len_(max_model_len), prepared_(prepared) {}

  // sources: one for each prompt of the call.
  StatusOr<Json> Respond(const GenerationCall& call, const std::vector<Source>& sources,
                         Usage usage) {
    RETURN_IF_ERROR(CheckCounts(sources));
    WriterInput input = prepared_.writer;
    const std::vector<ChoicePrompt> prompts = PromptsOf(prepared_.processed);
    for (size_t i = 0; i < sources.size(); ++i) {
      const ChoicePrompt& prompt = prompts[i * static_cast<size_t>(prepared_.processed.n)];
      input.prompts.insert(input.prompts.end(), sources[i].generated->choices.size(), prompt);
    }
    std::string text;
    input.out = &text;
    const auto writer = call.MakeWriter(std::move(input));
    int index = 0;
    for (const Source& source : sources) {
      for (const GeneratedTokens::Choice& choice : source.generated->choices) {
        usage.completion_tokens += static_cast<int64_t>(choice.token_ids.size());
        OutputProcessor processor = MakeProcessor(source);
        const std::string reason = choice.finish_reason.value_or("stop");
        RETURN_IF_ERROR(Write(source, choice, reason, index++, &processor, writer.get(), usage));
      }
    }
    writer->WriteEnd(usage);
    ASSIGN_OR_RETURN(JsonDocument body, ParseJson(text));
    const GeneratedTokens& first = *sources.front().generated;
    Json& response = body.mutable_value();
    if (!first.request_id.empty()) response["id"] = first.request_id;
    if (!first.kv_transfer_params.is_null()) {
      response["kv_transfer_params"] = *first.kv_transfer_params;
    }
    return std::move(response);
  }

  // What an event adds to those before it, as one event of the writer's stream.
  StatusOr<Json> RespondToEvent(const GenerationCall& call, const Source& source,
                                const DerenderState& state, Usage usage) {
    ASSIGN_OR_RETURN(std::vector<TokenId> prior,
                     CheckedIds(state.prior_token_ids, "stream_state", context_, max_model_len_));
    WriterInput input = prepared_.writer;
    input.stream = true;
    input.stream_usage = {};
    input.prompts = {PromptsOf(prepared_.processed).front()};
    std::string text;
    input.out = &text;
    const auto writer = call.MakeWriter(std::move(input));
    OutputProcessor processor = MakeProcessor(source);
    usage.completion_tokens = static_cast<int64_t>(prior.size());
    if (!prior.empty()) {
      wire::EngineCoreOutput before;
      if (HasLogprobs(*source.generated)) before.new_logprobs = UnscoredRows(prior);
      before.new_token_ids = std::move(prior);
      MessageDelta& delta = processor.Process(before);
      writer->WriteDelta(0, delta, usage);
      delta.Clear();
      text.clear();  // shown by the events before this one
    }
    Json next = {{"prior_token_ids", state.prior_token_ids}, {"role_sent", state.role_sent}};
    for (const GeneratedTokens::Choice& choice : source.generated->choices) {
      usage.completion_tokens += static_cast<int64_t>(choice.token_ids.size());
      next["role_sent"] = true;
      for (const int64_t id : choice.token_ids) next["prior_token_ids"].push_back(id);
      if (processor.finished()) continue;
      RETURN_IF_ERROR(
          Write(source, choice, choice.finish_reason, 0, &processor, writer.get(), usage));
    }
    ASSIGN_OR_RETURN(Json chunk, FoldedEvents(text, state.role_sent));
    if (!chunk.is_null()) {
      chunk["choices"].front()["index"] = source.generated->choices.front().index;
    } else {
      const bool is_last = source.generated->choices.empty();
      chunk = EmptyChunk(call, is_last ? UsageJson(usage) : Json(nullptr));
    }
    if (!source.generated->request_id.empty()) chunk["id"] = source.generated->request_id;
    return Json{{"chunk", std::move(chunk)}, {"stream_state", std::move(next)}};
  }

 private:
  OutputProcessor MakeProcessor(const Source& source) const {
    return {context_.input_processor->tokenizer(), prepared_.output, source.prompt_tail};
  }

  // Of an event that adds nothing, or that has no choices: the last one of a stream.
  Json EmptyChunk(const GenerationCall& call, Json usage) const {
    const bool is_chat = call.request_type() == RequestType::kChatCompletions;
    const ResponseHead& head = prepared_.writer.head;
    return {{"id", head.id},
            {"object", is_chat ? "chat.completion.chunk" : "text_completion"},
            {"created", head.created},
            {"model", head.model},
            {"choices", Json::array()},
            {"usage", std::move(usage)}};
  }

  Status CheckCounts(const std::vector<Source>& sources) const {
    const auto limit = static_cast<size_t>(context_.input_processor->config().max_n_sequences);
    size_t num_choices = 0;
    for (const Source& source : sources) num_choices += source.generated->choices.size();
    if (num_choices <= limit) return OkStatus();
    return Refuse(sources.front().field, std::to_string(num_choices) +
                                             " choices are more than the " + std::to_string(limit) +
                                             " that this server allows (--max-n-sequences)");
  }

  Status Write(const Source& source, const GeneratedTokens::Choice& choice,
               const std::optional<std::string>& finish_reason, int index,
               OutputProcessor* processor, ResponseWriter* writer, const Usage& usage) {
    ASSIGN_OR_RETURN(std::vector<TokenId> ids,
                     CheckedIds(choice.token_ids, source.field, context_, max_model_len_));
    // Of a choice that ended by itself the last token may be the one that stopped it, which is no
    // text; a stop string ends it among its tokens.
    wire::EngineCoreOutput last;
    if (finish_reason) last.finish_reason = WireReason(*finish_reason);
    last.stop_reason = choice.stop_reason;
    const auto& stops = prepared_.processed.requests.front().sampling_params.all_stop_token_ids;
    const bool is_stop_token = last.finish_reason == wire::FinishReason::kStop && !ids.empty() &&
                               std::find(stops.begin(), stops.end(), ids.back()) != stops.end();
    if (is_stop_token) {
      last.new_token_ids = {ids.back()};
      ids.pop_back();
    }
    wire::EngineCoreOutput output;
    output.new_token_ids = std::move(ids);
    RETURN_IF_ERROR(WriteDelta(source, choice, processor->Process(output), index, writer, usage));
    if (processor->finished() || !finish_reason) return OkStatus();
    writer->WriteDelta(index, processor->Process(last), usage);
    return OkStatus();
  }

  Status WriteDelta(const Source& source, const GeneratedTokens::Choice& choice,
                    MessageDelta& delta, int index, ResponseWriter* writer, const Usage& usage) {
    RETURN_IF_ERROR(AppendLogprobs(choice.logprobs, source.field, prepared_.output.logprobs_style,
                                   context_, &delta.logprobs));
    writer->WriteDelta(index, delta, usage);
    return OkStatus();
  }

  const ApiContext& context_;
  const int64_t max_model_len_;
  const PreparedRequest& prepared_;
};

// The request to write for: the original one, without what was decided by the tokens.
Json Original(const JsonDocument& given, const std::optional<std::string>& model) {
  Json request = given.is_null() ? Json::object() : *given;
  for (const char* key : {"n", "stream", "stream_options"}) request.erase(key);
  if (model) request["model"] = *model;
  return request;
}

using Derender = StatusOr<std::string> (*)(std::string_view, const RequestHeaders&,
                                           const ApiContext&);

Awaitable<void> Handle(Exchange& exchange, ApiContext* context, Derender derender) {
  const auto headers = ReadHeaders(exchange.request(), *context);
  if (!headers.ok()) co_return exchange.Respond(ErrorResponse(headers.status()));
  auto work = [&headers = *headers, context, derender,
               body = std::move(exchange.mutable_request().body)] {
    return derender(body, headers, *context);
  };
  const auto response = co_await OnPool(context->text_pool, std::move(work));
  exchange.Respond(response.ok() ? Response{200, *response, "application/json", {}}
                                 : ErrorResponse(response.status()));
}

}  // namespace

StatusOr<std::string> DerenderedChat(std::string_view body, const RequestHeaders& headers,
                                     const ApiContext& context) {
  ASSIGN_OR_RETURN(JsonDocument json, ParseJsonBody(body, context.options.json_limits));
  ASSIGN_OR_RETURN(DerenderChatRequest request,
                   ParseDerenderChatRequest(std::move(json.mutable_value())));
  const GeneratedTokens& generated =
      request.stream ? *request.generate_chunk : *request.generate_response;
  const bool is_plain = request.chat_request.is_null();
  Json original = Original(request.chat_request, request.model);
  if (is_plain) {
    original["messages"] = Json::array({{{"role", "user"}, {"content", ""}}});
    if (HasLogprobs(generated)) {
      original["logprobs"] = true;
      original["top_logprobs"] = context.input_processor->config().max_logprobs;
    }
  }
  const auto call = MakeChatCompletion(context);
  RETURN_IF_ERROR(call->Parse(JsonDocument(std::move(original))));
  ASSIGN_OR_RETURN(PreparedRequest prepared, ProcessRequest(headers, context, call.get()));
  if (is_plain) {
    prepared.output.message = nullptr;
    prepared.output.logprobs_style.skip_special_tokens = false;
  }
  Source source{&generated, request.stream ? "generate_chunk" : "generate_response", {}};
  const std::vector<int64_t>& prompt_ids =
      request.prompt_token_ids.empty() ? generated.prompt_token_ids : request.prompt_token_ids;
  ASSIGN_OR_RETURN(source.prompt_tail, CheckedIds(prompt_ids, "prompt_token_ids", context,
                                                  headers.context.max_model_len));
  Usage usage;
  const auto num_prompt_ids = static_cast<int64_t>(prompt_ids.size());
  usage.prompt_tokens = request.prompt_tokens.value_or(num_prompt_ids);
  Derenderer derenderer(context, headers.context.max_model_len, prepared);
  if (request.stream) {
    ASSIGN_OR_RETURN(const Json event,
                     derenderer.RespondToEvent(*call, source, request.stream_state, usage));
    return DumpJson(event);
  }
  ASSIGN_OR_RETURN(Json response, derenderer.Respond(*call, {source}, usage));
  if (!generated.prompt_logprobs.is_null()) {
    response["prompt_logprobs"] = *generated.prompt_logprobs;
  }
  return DumpJson(response);
}

StatusOr<std::string> DerenderedCompletion(std::string_view body, const RequestHeaders& headers,
                                           const ApiContext& context) {
  ASSIGN_OR_RETURN(JsonDocument json, ParseJsonBody(body, context.options.json_limits));
  ASSIGN_OR_RETURN(DerenderCompletionRequest request,
                   ParseDerenderCompletionRequest(std::move(json.mutable_value())));
  if (request.stream) request.generate_responses = {std::move(*request.generate_chunk)};
  const size_t num_prompts = request.generate_responses.size();
  Json original = Original(request.completion_request, request.model);
  if (request.completion_request.is_null()) {
    // Which prompt does not matter when it is not shown.
    original["prompt"] = Json(num_prompts, Json::array({0U}));
  }
  const auto call = MakeCompletion(context);
  RETURN_IF_ERROR(call->Parse(JsonDocument(std::move(original))));
  ASSIGN_OR_RETURN(PreparedRequest prepared, ProcessRequest(headers, context, call.get()));
  if (request.completion_request.is_null()) {
    prepared.output.logprobs_style.skip_special_tokens = false;
  }
  if (prepared.processed.requests.size() != num_prompts) {
    return Refuse("generate_responses", "generate_responses has " + std::to_string(num_prompts) +
                                            " responses, the completion request " +
                                            std::to_string(prepared.processed.requests.size()) +
                                            " prompts");
  }
  std::vector<Source> sources;
  Usage usage;
  for (size_t i = 0; i < num_prompts; ++i) {
    const char* const field = request.stream ? "generate_chunk" : "generate_responses";
    Source source{&request.generate_responses[i], field, {}};
    const bool is_given = !request.prompt_token_ids.empty() && !request.prompt_token_ids[i].empty();
    const std::vector<int64_t>& prompt_ids =
        is_given ? request.prompt_token_ids[i] : source.generated->prompt_token_ids;
    ASSIGN_OR_RETURN(source.prompt_tail, CheckedIds(prompt_ids, "prompt_token_ids", context,
                                                    headers.context.max_model_len));
    if (source.prompt_tail.empty() && !request.completion_request.is_null()) {
      source.prompt_tail = prepared.processed.requests[i].prompt_token_ids;
    }
    usage.prompt_tokens += request.prompt_tokens.empty()
                               ? static_cast<int64_t>(source.prompt_tail.size())
                               : request.prompt_tokens[i];
    sources.push_back(std::move(source));
  }
  Derenderer derenderer(context, headers.context.max_model_len, prepared);
  StatusOr<Json> response = request.stream ? derenderer.RespondToEvent(*call, sources.front(),
                                                                       request.stream_state, usage)
                                           : derenderer.Respond(*call, sources, usage);
  if (!response.ok()) return response.status();
  return DumpJson(*response);
}

Awaitable<void> HandleDerenderChat(Exchange& exchange, ApiContext* context) {
  return Handle(exchange, context, DerenderedChat);
}

Awaitable<void> HandleDerenderCompletion(Exchange& exchange, ApiContext* context) {
  return Handle(exchange, context, DerenderedCompletion);
}

}  // namespace tandem
