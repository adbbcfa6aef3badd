// Prompts of chats: rendered by a template, then encoded.

#include <ctime>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "frontend/openai/refuse.h"
#include "frontend/openai/template_form.h"
#include "frontend/processing/input_processor.h"

namespace tandem {
namespace {

constexpr const char* kForwardedIds = "kv_transfer_params.prompt_token_ids";

// The prompt as a prefill stage has tokenized it, which proxies forward to the decode stage; the
// engine does not get it. nullopt: there is none.
std::optional<Json> TakeForwardedPrompt(ChatRequest* request) {
  if (request->kv_transfer_params.is_null()) return std::nullopt;
  Json& params = request->kv_transfer_params.mutable_value();
  const auto it = params.find("prompt_token_ids");
  if (it == params.end()) return std::nullopt;
  Json ids = std::move(*it);
  params.erase(it);
  return ids.is_null() ? std::nullopt : std::optional(std::move(ids));
}

StatusOr<std::vector<int64_t>> ReadForwardedPrompt(const Json& ids) {
  std::vector<int64_t> prompt;
  bool is_list = ids.is_array() && !ids.empty();
  for (size_t i = 0; is_list && i < ids.size(); ++i) {
    is_list = ids[i].is_number_unsigned();
    if (is_list) prompt.push_back(static_cast<int64_t>(ids[i].get<uint64_t>()));
  }
  if (is_list) return prompt;
  return RefuseByName(
      kForwardedIds, std::string(kForwardedIds) + " must be a list of token ids that is not empty");
}

}  // namespace

StatusOr<ProcessedRequest> InputProcessor::Process(ChatRequest request,
                                                   const RequestContext& context) const {
  RETURN_IF_ERROR(CheckImages(request));
  const EmbeddedParts parts = TakeEmbeddedParts(&request.messages.mutable_value());
  const std::vector<ChatImage> images = std::move(request.images);
  const std::optional<Json> forwarded = TakeForwardedPrompt(&request);
  // What is in the messages besides their texts needs them.
  const bool is_forwarded = forwarded && !request.echo && images.empty() && parts.empty();
  ASSIGN_OR_RETURN(std::string text, RenderChat(request));
  Prompt prompt;
  if (!images.empty() && !parts.empty()) {
    return Refuse("messages", "images and prompt_embeds are not available together");
  }
  if (is_forwarded) {
    ASSIGN_OR_RETURN(const std::vector<int64_t> ids, ReadForwardedPrompt(*forwarded));
    auto checked = CheckTokens(request, ids, context.max_model_len);
    if (!checked.ok()) return Status(checked.status()).WithParam(kForwardedIds);
    prompt.token_ids = std::move(*checked);
    text = tokenizer_->Decode(prompt.token_ids, false);
  } else if (!images.empty()) {
    ASSIGN_OR_RETURN(prompt, ImageChatPrompt(request, images, text, context.max_model_len));
  } else if (parts.empty()) {
    ASSIGN_OR_RETURN(
        prompt.token_ids,
        Tokenize(request, text, request.add_special_tokens.value_or(false), context.max_model_len));
  } else {
    ASSIGN_OR_RETURN(prompt, EmbeddedChatPrompt(request, parts, text, context.max_model_len));
  }
  ASSIGN_OR_RETURN(
      const std::shared_ptr<MessagePlan> message,
      PlanMessage(config_.parsers, request, text, config_.default_chat_template_kwargs));
  std::vector<Prompt> prompts;
  if (request.return_prompt_text || request.return_token_offsets) prompt.text = std::move(text);
  prompts.push_back(std::move(prompt));
  MaxTokens max_tokens{request.max_tokens, "max_tokens", config_.defaults.sampling.max_tokens};
  if (request.max_completion_tokens) {
    max_tokens.requested = request.max_completion_tokens;
    max_tokens.field = "max_completion_tokens";
  }
  const std::optional<int64_t> logprobs =
      request.logprobs ? std::optional(request.top_logprobs) : std::nullopt;
  // As in vLLM an echoed chat has the logprobs of its prompt, in a response that can show them.
  if (request.echo && !request.prompt_logprobs && !request.stream && !request.use_beam_search) {
    request.prompt_logprobs = request.top_logprobs;
  }
  ChatFacts chat;
  chat.template_kwargs = &request.chat_template_kwargs;
  ASSIGN_OR_RETURN(chat.constraint,
                   ConstrainChat(config_.parsers, reasoning_, message.get(), &request));
  ASSIGN_OR_RETURN(ProcessedRequest result,
                   Finish(request, std::move(prompts), max_tokens, logprobs, false, chat, context));
  result.message = message;
  result.tool_tag = std::move(chat.constraint.tool_tag);
  if (request.has_image_detail) {
    result.warning = "image_url.detail is not supported and has no effect";
  }
  if (!chat.constraint.warning.empty()) result.warning = chat.constraint.warning;
  return result;
}

StatusOr<ProcessedRequest> InputProcessor::ProcessBatch(std::vector<ChatRequest> conversations,
                                                        const RequestContext& context) const {
  const auto num_conversations = static_cast<int64_t>(conversations.size());
  if (num_conversations > config_.max_completion_prompts) {
    return Refuse("messages", "messages has " + std::to_string(num_conversations) +
                                  " conversations, at most " +
                                  std::to_string(config_.max_completion_prompts) + " are allowed");
  }
  ProcessedRequest all;
  const int64_t priority = conversations.front().priority;
  const std::optional<std::string> cache_salt = conversations.front().cache_salt;
  for (int64_t i = 0; i < num_conversations; ++i) {
    ChatRequest& conversation = conversations[static_cast<size_t>(i)];
    conversation.priority = priority;
    conversation.cache_salt = cache_salt;
    RequestContext own = context;
    own.external_id += "_" + std::to_string(i);
    ASSIGN_OR_RETURN(ProcessedRequest one, Process(std::move(conversation), own));
    // The choices of a request share their plan.
    const bool same_start = i == 0 || one.message == nullptr ||
                            (one.message->format.start == all.message->format.start &&
                             one.message->format.prompt_part == all.message->format.prompt_part);
    if (!same_start) {
      return Refuse("messages",
                    "conversations of a batch must all end alike: some continue a "
                    "message, or its reasoning, and others begin one");
    }
    if (i == 0) all.message = std::move(one.message);
    all.warning = one.warning;
    all.num_prompt_tokens += one.num_prompt_tokens;
    if (one.num_image_tokens) {
      all.num_image_tokens = all.num_image_tokens.value_or(0) + *one.num_image_tokens;
    }
    all.requests.push_back(std::move(one.requests.front()));
    all.prompt_texts.push_back(std::move(one.prompt_texts.front()));
    all.prompt_token_ids.push_back(std::move(one.prompt_token_ids.front()));
  }
  return all;
}

bool InputProcessor::ShowsTools(const ChatRequest& request) const {
  const bool hides_tools = config_.exclude_tools_when_tool_choice_none &&
                           !request.tool_choice.is_null() && *request.tool_choice == "none";
  return !request.tools.is_null() && !hides_tools;
}

StatusOr<std::string> InputProcessor::RenderChat(ChatRequest& request) const {
  if (HasEmbeddedParts(*request.messages)) {
    return Refuse("messages", "prompt_embeds are not rendered: they are no tokens");
  }
  if (!request.chat_template) {
    if (tool_template_ && ShowsTools(request)) return RenderChat(request, *tool_template_);
    if (chat_template_) return RenderChat(request, *chat_template_);
    return InvalidArgumentError(
        config_.pooling ? "this model has no chat template; send input, or start the server with "
                          "--chat-template"
                        : "this model has no chat template; use /v1/completions");
  }
  if (!config_.trust_request_chat_template) {
    return Refuse("chat_template",
                  "Chat template is passed with request, but --trust-request-chat-template is not "
                  "set. Refused request with untrusted chat template.");
  }
  const auto own = ChatTemplate::Compile(*request.chat_template);
  if (!own.ok()) return Status(own.status()).WithParam("chat_template");
  return RenderChat(request, *own);
}

StatusOr<std::string> InputProcessor::RenderChat(ChatRequest& request,
                                                 const ChatTemplate& chat_template) const {
  const bool content_as_parts = config_.content_format == "auto"
                                    ? chat_template.content_format() == ContentFormat::kParts
                                    : config_.content_format == "openai";
  if (request.reasoning_effort) {
    const auto effort = config_.reasoning_efforts.find(*request.reasoning_effort);
    if (effort != config_.reasoning_efforts.end()) request.reasoning_effort = effort->second;
  }
  JsonDocument messages =
      MessagesForTemplate(std::move(request.messages), content_as_parts,
                          config_.images ? config_.images->tokens.placeholder : "");
  if (!chat_template.knows_developers()) DevelopersAsSystem(&messages.mutable_value());
  const bool is_harmony = config_.parsers.is_harmony;
  if (is_harmony) SetHarmonyForm(&messages.mutable_value());
  const Json tools = ShowsTools(request) ? ToolsForTemplate(*request.tools, is_harmony) : Json();
  const JsonDocument variables = TemplateVariables(request, config_.default_chat_template_kwargs);
  ChatTemplateInput input;
  input.messages = &*messages;
  if (!tools.is_null()) input.tools = &tools;
  if (!request.documents.is_null()) input.documents = &*request.documents;
  input.kwargs = &*variables;
  input.continue_final_message = request.continue_final_message;
  input.add_generation_prompt =
      request.add_generation_prompt.value_or(true) && !request.continue_final_message;
  input.special_tokens = &tokenizer_->special_tokens();
  input.now_s = std::time(nullptr);
  auto text = chat_template.Render(input);
  if (text.ok()) return text;
  return InvalidArgumentError("chat template: " + text.status().message()).WithParam("messages");
}

}  // namespace tandem
