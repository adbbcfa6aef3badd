#include "frontend/processing/input_processor.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "common/strings.h"
#include "frontend/openai/refuse.h"
#include "proto_msgpack/choices.h"
#include "proto_msgpack/codec.h"

namespace tandem {
namespace {

// Some 8 million tokens of running chats.
constexpr size_t kEncodedTextBytes = 64 << 20;

Status TooLong(int64_t num_tokens, bool at_least, int64_t max_model_len) {
  return Refuse(
      at_least ? "input_text" : "input_tokens",
      std::string("the prompt has ") + (at_least ? "at least " : "") + std::to_string(num_tokens) +
          " tokens, but this model's maximum context length is " + std::to_string(max_model_len) +
          " tokens, of which at least one must be left to generate; shorten the prompt");
}

wire::RawValue Pack(const Json& value) {
  const std::vector<uint8_t> bytes = Json::to_msgpack(value);
  return {std::string(bytes.begin(), bytes.end())};
}

size_t BytesOf(const wire::StructuredOutputs& outputs) {
  size_t bytes = sizeof outputs + outputs.json.packed.size();
  for (const auto* text :
       {&outputs.regex, &outputs.grammar, &outputs.whitespace_pattern, &outputs.structural_tag}) {
    if (*text) bytes += (*text)->size();
  }
  if (outputs.choice) {
    for (const std::string& choice : *outputs.choice) bytes += sizeof(std::string) + choice.size();
  }
  return bytes;
}

// The bytes that each engine request and its stream hold besides the prompt. A client chooses the
// length of these lists and the number of copies.
int64_t ChildBytes(const GenerationRequest& request, const wire::EngineCoreRequest& model) {
  const wire::SamplingParams& sampling = model.sampling_params;
  constexpr size_t kStopStringCost = 10;  // the text twice, and a table of 8 bytes each
  size_t bytes = sizeof model + model.reasoning_parser_kwargs.packed.size();
  for (const std::string& stop : request.stop) bytes += stop.size() * kStopStringCost;
  bytes += (sampling.stop_token_ids.size() + sampling.all_stop_token_ids.size() +
            sampling.allowed_token_ids.size() + sampling.logprob_token_ids.size()) *
           sizeof(TokenId);
  bytes += sampling.logit_bias.size() * sizeof sampling.logit_bias[0];
  bytes += sampling.extra_args.packed.size() + sampling.prompt_logprob_token_ids.packed.size() +
           sampling.trace_decode_token_ids.packed.size();
  if (sampling.structured_outputs) bytes += BytesOf(*sampling.structured_outputs);
  return static_cast<int64_t>(bytes);
}

// The body's field wins over the header, which wins over vllm_xargs.
std::optional<std::string> SessionId(const GenerationRequest& request,
                                     const RequestContext& context) {
  if (request.session_id) return request.session_id;
  if (context.session_id || request.vllm_xargs.is_null()) return context.session_id;
  const auto argument = request.vllm_xargs->find("session_id");
  if (argument == request.vllm_xargs->end() || !argument->is_string()) return std::nullopt;
  return argument->get<std::string>();
}

void SetEmbeddings(const TorchTensor& tensor, const std::vector<bool>& is_token,
                   wire::EngineCoreRequest* request) {
  request->prompt_embeds = wire::EncodeTensor(
      {tensor.dtype, {tensor.num_rows, tensor.num_columns}, tensor.data}, &request->aux_frames);
  if (!is_token.empty()) request->prompt_is_token_ids = wire::PackedBools(is_token);
}

// Gives the n requests of one prompt their ids and seeds.
void NameChildren(const std::string& internal_id, std::span<wire::EngineCoreRequest> children) {
  for (size_t i = 0; i < children.size(); ++i) {
    const auto choice = static_cast<int64_t>(i);
    children[i].request_id =
        children.size() == 1 ? internal_id : wire::ChoiceId(internal_id, choice);
    std::optional<int64_t>& seed = children[i].sampling_params.seed;
    if (seed) seed = wire::ChoiceSeed(*seed, choice);
  }
}

InputConfig WithSpecialMarkers(InputConfig config, const Tokenizer& tokenizer) {
  config.parsers.reasoning_is_special |= MarkersAreSpecial(config.parsers, tokenizer);
  return config;
}

// The last place of a prompt predicts the first output.
Status CheckScoredRows(const GenerationRequest& request, int64_t prompt_len) {
  if (!request.prompt_logprob_token_ids) return OkStatus();
  const auto num_rows = static_cast<int64_t>(request.prompt_logprob_token_ids->size());
  const int64_t wanted =
      std::max<int64_t>(prompt_len - 1 - request.prompt_logprob_start.value_or(0), 0);
  if (num_rows == wanted) return OkStatus();
  return Refuse("prompt_logprob_token_ids",
                "prompt_logprob_token_ids must have a list for each place of the prompt from "
                "prompt_logprob_start to the one before its last: " +
                    std::to_string(wanted) + " lists, got " + std::to_string(num_rows));
}

}  // namespace

InputProcessor::InputProcessor(InputConfig config, std::shared_ptr<const Tokenizer> tokenizer,
                               std::optional<ChatTemplate> chat_template,
                               std::optional<ChatTemplate> tool_template)
    : config_(WithSpecialMarkers(std::move(config), *tokenizer)),
      tokenizer_(std::move(tokenizer)),
      chat_template_(std::move(chat_template)),
      tool_template_(std::move(tool_template)),
      encoded_texts_(std::make_unique<EncodedTextCache>(kEncodedTextBytes)),
      fill_in_middle_(FindFillInMiddle(*tokenizer_)),
      sampling_(&config_, tokenizer_.get()),
      reasoning_(FindReasoningTokens(config_.parsers, *tokenizer_)),
      template_traits_(chat_template_ ? ProbeTemplate(*this) : TemplateTraits()) {}

// ---- Prompts ----

// A normalizer may shrink text; no known one shrinks it to a quarter.
Status InputProcessor::CheckTextBytes(size_t num_bytes, int64_t max_model_len) const {
  constexpr size_t kNormalizerShrink = 4;
  const size_t most_bytes =
      static_cast<size_t>(max_model_len) * sampling_.longest_token_bytes() * kNormalizerShrink;
  return num_bytes > most_bytes ? TooLong(max_model_len + 1, true, max_model_len) : OkStatus();
}

StatusOr<std::vector<TokenId>> InputProcessor::Tokenize(const GenerationRequest& request,
                                                        std::string_view text,
                                                        bool add_special_tokens,
                                                        int64_t max_model_len) const {
  if (!request.truncate_prompt_tokens) RETURN_IF_ERROR(CheckTextBytes(text.size(), max_model_len));
  // With a salt: how long it takes would show others what was encoded before.
  EncodedTextCache* const cache = request.cache_salt ? nullptr : encoded_texts_.get();
  ASSIGN_OR_RETURN(auto ids, tokenizer_->Encode(text, add_special_tokens, cache));
  // A tokenizer may have tokens that the model has no embedding for.
  for (const TokenId id : ids) RETURN_IF_ERROR(sampling_.CheckId("prompt", id));
  RETURN_IF_ERROR(Truncate(request, max_model_len, &ids));
  return ids;
}

StatusOr<std::vector<TokenId>> InputProcessor::CheckTokens(const GenerationRequest& request,
                                                           const std::vector<int64_t>& tokens,
                                                           int64_t max_model_len) const {
  std::vector<TokenId> ids;
  ids.reserve(tokens.size());
  for (const int64_t token : tokens) {
    RETURN_IF_ERROR(sampling_.CheckId("prompt", token));
    ids.push_back(static_cast<TokenId>(token));
  }
  RETURN_IF_ERROR(Truncate(request, max_model_len, &ids));
  return ids;
}

Status InputProcessor::Truncate(const GenerationRequest& request, int64_t max_model_len,
                                std::vector<TokenId>* ids) const {
  if (!request.truncate_prompt_tokens) return OkStatus();
  int64_t keep = *request.truncate_prompt_tokens;
  if (keep > max_model_len) {
    return Refuse("truncate_prompt_tokens", "truncate_prompt_tokens is " + std::to_string(keep) +
                                                ", this model's maximum context length is " +
                                                std::to_string(max_model_len) + " tokens");
  }
  if (keep == -1) keep = max_model_len - 1;
  const auto size = static_cast<int64_t>(ids->size());
  if (size <= keep) return OkStatus();
  if (request.truncation_side == "right") {
    ids->resize(static_cast<size_t>(keep));
  } else {
    ids->erase(ids->begin(), ids->begin() + (size - keep));
  }
  return OkStatus();
}

// ---- Assembling ----

StatusOr<int64_t> InputProcessor::ResolveMaxTokens(const MaxTokens& max_tokens, int64_t prompt_len,
                                                   int64_t max_model_len) const {
  if (prompt_len == 0) return Refuse("prompt", "the prompt must not be empty");
  if (prompt_len >= max_model_len) return TooLong(prompt_len, false, max_model_len);
  if (max_tokens.requested && *max_tokens.requested > max_model_len) {
    return Refuse(max_tokens.field, std::string(max_tokens.field) + " is " +
                                        std::to_string(*max_tokens.requested) +
                                        ", but this model's maximum context length is " +
                                        std::to_string(max_model_len) + " tokens");
  }
  int64_t result = max_model_len - prompt_len;
  if (max_tokens.requested) {
    result = std::min(result, *max_tokens.requested);
  } else if (max_tokens.fallback) {
    result = std::min(result, *max_tokens.fallback);
  }
  if (config_.defaults.max_tokens_cap) result = std::min(result, *config_.defaults.max_tokens_cap);
  if (result == 0 && max_tokens.echo_only) return 1;  // the engine generates one; it is not shown
  if (result < 1) {
    return Refuse(max_tokens.field, std::string(max_tokens.field) + " must be at least 1, got " +
                                        std::to_string(result));
  }
  return result;
}

// The engine sees reasoning in tokens only, and gets their marks where they matter to it.
Status InputProcessor::SetReasoning(const GenerationRequest& request,
                                    const ChatConstraint& constraint,
                                    wire::EngineCoreRequest* model) const {
  const int64_t budget = request.thinking_token_budget.value_or(-1);
  if (budget >= 0 && !request.use_beam_search) {
    if (!reasoning_.allows_budget()) {
      return Refuse("thinking_token_budget",
                    "thinking_token_budget is set but reasoning_config is not configured. It needs "
                    "--reasoning-config, or a --reasoning-parser whose reasoning has a marker at "
                    "its begin and its end.");
    }
    model->sampling_params.thinking_token_budget =
        static_cast<int32_t>(std::min<int64_t>(budget, std::numeric_limits<int32_t>::max()));
    model->own.reasoning = reasoning_.marks;
  }
  if (!model->sampling_params.structured_outputs || !constraint.reasoning_ended) return OkStatus();
  model->reasoning_ended = constraint.reasoning_ended;
  if (*model->reasoning_ended) return OkStatus();
  model->own.reasoning = reasoning_.marks;
  if (!constraint.has_calls) model->own.reasoning->tool_call.clear();
  return OkStatus();
}

// The sampling parameters become those of one step of the search.
StatusOr<std::optional<BeamOptions>> InputProcessor::MakeBeams(
    const GenerationRequest& request, std::optional<int64_t> logprobs,
    wire::SamplingParams* sampling) const {
  if (!request.use_beam_search) return std::optional<BeamOptions>();
  const int64_t max_width = std::min<int64_t>(config_.max_beam_width, vocab_size());
  if (request.n > max_width) {
    return Refuse("n", "n is " + std::to_string(request.n) + ", a beam search has at most " +
                           std::to_string(max_width) + " beams");
  }
  if (sampling->prompt_logprobs && !request.prompt_logprobs) {
    return Refuse("echo", "echo with logprobs is not available with use_beam_search");
  }
  BeamOptions beams;
  beams.allowed_ids = std::move(sampling->allowed_token_ids);
  if (beams.allowed_ids.size() > kMaxLogprobTokenIds) {
    return Refuse("allowed_token_ids", "allowed_token_ids has " +
                                           std::to_string(beams.allowed_ids.size()) +
                                           " ids, at most " + std::to_string(kMaxLogprobTokenIds) +
                                           " are available with use_beam_search");
  }
  beams.width = static_cast<int>(request.n);
  beams.length_penalty = request.length_penalty.value_or(1.0);
  if (!request.ignore_eos) beams.end_ids = sampling->all_stop_token_ids;
  beams.num_logprobs = logprobs;
  wire::SamplingParams step;
  step.temperature = 0;
  step.logprobs = static_cast<int32_t>(std::min<int64_t>(beams.num_candidates(), vocab_size()));
  if (logprobs == -1) step.logprobs = -1;
  if (logprobs) step.logprobs = std::max<int32_t>(*step.logprobs, static_cast<int32_t>(*logprobs));
  if (!beams.allowed_ids.empty()) {
    step.logprobs.reset();
    step.logprob_token_ids = beams.allowed_ids;
  }
  step.ignore_eos = true;
  step.extra_args = std::move(sampling->extra_args);
  step.skip_reading_prefix_cache = false;
  *sampling = std::move(step);
  return std::optional<BeamOptions>(std::move(beams));
}

// What the engine requests of all prompts have in common.
StatusOr<wire::EngineCoreRequest> InputProcessor::CommonParts(const GenerationRequest& request,
                                                              std::optional<int64_t> logprobs,
                                                              bool echoes_logprobs,
                                                              const ChatFacts& chat,
                                                              const RequestContext& context) const {
  wire::EngineCoreRequest model;
  wire::SamplingParams& sampling = model.sampling_params;
  ASSIGN_OR_RETURN(sampling, sampling_.Resolve(request, logprobs));
  if (echoes_logprobs) sampling.prompt_logprobs = static_cast<int32_t>(*logprobs);
  sampling.skip_reading_prefix_cache = request.skip_reading_prefix_cache ||
                                       sampling.prompt_logprobs.has_value() ||
                                       !sampling.prompt_logprob_token_ids.is_nil();
  model.arrival_time = context.arrival_time;
  model.lora_request = context.lora_request;
  model.cache_salt = request.cache_salt;
  model.data_parallel_rank = context.data_parallel_rank;
  model.priority = request.priority;
  model.session_id = SessionId(request, context);
  const bool has_kwargs = chat.template_kwargs != nullptr && !chat.template_kwargs->is_null();
  model.reasoning_parser_kwargs =
      Pack({{"chat_template_kwargs", has_kwargs ? **chat.template_kwargs : Json::object()}});
  return model;
}

// The max_tokens of a prompt's requests, once all else is known to fit its length.
StatusOr<int64_t> InputProcessor::CheckLengths(const GenerationRequest& request,
                                               const MaxTokens& max_tokens, int64_t prompt_len,
                                               int64_t max_model_len) const {
  ASSIGN_OR_RETURN(const int64_t resolved, ResolveMaxTokens(max_tokens, prompt_len, max_model_len));
  // Some proxies ask a prefill for one token and leave the client's min_tokens as it is.
  if (request.min_tokens > resolved && resolved > 1) {
    return Refuse("min_tokens",
                  "min_tokens must be at most max_tokens=" + std::to_string(resolved) + ", got " +
                      std::to_string(request.min_tokens));
  }
  RETURN_IF_ERROR(CheckScoredRows(request, prompt_len));
  return resolved;
}

// Appends the engine requests of one prompt. model: what they have in common.
void InputProcessor::AddPrompt(const GenerationRequest& request, Prompt prompt,
                               wire::EngineCoreRequest model, ProcessedRequest* result) const {
  result->num_prompt_tokens += static_cast<int64_t>(prompt.token_ids.size());
  for (const PlacedImage& image : prompt.images) {
    result->num_image_tokens = result->num_image_tokens.value_or(0) + image.prepared->num_tokens;
  }
  std::vector<TokenId> shown_ids;
  if ((request.return_token_ids || request.echo) && !prompt.embeddings) {
    shown_ids = prompt.token_ids;
  }
  if (prompt.embeddings) SetEmbeddings(*prompt.embeddings, prompt.is_token, &model);
  if (!prompt.images.empty()) SetImages(prompt.images, config_.images->tokens.family, &model);
  model.prompt_token_ids = std::move(prompt.token_ids);
  const int64_t num_copies = result->beams ? 1 : request.n;
  const std::string internal_id = *model.external_req_id + "-" + RandomHex(8);
  for (int64_t i = 1; i < num_copies; ++i) result->requests.push_back(model);
  result->requests.push_back(std::move(model));
  NameChildren(internal_id, std::span(result->requests).last(static_cast<size_t>(num_copies)));
  result->prompt_texts.push_back(std::move(prompt.text));
  result->prompt_token_ids.push_back(std::move(shown_ids));
}

StatusOr<ProcessedRequest> InputProcessor::Finish(const GenerationRequest& request,
                                                  std::vector<Prompt> prompts,
                                                  const MaxTokens& max_tokens,
                                                  std::optional<int64_t> logprobs,
                                                  bool number_prompts, const ChatFacts& chat,
                                                  const RequestContext& context) const {
  const auto num_prompts = static_cast<int64_t>(prompts.size());
  if (request.n > config_.max_n_sequences / num_prompts) {
    return Refuse("n", "n is " + std::to_string(request.n) + " for each of " +
                           std::to_string(num_prompts) + " prompts, at most " +
                           std::to_string(config_.max_n_sequences) +
                           " sequences in all are allowed");
  }
  // An echoed prompt gets logprobs like the generated text.
  const bool echoes_logprobs =
      number_prompts && request.echo && logprobs && !request.prompt_logprobs;
  ASSIGN_OR_RETURN(wire::EngineCoreRequest model,
                   CommonParts(request, logprobs, echoes_logprobs, chat, context));
  ProcessedRequest result;
  ASSIGN_OR_RETURN(result.beams, MakeBeams(request, logprobs, &model.sampling_params));
  if (request.length_penalty && !result.beams) {
    result.warning = "length_penalty has no effect without use_beam_search";
  }
  if (result.beams && AsksBeamsInVain(request)) {
    result.warning =
        "use_beam_search looks for the most likely outputs: min_tokens, penalties, logit_bias, "
        "bad_words, prompt_logprobs, repetition_detection, thinking_token_budget, response_format "
        "and structured_outputs have no effect beside it";
  }
  RETURN_IF_ERROR(SetReasoning(request, chat.constraint, &model));

  const int64_t num_copies = result.beams ? 1 : request.n;
  const int64_t child_bytes = ChildBytes(request, model);
  int64_t num_bytes = 0;
  int64_t num_image_bytes = 0;
  result.n = request.n;
  result.requests.reserve(static_cast<size_t>(num_prompts * num_copies));
  for (int64_t p = 0; p < num_prompts; ++p) {
    Prompt& prompt = prompts[static_cast<size_t>(p)];
    const auto prompt_len = static_cast<int64_t>(prompt.token_ids.size());
    ASSIGN_OR_RETURN(const int64_t resolved,
                     CheckLengths(request, max_tokens, prompt_len, context.max_model_len));
    int64_t prompt_bytes = prompt_len * static_cast<int64_t>(sizeof(TokenId));
    if (prompt.embeddings) prompt_bytes += static_cast<int64_t>(prompt.embeddings->data.size());
    num_bytes += request.n * (child_bytes + prompt_bytes);
    if (num_bytes > config_.max_fanout_bytes && (request.n > 1 || num_prompts > 1)) {
      return Refuse("n", "all choices together would need more than " +
                             std::to_string(config_.max_fanout_bytes) +
                             " bytes for their requests; request fewer");
    }
    RETURN_IF_ERROR(CheckImageBytes(prompt.images, num_copies, &num_image_bytes));
    wire::EngineCoreRequest own = model;
    own.sampling_params.max_tokens = static_cast<int32_t>(resolved);
    own.sampling_params.min_tokens =
        std::min(own.sampling_params.min_tokens, own.sampling_params.max_tokens);
    own.external_req_id = context.external_id + (number_prompts ? "-" + std::to_string(p) : "");
    AddPrompt(request, std::move(prompt), std::move(own), &result);
  }
  return result;
}

}  // namespace tandem
