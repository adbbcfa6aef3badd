#include "frontend/api/tokenize.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "frontend/api/chat_images.h"
#include "frontend/api/error.h"
#include "frontend/api/models.h"
#include "frontend/media/media_reader.h"
#include "frontend/openai/tokenize_request.h"

namespace tandem {
namespace {

Json TokenStrings(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  Json strings = Json::array();
  for (const TokenId id : ids) strings.push_back(tokenizer.IdToToken(id).value_or(""));
  return strings;
}

void RespondWith(Exchange& exchange, const StatusOr<std::string>& body) {
  exchange.Respond(body.ok() ? Response{200, *body, "application/json", {}}
                             : ErrorResponse(body.status()));
}

StatusOr<TokenizeBody> CheckedBody(Json body, const InputProcessor& input_processor,
                                   const ApiOptions& options, const ServedAdapters& adapters) {
  ASSIGN_OR_RETURN(TokenizeBody parsed, ParseTokenizeRequest(std::move(body)));
  RETURN_IF_ERROR(FindModel(options, adapters, parsed.request.model).status());
  if (!parsed.chat) return parsed;
  RETURN_IF_ERROR(input_processor.CheckImages(*parsed.chat));
  // The route needs no API key, so nobody has a fetch or a file for the asking.
  for (const ChatImage& image : parsed.chat->images) {
    if (image.url.empty() || MediaReader::IsDataUrl(image.url)) continue;
    return InvalidArgumentError("images of /tokenize must be data: URLs").WithParam("image_url");
  }
  return parsed;
}

// REQUIRES: images are loaded.
StatusOr<std::string> TokensJson(TokenizeBody& parsed, const InputProcessor& input_processor,
                                 int64_t max_model_len) {
  const Tokenizer& tokenizer = input_processor.tokenizer();
  std::vector<TokenId> ids;
  if (parsed.chat) {
    ASSIGN_OR_RETURN(ids, input_processor.ChatTokens(*parsed.chat));
  } else {
    ASSIGN_OR_RETURN(ids, tokenizer.Encode(parsed.request.prompt.value_or(""),
                                           parsed.request.add_special_tokens));
  }
  return DumpJson({{"count", ids.size()},
                   {"max_model_len", max_model_len},
                   {"tokens", ids},
                   {"token_strs", parsed.request.return_token_strs ? TokenStrings(tokenizer, ids)
                                                                   : Json(nullptr)}});
}

}  // namespace

StatusOr<std::string> TokenizeBodyToJson(Json body, const InputProcessor& input_processor,
                                         const ApiOptions& options, const ServedAdapters& adapters,
                                         int64_t max_model_len) {
  ASSIGN_OR_RETURN(TokenizeBody parsed,
                   CheckedBody(std::move(body), input_processor, options, adapters));
  return TokensJson(parsed, input_processor, max_model_len);
}

StatusOr<std::string> DetokenizeBodyToJson(Json body, const InputProcessor& input_processor,
                                           const ApiOptions& options,
                                           const ServedAdapters& adapters) {
  ASSIGN_OR_RETURN(const DetokenizeRequest request, ParseDetokenizeRequest(std::move(body)));
  RETURN_IF_ERROR(FindModel(options, adapters, request.model).status());
  std::vector<TokenId> ids;
  for (const int64_t id : *request.tokens) {
    if (id < 0 || id >= input_processor.vocab_size()) {
      return InvalidArgumentError("tokens has token id " + std::to_string(id) +
                                  ", which is out of vocabulary: ids are in [0, " +
                                  std::to_string(input_processor.vocab_size() - 1) + "]")
          .WithParam("tokens");
    }
    ids.push_back(static_cast<TokenId>(id));
  }
  return DumpJson({{"prompt", input_processor.tokenizer().Decode(ids, false)}});
}

Awaitable<void> HandleTokenize(Exchange& exchange, ApiContext* context) {
  const auto* engine = context->engine_client->engine_info();
  const int64_t max_model_len = engine == nullptr ? 0 : engine->max_model_len;
  // All in one job unless images are loaded first.
  TokenizeBody parsed;
  auto work = [&parsed, body = std::move(exchange.mutable_request().body), context,
               adapters = context->adapters, max_model_len]() -> StatusOr<std::string> {
    ASSIGN_OR_RETURN(JsonDocument json, ParseJsonBody(body, context->options.json_limits));
    ASSIGN_OR_RETURN(parsed, CheckedBody(std::move(json.mutable_value()), *context->input_processor,
                                         context->options, *adapters));
    if (parsed.chat && NeedsImages(*parsed.chat)) return std::string();
    return TokensJson(parsed, *context->input_processor, max_model_len);
  };
  const auto result = co_await OnPool(context->text_pool, std::move(work));
  if (!result.ok() || !result->empty()) co_return RespondWith(exchange, result);
  const Status loaded = co_await LoadImages(exchange, context, std::nullopt, {&*parsed.chat, 1});
  if (!loaded.ok()) co_return RespondWith(exchange, loaded);
  auto rest = [&parsed, context, max_model_len] {
    return TokensJson(parsed, *context->input_processor, max_model_len);
  };
  const auto tokenized = co_await OnPool(context->text_pool, std::move(rest));
  RespondWith(exchange, tokenized);
}

Awaitable<void> HandleDetokenize(Exchange& exchange, ApiContext* context) {
  auto work = [body = std::move(exchange.mutable_request().body), context,
               adapters = context->adapters]() -> StatusOr<std::string> {
    ASSIGN_OR_RETURN(JsonDocument json, ParseJsonBody(body, context->options.json_limits));
    return DetokenizeBodyToJson(std::move(json.mutable_value()), *context->input_processor,
                                context->options, *adapters);
  };
  const auto result = co_await OnPool(context->text_pool, std::move(work));
  RespondWith(exchange, result);
}

StatusOr<std::string> TokenizerInfo(std::string_view config_json,
                                    const std::string& chat_template) {
  Json info = Json::object();
  if (!config_json.empty()) {
    ASSIGN_OR_RETURN(JsonDocument config, ParseJson(config_json));
    if (!config->is_object()) return InvalidArgumentError("must be a JSON object");
    info = std::move(config.mutable_value());
  }
  for (const char* path : {"vocab_file", "merges_file", "name_or_path"}) info.erase(path);
  if (!info.contains("tokenizer_class")) info["tokenizer_class"] = "PreTrainedTokenizerFast";
  if (!chat_template.empty()) info["chat_template"] = chat_template;
  return DumpJson(info);
}

Awaitable<void> HandleTokenizerInfo(Exchange& exchange, ApiContext* context) {
  exchange.Respond({200, context->facts->tokenizer_info, "application/json", {}});
  co_return;
}

}  // namespace tandem
