// The inputs of requests to a model that pools: texts and token ids, truncated or refused.

#include <algorithm>
#include <span>
#include <utility>

#include "common/shorten.h"
#include "common/strings.h"
#include "frontend/openai/refuse.h"
#include "frontend/processing/input_processor.h"
#include "frontend/text/characters.h"
#include "proto_msgpack/pooling_params.h"

namespace tandem {
namespace {

Status TooLong(int64_t num_tokens, bool at_least, int64_t max_model_len) {
  return Refuse("input", std::string("an input has ") + (at_least ? "at least " : "") +
                             std::to_string(num_tokens) +
                             " tokens, but this model's maximum context length is " +
                             std::to_string(max_model_len) +
                             " tokens; shorten it, or set truncate_prompt_tokens");
}

// As Hugging Face's tokenizers truncate: the text's tokens are cut, the special ones around them
// stay.
std::vector<TokenId> TruncateText(std::vector<TokenId> all, std::span<const TokenId> text,
                                  size_t keep) {
  const auto found = std::search(all.begin(), all.end(), text.begin(), text.end());
  const size_t num_special = all.size() - text.size();
  if (found == all.end() || num_special >= keep) {
    all.resize(keep);
    return all;
  }
  const auto num_cut = static_cast<ptrdiff_t>(all.size() - keep);
  const auto end = found + static_cast<ptrdiff_t>(text.size());
  all.erase(end - num_cut, end);
  return all;
}

}  // namespace

void InputProcessor::SetCase(std::vector<std::string>* texts) const {
  if (!config_.pooling->lowercases) return;
  for (std::string& text : *texts) text = LowercaseText(text);
}

StatusOr<std::vector<TokenId>> InputProcessor::PoolingInput(const PoolingRequest& request,
                                                            std::string_view text,
                                                            int64_t max_model_len) const {
  const bool adds_special = request.add_special_tokens.value_or(true);
  const bool truncates = request.truncate_prompt_tokens.has_value();
  if (!truncates && !CheckTextBytes(text.size(), max_model_len + 1).ok()) {
    return TooLong(max_model_len + 1, true, max_model_len);
  }
  EncodedTextCache* const cache = request.cache_salt ? nullptr : encoded_texts_.get();
  ASSIGN_OR_RETURN(auto ids, tokenizer_->Encode(text, adds_special, cache));
  for (const TokenId id : ids) RETURN_IF_ERROR(sampling_.CheckId("input", id));
  if (!truncates) return ids;
  int64_t keep = *request.truncate_prompt_tokens;
  if (keep == -1) keep = max_model_len;
  const auto size = static_cast<int64_t>(ids.size());
  if (size <= keep) return ids;
  if (request.truncation_side == "left") {
    return std::vector<TokenId>(ids.end() - keep, ids.end());
  }
  ASSIGN_OR_RETURN(const auto plain, tokenizer_->Encode(text, false, cache));
  ids = TruncateText(std::move(ids), plain, static_cast<size_t>(keep));
  ids.shrink_to_fit();  // many inputs of long texts are held together
  return ids;
}

Status InputProcessor::CheckPooling(const PoolingRequest& request,
                                    const RequestContext& context) const {
  const PoolerConfig& pooling = *config_.pooling;
  if (request.truncate_prompt_tokens.value_or(0) > context.max_model_len) {
    return Refuse("truncate_prompt_tokens", "truncate_prompt_tokens is " +
                                                std::to_string(*request.truncate_prompt_tokens) +
                                                ", this model's maximum context length is " +
                                                std::to_string(context.max_model_len) + " tokens");
  }
  if (!request.dimensions) return OkStatus();
  const int64_t dimensions = *request.dimensions;
  if (!pooling.is_matryoshka) {
    const std::string model =
        request.model ? "Model \"" + Shorten(*request.model) + "\"" : "The model";
    return Refuse("dimensions", model +
                                    " does not support Matryoshka embeddings; dimensions must "
                                    "be unset (received dimensions=" +
                                    std::to_string(dimensions) + ").");
  }
  const auto& allowed = pooling.matryoshka_dimensions;
  const bool is_listed =
      allowed.empty() || std::find(allowed.begin(), allowed.end(), dimensions) != allowed.end();
  if (is_listed && (pooling.embedding_size == 0 || dimensions <= pooling.embedding_size)) {
    return OkStatus();
  }
  std::string list;
  for (const int64_t size : allowed) list += (list.empty() ? "" : ", ") + std::to_string(size);
  return Refuse("dimensions",
                "dimensions is " + std::to_string(dimensions) + ", must be " +
                    (allowed.empty() ? "in [1, " + std::to_string(pooling.embedding_size) + "]"
                                     : "one of " + list));
}

// Puts the conversations' texts in their place.
Status InputProcessor::RenderConversations(PoolingRequest* request) const {
  if (request->conversations.empty()) return OkStatus();
  constexpr size_t kMaxCopiedBytes = size_t{64} << 20;
  ChatRequest& chat = request->chat;
  const size_t num_bytes =
      chat.chat_template_kwargs.is_null() ? 0 : DumpJson(*chat.chat_template_kwargs).size();
  if (num_bytes > kMaxCopiedBytes / request->conversations.size()) {
    return Refuse("chat_template_kwargs", "chat_template_kwargs are too large for " +
                                              std::to_string(request->conversations.size()) +
                                              " conversations, each of which gets them");
  }
  if (!chat.add_generation_prompt) chat.add_generation_prompt = false;
  TextPrompts texts;
  for (JsonDocument& conversation : request->conversations) {
    chat.messages = std::move(conversation);
    ASSIGN_OR_RETURN(std::string text, RenderChat(chat));
    texts.push_back(std::move(text));
  }
  request->conversations.clear();
  request->prompt = std::move(texts);
  if (!request->add_special_tokens) request->add_special_tokens = false;
  return OkStatus();
}

StatusOr<ProcessedRequest> InputProcessor::Process(PoolingRequest request,
                                                   const RequestContext& context) const {
  RETURN_IF_ERROR(CheckPooling(request, context));
  const size_t num_inputs =
      request.conversations.size() +
      std::visit([](const auto& list) { return list.size(); }, request.prompt);
  if (static_cast<int64_t>(num_inputs) > config_.max_pooling_inputs) {
    return Refuse("input", "input has " + std::to_string(num_inputs) + " entries, at most " +
                               std::to_string(config_.max_pooling_inputs) + " are allowed");
  }
  RETURN_IF_ERROR(RenderConversations(&request));
  std::vector<PoolingTokens> inputs;
  if (auto* texts = std::get_if<TextPrompts>(&request.prompt)) {
    SetCase(texts);
    for (const std::string& text : *texts) {
      ASSIGN_OR_RETURN(auto ids, PoolingInput(request, text, context.max_model_len));
      inputs.push_back({std::move(ids)});
    }
  } else {
    for (const auto& tokens : std::get<TokenPrompts>(request.prompt)) {
      PoolingRequest whole;  // Truncate leaves one token less for an output
      ASSIGN_OR_RETURN(auto ids, CheckTokens(whole, tokens, context.max_model_len));
      const int64_t keep = request.truncate_prompt_tokens.value_or(-1);
      const auto most = static_cast<size_t>(keep == -1 ? context.max_model_len : keep);
      if (request.truncate_prompt_tokens && ids.size() > most) {
        const bool keeps_end = request.truncation_side == "left";
        if (keeps_end) ids.erase(ids.begin(), ids.end() - static_cast<ptrdiff_t>(most));
        ids.resize(most);
      }
      inputs.push_back({std::move(ids)});
    }
  }
  return PoolingRequests(request, std::move(inputs), context);
}

// A token is a few bytes of a request, and its row thousands of its response.
Status InputProcessor::CheckTokenRows(const PoolerConfig& pooling,
                                      const std::vector<PoolingTokens>& inputs) {
  constexpr int64_t kMaxBytes = int64_t{256} << 20;
  if (!IsTokenWise(pooling.task)) return OkStatus();
  int64_t num_tokens = 0;
  for (const PoolingTokens& input : inputs) {
    num_tokens += static_cast<int64_t>(input.token_ids.size());
  }
  const int64_t row_bytes = std::max<int64_t>(pooling.num_columns(), 1) * 4;
  if (num_tokens <= kMaxBytes / row_bytes) return OkStatus();
  return Refuse("input", "the inputs have " + std::to_string(num_tokens) +
                             " tokens together, and a row of " + std::to_string(row_bytes) +
                             " bytes for each; at most " + std::to_string(kMaxBytes / row_bytes) +
                             " tokens are allowed in a request");
}

StatusOr<ProcessedRequest> InputProcessor::PoolingRequests(const PoolingRequest& request,
                                                           std::vector<PoolingTokens> inputs,
                                                           const RequestContext& context) const {
  wire::PoolingParams params;
  params.task = std::string(TaskName(config_.pooling->task));
  params.dimensions = request.dimensions;
  params.use_activation = request.use_activation;
  params.skip_reading_prefix_cache = false;
  wire::EngineCoreRequest model;
  model.pooling_params = wire::Packed(params);
  model.sampling_params.max_tokens = 1;
  model.arrival_time = context.arrival_time;
  model.lora_request = context.lora_request;
  model.cache_salt = request.cache_salt;
  model.data_parallel_rank = context.data_parallel_rank;
  model.priority = request.priority;
  RETURN_IF_ERROR(CheckTokenRows(*config_.pooling, inputs));
  ProcessedRequest result;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto size = static_cast<int64_t>(inputs[i].token_ids.size());
    if (size == 0) return Refuse("input", "an input has no tokens");
    if (size > context.max_model_len) return TooLong(size, false, context.max_model_len);
    result.num_prompt_tokens += size;
    wire::EngineCoreRequest own = model;
    own.prompt_token_ids = std::move(inputs[i].token_ids);
    if (inputs[i].second_begin) {
      wire::PoolingParams pair = params;
      pair.extra_kwargs = wire::PackedTokenTypes(*inputs[i].second_begin);
      own.pooling_params = wire::Packed(pair);
    }
    own.external_req_id = context.external_id + "-" + std::to_string(i);
    own.request_id = *own.external_req_id + "-" + RandomHex(8);
    result.requests.push_back(std::move(own));
    result.prompt_texts.emplace_back();
    result.prompt_token_ids.emplace_back();
  }
  return result;
}

}  // namespace tandem
