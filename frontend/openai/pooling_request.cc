#include "frontend/openai/pooling_request.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "frontend/openai/parse_fields.h"

namespace tandem {
namespace {

// The value of the name that the text is.
template <class T>
Status ReadName(const Json& value, std::initializer_list<std::pair<std::string_view, T>> names,
                T* out) {
  std::string all;
  for (const auto& [name, meaning] : names) {
    if (value.is_string() && value.get_ref<const std::string&>() == name) {
      *out = meaning;
      return OkStatus();
    }
    all += (all.empty() ? "" : ", ") + std::string(name);
  }
  return InvalidArgumentError("must be one of " + all);
}

bool IsConversation(const Json& value) {
  return value.is_array() && !value.empty() && value[0].is_object();
}

}  // namespace

Status ParseConversations(Json& value, PoolingRequest* out) {
  const bool is_batch = value.is_array() && !value.empty() && value[0].is_array();
  Json conversations = is_batch ? std::move(value) : Json::array({std::move(value)});
  for (Json& conversation : conversations) {
    ChatRequest chat;
    RETURN_IF_ERROR(ParseMessages(conversation, &chat));
    if (!chat.images.empty()) {
      return InvalidArgumentError("models that make vectors or scores take no images here")
          .WithParam("messages");
    }
    out->conversations.push_back(std::move(chat.messages));
  }
  return OkStatus();
}

Status ParsePoolingInput(Json& value, PoolingRequest* out) {
  const bool is_batch = value.is_array() && !value.empty() && IsConversation(value[0]);
  if (is_batch || IsConversation(value)) return ParseConversations(value, out);
  Status status = ParsePrompt(value, out);
  if (!status.ok()) return status;
  const bool is_empty = std::visit([](const auto& list) { return list.empty(); }, out->prompt);
  if (!is_empty) return OkStatus();
  return InvalidArgumentError("You must pass at least one prompt").WithParam("input");
}

Status ParseEncodingFormat(Json& value, PoolingRequest* out) {
  return ReadName<EmbeddingEncoding>(value,
                                     {{"float", EmbeddingEncoding::kFloat},
                                      {"base64", EmbeddingEncoding::kBase64},
                                      {"bytes", EmbeddingEncoding::kBytes},
                                      {"bytes_only", EmbeddingEncoding::kBytesOnly}},
                                     &out->encoding);
}

Status ParseEmbedDtype(Json& value, PoolingRequest* out) {
  return ReadName<EmbedType>(value,
                             {{"float32", EmbedType::kFloat32},
                              {"float16", EmbedType::kFloat16},
                              {"bfloat16", EmbedType::kBfloat16},
                              {"fp8_e4m3", EmbedType::kFloat8E4m3},
                              {"fp8_e5m2", EmbedType::kFloat8E5m2}},
                             &out->embed_type);
}

Status ParseEndianness(Json& value, PoolingRequest* out) {
  return ReadName<bool>(value, {{"native", false}, {"little", false}, {"big", true}},
                        &out->big_endian);
}

Status ParsePoolingSide(Json& value, PoolingRequest* out) {
  std::string side;
  RETURN_IF_ERROR(ReadName<std::string>(value, {{"left", "left"}, {"right", "right"}}, &side));
  out->truncation_side = std::move(side);
  return OkStatus();
}

Status RefuseNormalize(Json& /*value*/, PoolingRequest* /*out*/) {
  return InvalidArgumentError("Parameter `normalize` was removed; use `use_activation` instead.")
      .WithParam("normalize");
}

namespace {

// A text, or an object with content that is a text or a list of parts; Jina's documents have text.
Status ReadText(const Json& value, std::vector<std::string>* out) {
  Status wrong = InvalidArgumentError(
      "must be a text, an object with content, or a list of these; only text is supported");
  if (value.is_string()) {
    out->push_back(value.get<std::string>());
    return OkStatus();
  }
  if (!value.is_object()) return wrong;
  const auto text = value.find("text");
  if (text != value.end() && text->is_string()) {
    out->push_back(text->get<std::string>());
    return OkStatus();
  }
  const auto content = value.find("content");
  if (content == value.end()) return wrong;
  if (content->is_string()) {
    out->push_back(content->get<std::string>());
    return OkStatus();
  }
  if (!content->is_array()) return wrong;
  std::string joined;
  for (const Json& part : *content) {
    const bool is_text = part.is_object() && part.contains("text") && part["text"].is_string();
    if (!is_text) return wrong;
    joined += (joined.empty() ? "" : "\n") + part["text"].get<std::string>();
  }
  out->push_back(std::move(joined));
  return OkStatus();
}

Status ReadTexts(const Json& value, std::vector<std::string>* out) {
  if (!value.is_array()) return ReadText(value, out);
  for (const Json& item : value) RETURN_IF_ERROR(ReadText(item, out));
  return OkStatus();
}

Status CheckPairs(const ScoreRequest& request) {
  const size_t num_queries = request.queries.size(), num_documents = request.documents.size();
  if (num_queries == 0) return InvalidArgumentError("At least one text element must be given");
  if (num_documents == 0) {
    return InvalidArgumentError("At least one text_pair element must be given");
  }
  if (num_queries == 1 || num_queries == num_documents) return OkStatus();
  return InvalidArgumentError("Input lengths must be either 1:1, 1:N or N:N");
}

// Of the names that one field has, exactly one is there.
void RequireOne(const Json& body, std::initializer_list<const char*> names, BodyErrors* errors) {
  std::string all;
  int num_given = 0;
  for (const char* name : names) {
    all.append(all.empty() ? "" : ", ").append(name);
    num_given += IsAbsent(body, name) ? 0 : 1;
  }
  const std::string location = "body." + std::string(*names.begin());
  if (num_given == 0) errors->AddForm(location, "is required");
  if (num_given > 1) errors->AddForm(location, "only one of " + all + " can be given");
}

template <class... Fields>
StatusOr<PoolingRequest> ParseInputs(Json body, const Fields&... fields) {
  if (!body.is_object()) return NotAnObject(body);
  PoolingRequest request;
  BodyErrors errors;
  if (IsAbsent(body, "data")) RequireOne(body, {"input", "messages"}, &errors);
  (ParseFields<PoolingRequest>(body, fields, &request, &errors), ...);
  ParseFields<PoolingRequest>(body, kConversationFields, &request, &errors);
  ParseFields<ChatRequest>(body, kRenderingFields, &request.chat, &errors);
  ParseFields<PoolingRequest>(body, kUnbuiltFields, &request, &errors);
  LogUnknownFields(body, kUnbuiltFields, kConversationFields, kRenderingFields, fields...);
  RETURN_IF_ERROR(errors.Result());
  RETURN_IF_ERROR(CheckGenerationRequest(request));
  RETURN_IF_ERROR(CheckChatRequest(request.chat));
  return request;
}

StatusOr<ScoreRequest> ParsePairs(Json body, std::span<const ApiField<ScoreRequest>> own_fields,
                                  std::initializer_list<const char*> queries,
                                  std::initializer_list<const char*> documents) {
  if (!body.is_object()) return NotAnObject(body);
  ScoreRequest request;
  BodyErrors errors;
  RequireOne(body, queries, &errors);
  RequireOne(body, documents, &errors);
  body.erase("input");  // not of these routes
  ParseFields<PoolingRequest>(body, kPoolingFields, &request, &errors);
  ParseFields<ScoreRequest>(body, own_fields, &request, &errors);
  ParseFields<ScoreRequest>(body, kPairFields, &request, &errors);
  LogUnknownFields(body, kPoolingFields, own_fields, kPairFields);
  RETURN_IF_ERROR(errors.Result());
  RETURN_IF_ERROR(CheckGenerationRequest(request));
  RETURN_IF_ERROR(CheckPairs(request));
  return request;
}

}  // namespace

Status ParseScoreQueries(Json& value, ScoreRequest* out) { return ReadTexts(value, &out->queries); }
Status ParseScoreDocuments(Json& value, ScoreRequest* out) {
  return ReadTexts(value, &out->documents);
}
Status ParseScoreKwargs(Json& value, ScoreRequest* out) {
  if (!value.is_object()) return InvalidArgumentError("must be an object");
  out->chat_template_kwargs = JsonDocument(std::move(value));
  return OkStatus();
}

Status ParseCohereTexts(Json& value, CohereEmbedRequest* out) {
  if (!value.is_array()) return InvalidArgumentError("must be a list of strings");
  TextPrompts texts;
  for (const Json& text : value) {
    if (!text.is_string()) return InvalidArgumentError("must be a list of strings");
    texts.push_back(text.get<std::string>());
  }
  out->prompt = std::move(texts);
  return OkStatus();
}

Status ParseCohereInputs(Json& value, CohereEmbedRequest* out) {
  if (!value.is_array()) return InvalidArgumentError("must be a list of objects with content");
  TextPrompts texts;
  RETURN_IF_ERROR(ReadTexts(value, &texts));
  out->prompt = std::move(texts);
  return OkStatus();
}

Status ParseEmbeddingTypes(Json& value, CohereEmbedRequest* out) {
  if (!value.is_array() || value.empty()) return InvalidArgumentError("must be a list of types");
  out->wants_float = false;
  for (const Json& type : value) {
    bool* const wanted = type == "float"     ? &out->wants_float
                         : type == "binary"  ? &out->wants_binary
                         : type == "ubinary" ? &out->wants_ubinary
                         : type == "base64"  ? &out->wants_base64
                                             : nullptr;
    if (wanted == nullptr) {
      return InvalidArgumentError("must be of float, binary, ubinary and base64");
    }
    *wanted = true;
  }
  return OkStatus();
}

Status ParseTruncate(Json& value, CohereEmbedRequest* out) {
  std::string side;
  RETURN_IF_ERROR(
      ReadName<std::string>(value, {{"NONE", "none"}, {"START", "left"}, {"END", "right"}}, &side));
  out->truncation_side = std::move(side);
  return OkStatus();
}

StatusOr<PoolingRequest> ParseEmbeddingRequest(Json body) {
  return ParseInputs(std::move(body), kPoolingFields, kEncodingFields, kTaskFields);
}

StatusOr<PoolingRequest> ParseClassifyRequest(Json body) {
  return ParseInputs(std::move(body), kPoolingFields);
}

StatusOr<ScoreRequest> ParseScoreRequest(Json body) {
  return ParsePairs(std::move(body), kScoreFields, {"queries", "data_1", "text_1"},
                    {"documents", "items", "data_2", "text_2"});
}

StatusOr<ScoreRequest> ParseRerankRequest(Json body) {
  ASSIGN_OR_RETURN(ScoreRequest request,
                   ParsePairs(std::move(body), kRerankFields, {"query"}, {"documents"}));
  if (request.queries.size() == 1) return request;
  return InvalidArgumentError("query must be one text").WithParam("query");
}

StatusOr<CohereEmbedRequest> ParseCohereEmbedRequest(Json body) {
  if (!body.is_object()) return NotAnObject(body);
  CohereEmbedRequest request;
  BodyErrors errors;
  ParseFields<CohereEmbedRequest>(body, kCohereEmbedFields, &request, &errors);
  LogUnknownFields(body, kCohereEmbedFields);
  RETURN_IF_ERROR(errors.Result());
  if (IsAbsent(body, "texts") == IsAbsent(body, "inputs")) {
    return InvalidArgumentError("exactly one of texts, images and inputs must be given")
        .WithParam("texts");
  }
  if (std::get<TextPrompts>(request.prompt).empty()) {
    return InvalidArgumentError("You must pass at least one prompt").WithParam("texts");
  }
  const bool refuses = request.truncation_side == "none";
  if (!refuses && !request.truncate_prompt_tokens) request.truncate_prompt_tokens = -1;
  return request;
}

}  // namespace tandem
