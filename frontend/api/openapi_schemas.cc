#include "frontend/api/openapi_schemas.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "common/check.h"
#include "frontend/anthropic/messages_request.h"
#include "frontend/openai/adapter_request.h"
#include "frontend/openai/chat_request.h"
#include "frontend/openai/completion_request.h"
#include "frontend/openai/decision_request.h"
#include "frontend/openai/derender_request.h"
#include "frontend/openai/generate_request.h"
#include "frontend/openai/generative_scoring_request.h"
#include "frontend/openai/pooling_request.h"
#include "frontend/openai/responses_request.h"
#include "frontend/openai/tokenize_request.h"

namespace tandem {
namespace {

// ---- Rows of the field tables → properties ----

Json Number(double value) {
  const bool is_integer = value == std::floor(value) && std::abs(value) < 9e15;
  return is_integer ? Json(static_cast<int64_t>(value)) : Json(value);
}

void AddBounds(const Range& range, const char* min, const char* max, Json* schema) {
  if (std::isfinite(range.min)) {
    const bool open = range.min_open && min == std::string_view("minimum");
    (*schema)[open ? "exclusiveMinimum" : min] = Number(range.min);
  }
  if (std::isfinite(range.max)) (*schema)[max] = Number(range.max);
}

Json NumberSchema(const char* type, const Range& range) {
  Json schema = {{"type", type}};
  AddBounds(range, "minimum", "maximum", &schema);
  return schema;
}

// Ranges of texts are in bytes, of which a text has at least as many as characters.
Json TextSchema(const Range& range) {
  Json schema = {{"type", "string"}};
  AddBounds(range, "minLength", "maxLength", &schema);
  if (range.min > 1) schema.erase("minLength");
  return schema;
}

template <class V>
struct IsOptional : std::false_type {};
template <class V>
struct IsOptional<std::optional<V>> : std::true_type {};

template <class V>
Json TypeSchema(const Range& range) {
  if constexpr (IsOptional<V>::value) {
    return TypeSchema<typename V::value_type>(range);
  } else if constexpr (std::is_same_v<V, bool>) {
    return {{"type", "boolean"}};
  } else if constexpr (std::is_same_v<V, int64_t>) {
    return NumberSchema("integer", range);
  } else if constexpr (std::is_same_v<V, double>) {
    return NumberSchema("number", range);
  } else if constexpr (std::is_same_v<V, std::string>) {
    return TextSchema(range);
  } else if constexpr (std::is_same_v<V, std::vector<std::string>>) {
    return {{"type", "array"}, {"items", TextSchema(range)}};
  } else {
    static_assert(std::is_same_v<V, std::vector<int64_t>>);
    return {{"type", "array"}, {"items", NumberSchema("integer", range)}};
  }
}

// Numbers and booleans may also come as each other and as texts, by pydantic's rules.
constexpr std::pair<std::string_view, std::string_view> kLaxTypes[] = {
    {"integer", "LaxInteger"}, {"number", "LaxNumber"}, {"boolean", "LaxBoolean"}};
constexpr std::string_view kLaxInteger =
    R"({"description":"Read as an integer.","anyOf":[{"type":"boolean"},)"
    R"({"type":"string","pattern":"^\\s*[+-]?[0-9]+(_[0-9]+)*(\\.0+)?\\s*$"}]})";
constexpr std::string_view kLaxNumber =
    R"({"description":"Read as a number.","anyOf":[{"type":"boolean"},{"type":"string","pattern":)"
    R"("^\\s*[+-]?([0-9][0-9_]*\\.?[0-9_]*|\\.[0-9][0-9_]*)([eE][+-]?[0-9][0-9_]*)?\\s*$"}]})";
constexpr std::string_view kLaxBoolean =
    R"({"description":"Read as a boolean.","anyOf":[{"enum":[0,1]},{"type":"string","pattern":)"
    R"("^(0|1|[tT]|[tT][rR][uU][eE]|[fF]|[fF][aA][lL][sS][eE]|[yY]|[yY][eE][sS]|[nN]|[nN][oO]|)"
    R"([oO][nN]|[oO][fF][fF])$"}]})";

Json EitherOf(Json schema, std::string_view lax) {
  Json reference = {{"$ref", "#/components/schemas/" + std::string(lax)}};
  return {{"anyOf", Json::array({std::move(schema), std::move(reference)})}};
}

Json WithLaxValues(Json schema) {
  const auto type = schema.find("type");
  for (const auto& [name, lax] : kLaxTypes) {
    if (type == schema.end()) break;
    const bool is_one =
        type->is_array() ? std::count(type->begin(), type->end(), name) != 0 : *type == name;
    if (is_one) return EitherOf(std::move(schema), lax);
  }
  for (const char* part : {"items", "additionalProperties"}) {
    if (schema.contains(part)) schema[part] = WithLaxValues(std::move(schema[part]));
  }
  for (const char* parts : {"properties", "anyOf"}) {
    if (!schema.contains(parts)) continue;
    for (Json& part : schema[parts]) part = WithLaxValues(std::move(part));
  }
  return schema;
}

// What values the row takes besides null, which counts as absent.
template <class T>
Json RowSchema(const ApiField<T>& field) {
  // Token ids are read as they are, like a prompt's in vLLM, which may also be a text.
  const bool is_strict =
      field.schema == field_schema::kPrompt || field.schema == field_schema::kTokenIds;
  if (is_strict) return Json::parse(field.schema);
  if (!field.schema.empty()) return WithLaxValues(Json::parse(field.schema));
  return WithLaxValues(std::visit(
      [&field](auto member) -> Json {
        using M = decltype(member);
        if constexpr (std::is_member_object_pointer_v<M>) {
          return TypeSchema<std::remove_reference_t<decltype(std::declval<T>().*member)>>(
              field.range);
        } else if constexpr (std::is_same_v<M, Unsupported>) {
          return {{"const", Json::parse(member.accepted)}};
        } else {
          return Json::object();  // anything
        }
      },
      field.member));
}

Json OrNull(Json schema) {
  if (schema.empty()) return schema;
  if (schema.contains("anyOf")) {
    schema["anyOf"].push_back({{"type", "null"}});
    return schema;
  }
  return {{"anyOf", Json::array({std::move(schema), {{"type", "null"}}})}};
}

// A body's schema, table by table.
class BodySchema {
 public:
  explicit BodySchema(std::vector<std::string> required) : required_(std::move(required)) {}

  template <class T, size_t n>
  BodySchema& Add(const ApiField<T> (&fields)[n]) {
    for (const ApiField<T>& field : fields) {
      Json property = RowSchema(field);
      if (!IsRequired(field.name)) property = OrNull(std::move(property));
      property["description"] = field.help;
      if (std::holds_alternative<Retired>(field.member)) property["deprecated"] = true;
      properties_[std::string(field.name)] = std::move(property);
    }
    return *this;
  }
  BodySchema& Without(std::span<const char* const> names) {
    for (const char* name : names) properties_.erase(name);
    return *this;
  }
  BodySchema& Without(std::span<const RetiredField> fields) {
    for (const RetiredField& field : fields) properties_.erase(std::string(field.name));
    return *this;
  }
  BodySchema& Set(const char* name, Json schema) {
    Json& property = properties_[name];
    const Json help = property.is_object() ? property["description"] : Json(nullptr);
    property = std::move(schema);
    if (!help.is_null()) property["description"] = help;
    return *this;
  }

  const Json& properties() const { return properties_; }
  Json ToJson() const {
    return {{"type", "object"}, {"required", required_}, {"properties", properties_}};
  }

 private:
  bool IsRequired(std::string_view name) const {
    return std::find(required_.begin(), required_.end(), name) != required_.end();
  }

  std::vector<std::string> required_;
  Json properties_ = Json::object();
};

Json ChatSchema() {
  return BodySchema({"messages"}).Add(kGenerationFields).Add(kChatFields).ToJson();
}

Json CompletionSchema() {
  Json schema = BodySchema({}).Add(kGenerationFields).Add(kCompletionFields).ToJson();
  schema["anyOf"] = {{{"required", {"prompt"}}}, {{"required", {"prompt_embeds"}}}};
  return schema;
}

Json BatchSchema() {
  Json early_stopping = EitherOf({{"enum", {false, nullptr}}}, "LaxBoolean");
  early_stopping["description"] = "Of beam searches, which a batch does not have.";
  Json conversations = {
      {"type", "array"}, {"minItems", 1}, {"items", Json::parse(field_schema::kMessages)}};
  return BodySchema({"messages"})
      .Add(kGenerationFields)
      .Add(kChatFields)
      .Set("messages", std::move(conversations))
      .Set("tools", {{"type", "null"}})
      .Set("prompt_logprobs", {{"type", "null"}})
      .Set("stream", EitherOf({{"enum", {false, nullptr}}}, "LaxBoolean"))
      .Set("return_prompt_text", EitherOf({{"enum", {false, nullptr}}}, "LaxBoolean"))
      .Set("early_stopping", std::move(early_stopping))
      .Set("n", EitherOf({{"enum", {1, nullptr}}}, "LaxInteger"))
      .ToJson();
}

Json ResponsesSchema() {
  return BodySchema({"input"})
      .Add(kGenerationFields)
      .Without(kNotOfResponses)
      .Add(kResponsesFields)
      .ToJson();
}

Json GenerateSchema() {
  const BodySchema beside = BodySchema({}).Add(kGenerationFields);
  BodySchema sampling({});
  sampling.Add(kGenerationFields).Add(kCompletionFields).Add(kSamplingParamsFields);
  sampling.Without(kBesideSamplingParams);
  constexpr const char* kNotGiven[] = {"prompt", "prompt_embeds", "echo"};
  sampling.Without(kNotGiven);
  BodySchema schema({"token_ids", "sampling_params"});
  schema.Add(kGenerateFields).Set("sampling_params", sampling.ToJson());
  for (const char* name : kBesideSamplingParams) schema.Set(name, beside.properties()[name]);
  return schema.ToJson();
}

Json TokenizeSchema() {
  const Json text = BodySchema({"prompt"}).Add(kTokenizeFields).ToJson();
  return {{"anyOf", Json::array({text, ChatSchema()})}};
}

Json MessagesSchema(bool counts_only) {
  std::vector<std::string> required = {"messages"};
  if (!counts_only) required.push_back("max_tokens");
  return BodySchema(std::move(required)).Add(kMessagesFields).ToJson();
}

constexpr std::string_view kAbortRequest =
    R"({"type":"object","properties":{"request_ids":)"
    R"({"type":["array","null"],"items":{"type":"string"}}}})";

constexpr std::string_view kAbortNamedRequest =
    R"({"type":"object","required":["request_ids"],"properties":{"request_ids":)"
    R"({"type":"array","minItems":1,"items":{"type":"string"},"description":"Ids of responses."}}})";

// ---- Responses ----

constexpr ResponseSchema kResponseSchemas[] = {
    {"ChatCompletion", "application/json",
     R"({"type":"object","required":["id","object","created","model","choices","usage"],)"
     R"("properties":{"object":{"const":"chat.completion"},"choices":{"type":"array","minItems":1,)"
     R"("items":{"type":"object","required":["index","message","finish_reason"]}}}})",
     true},
    {"Completion", "application/json",
     R"({"type":"object","required":["id","object","created","model","choices","usage"],)"
     R"("properties":{"object":{"const":"text_completion"},"choices":{"type":"array",)"
     R"("minItems":1,"items":{"type":"object","required":["index","text","finish_reason"]}}}})",
     true},
    {"ChatOrCompletion", "application/json",
     R"({"type":"object","required":["id","object","created","model","choices","usage"]})", true},
    {"Response", "application/json",
     R"({"type":"object","required":["id","object","created_at","model","output","status"],)"
     R"("properties":{"object":{"const":"response"},"output":{"type":"array"},"status":{"enum":)"
     R"(["queued","in_progress","completed","incomplete","cancelled","failed"]}}})",
     true},
    {"DeletedResponse", "application/json",
     R"({"type":"object","required":["id","object","deleted"]})"},
    {"Message", "application/json",
     R"({"type":"object","required":["id","type","role","content","model","stop_reason","usage"],)"
     R"("properties":{"type":{"const":"message"},"content":{"type":"array","minItems":1}}})",
     true},
    {"TokenCount", "application/json",
     R"({"type":"object","required":["input_tokens"],)"
     R"("properties":{"input_tokens":{"type":"integer","minimum":0}}})"},
    {"EmbeddingList", "application/json",
     R"({"type":"object","required":["id","object","created","model","data","usage"],)"
     R"("properties":{"object":{"const":"list"},"data":{"type":"array","minItems":1,"items":)"
     R"({"type":"object","required":["index","object","embedding"]}}}})"},
    {"CohereEmbeddings", "application/json",
     R"({"type":"object","required":["id","embeddings","texts","meta","response_type"]})"},
    {"PooledList", "application/json",
     R"({"type":"object","required":["id","object","created","model","data","usage"]})"},
    {"ClassificationList", "application/json",
     R"({"type":"object","required":["id","object","created","model","data","usage"],)"
     R"("properties":{"data":{"type":"array","minItems":1,"items":{"type":"object",)"
     R"("required":["index","label","probs","num_classes"]}}}})"},
    {"ScoreList", "application/json",
     R"({"type":"object","required":["id","object","created","model","data","usage"],)"
     R"("properties":{"data":{"type":"array","minItems":1,"items":{"type":"object",)"
     R"("required":["index","object","score"]}}}})"},
    {"Decisions", "application/json",
     R"({"type":"object","required":["model","answers","usage"],"properties":{"answers":)"
     R"({"type":"array","minItems":1,"items":{"type":"object","required":["type","name"]}}}})"},
    {"StructuredDecision", "application/json",
     R"({"type":"object","required":["id","object","created","model","answers","usage",)"
     R"("diagnostics","joint"],"properties":{"object":{"const":"structured_decision"},)"
     R"("answers":{"type":"object","minProperties":1,"additionalProperties":{"type":"object",)"
     R"("required":["type","probabilities","confidence"]}}}})"},
    {"RerankResults", "application/json",
     R"({"type":"object","required":["id","model","usage","results"],"properties":{"results":)"
     R"({"type":"array","items":{"type":"object",)"
     R"("required":["index","document","relevance_score"]}}}})"},
    {"GeneratedTokens", "application/json",
     R"({"type":"object","required":["request_id","choices"],"properties":{"choices":)"
     R"({"type":"array","minItems":1,"items":{"type":"object","required":["index","token_ids"]}}}})",
     true},
    {"RenderedRequest", "application/json",
     R"({"type":"object","required":["request_id","token_ids","sampling_params"]})"},
    {"RenderedRequests", "application/json",
     R"({"type":"array","minItems":1,"items":)"
     R"({"type":"object","required":["request_id","token_ids","sampling_params"]}})"},
    {"ModelList", "application/json",
     R"({"type":"object","required":["object","data"],"properties":{"object":{"const":"list"},)"
     R"("data":{"type":"array","minItems":1,"items":{"type":"object","required":["id"]}}}})"},
    {"ModelCard", "application/json",
     R"({"type":"object","required":["id","object","created","owned_by","max_model_len"]})"},
    {"Tokenized", "application/json",
     R"({"type":"object","required":["count","max_model_len","tokens","token_strs"]})"},
    {"Detokenized", "application/json",
     R"({"type":"object","required":["prompt"],"properties":{"prompt":{"type":"string"}}})"},
    {"Version", "application/json", R"({"type":"object","required":["version"]})"},
    {"Load", "application/json",
     R"({"type":"object","required":["server_load"],"properties":)"
     R"({"server_load":{"type":"integer","minimum":0}}})"},
    {"Object", "application/json", R"({"type":"object"})"},
    {"PlainText", "text/plain", R"({"type":"string"})"},
    {"DerenderedChat", "application/json",
     R"({"anyOf":[{"$ref":"#/components/schemas/ChatCompletion"},{"$ref":"#/components/schemas/DerenderedEvent"}]})"},
    {"DerenderedCompletion", "application/json",
     R"({"anyOf":[{"$ref":"#/components/schemas/Completion"},{"$ref":"#/components/schemas/DerenderedEvent"}]})"},
    {"DerenderedEvent", "application/json",
     R"({"type":"object","required":["chunk","stream_state"],"properties":{"chunk":{"type":"object"},)"
     R"("stream_state":{"type":"object"}}})"},
    {"Page", "text/html", R"({"type":"string"})"},
    {"Nothing", "", "{}"},
};

constexpr std::string_view kPoolingInvocation =
    R"({"anyOf":[{"$ref":"#/components/schemas/PoolingRequest"},)"
    R"({"$ref":"#/components/schemas/ScoreRequest"},{"$ref":"#/components/schemas/RerankRequest"}]})";
constexpr std::string_view kError =
    R"({"type":"object","required":["error"],"properties":{"error":{"type":"object",)"
    R"("required":["message","type","param","code"],"properties":{"message":{"type":"string"},)"
    R"("type":{"type":"string"},"param":{"type":["string","null"]},"code":{"type":"integer"}}}}})";
constexpr std::string_view kAnthropicError =
    R"({"type":"object","required":["type","error"],"properties":{"type":{"const":"error"},)"
    R"("error":{"type":"object","required":["type","message"]}}})";
constexpr std::string_view kUnauthorized =
    R"({"type":"object","required":["error"],"properties":{"error":{"type":"string"}}})";

// Inputs are one of two fields.
BodySchema InputsSchema() {
  return BodySchema({}).Add(kPoolingFields).Add(kConversationFields).Add(kRenderingFields);
}

}  // namespace

const ResponseSchema& FindResponseSchema(std::string_view name) {
  const auto row = std::find_if(std::begin(kResponseSchemas), std::end(kResponseSchemas),
                                [name](const ResponseSchema& each) { return each.name == name; });
  CHECK(row != std::end(kResponseSchemas)) << "no response schema " << std::string(name);
  return *row;
}

Json ComponentSchemas() {
  Json schemas = {
      {"ChatCompletionRequest", ChatSchema()},
      {"CompletionRequest", CompletionSchema()},
      {"BatchRequest", BatchSchema()},
      {"ResponsesRequest", ResponsesSchema()},
      {"MessagesRequest", MessagesSchema(false)},
      {"CountTokensRequest", MessagesSchema(true)},
      {"GenerateRequest", GenerateSchema()},
      {"GenerativeScoringRequest",
       BodySchema({"query", "items", "label_token_ids"}).Add(kGenerativeScoringFields).ToJson()},
      {"DecisionRequest", BodySchema({"input", "questions"}).Add(kDecisionFields).ToJson()},
      {"SystemOneRequest", BodySchema({"state", "questions"}).Add(kSystemOneFields).ToJson()},
      {"EmbeddingRequest", InputsSchema().Add(kEncodingFields).Add(kUnbuiltFields).ToJson()},
      {"PoolingRequest",
       InputsSchema().Add(kEncodingFields).Add(kTaskFields).Add(kUnbuiltFields).ToJson()},
      {"ClassificationRequest", InputsSchema().Add(kUnbuiltFields).ToJson()},
      {"ScoreRequest",
       BodySchema({}).Add(kPoolingFields).Add(kScoreFields).Add(kPairFields).ToJson()},
      {"RerankRequest", BodySchema({"query", "documents"})
                            .Add(kPoolingFields)
                            .Add(kRerankFields)
                            .Add(kPairFields)
                            .ToJson()},
      {"CohereEmbedRequest", BodySchema({}).Add(kCohereEmbedFields).ToJson()},
      {"InvocationRequest", {{"anyOf", Json::array({ChatSchema(), CompletionSchema()})}}},
      {"PoolingInvocationRequest", Json::parse(kPoolingInvocation)},
      {"TokenizeRequest", TokenizeSchema()},
      {"DetokenizeRequest", BodySchema({"tokens"}).Add(kDetokenizeFields).ToJson()},
      {"DerenderChatRequest",
       BodySchema({}).Add(kDerenderEventFields).Add(kDerenderChatFields).ToJson()},
      {"DerenderCompletionRequest",
       BodySchema({}).Add(kDerenderEventFields).Add(kDerenderCompletionFields).ToJson()},
      {"LoadAdapterRequest",
       BodySchema({"lora_name", "lora_path"}).Add(kLoadAdapterFields).ToJson()},
      {"UnloadAdapterRequest", BodySchema({"lora_name"}).Add(kUnloadAdapterFields).ToJson()},
      {"AbortRequest", Json::parse(kAbortRequest)},
      {"AbortNamedRequest", Json::parse(kAbortNamedRequest)},
      {"LaxInteger", Json::parse(kLaxInteger)},
      {"LaxNumber", Json::parse(kLaxNumber)},
      {"LaxBoolean", Json::parse(kLaxBoolean)},
      {"Error", Json::parse(kError)},
      {"AnthropicError", Json::parse(kAnthropicError)},
      {"Unauthorized", Json::parse(kUnauthorized)}};
  for (const ResponseSchema& each : kResponseSchemas) {
    if (!each.media_type.empty()) schemas[std::string(each.name)] = Json::parse(each.schema);
  }
  return schemas;
}

}  // namespace tandem
