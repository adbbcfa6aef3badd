#pragma once

// The bodies of the routes that make vectors and scores of texts. Fields that all of them have
// come first; each route adds its own rows. A body is read as a completion's prompt where it has
// inputs of the same forms.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "frontend/openai/chat_request.h"
#include "frontend/openai/completion_request.h"

namespace tandem {

// How numbers are written into a response.
enum class EmbeddingEncoding { kFloat, kBase64, kBytes, kBytesOnly };
enum class EmbedType { kFloat32, kFloat16, kBfloat16, kFloat8E4m3, kFloat8E5m2 };

struct PoolingRequest : CompletionRequest {
  EmbeddingEncoding encoding = EmbeddingEncoding::kFloat;
  EmbedType embed_type = EmbedType::kFloat32;
  bool big_endian = false;
  std::optional<int64_t> dimensions;
  std::optional<bool> use_activation;
  std::optional<std::string> task;  // of /pooling
  // In place of a prompt: each becomes one by the template. `chat` has what they share.
  std::vector<JsonDocument> conversations;
  ChatRequest chat;
};

// Of /score and /rerank: each query with its document, one query with all of them.
struct ScoreRequest : PoolingRequest {
  std::vector<std::string> queries, documents;
  int64_t top_n = 0;                 // 0: all
  int64_t max_tokens_per_query = 0;  // 0: all
  int64_t max_tokens_per_doc = 0;
  std::optional<std::string> instruction;
  JsonDocument chat_template_kwargs;  // object or null
};

// Of Cohere's /v2/embed.
struct CohereEmbedRequest : PoolingRequest {
  std::optional<std::string> input_type;  // names a prompt of the model
  bool wants_float = true, wants_binary = false, wants_ubinary = false, wants_base64 = false;
};

Status ParsePoolingInput(Json& value, PoolingRequest* out);
Status ParseConversations(Json& value, PoolingRequest* out);  // one, or a list of them
Status ParseEncodingFormat(Json& value, PoolingRequest* out);
Status ParseEmbedDtype(Json& value, PoolingRequest* out);
Status ParseEndianness(Json& value, PoolingRequest* out);
Status ParsePoolingSide(Json& value, PoolingRequest* out);
Status RefuseNormalize(Json& value, PoolingRequest* out);

inline constexpr ApiField<PoolingRequest> kPoolingFields[] = {
    {"model", &PoolingRequest::model, {}, "A served model name; absent: the first one."},
    {"input",
     &ParsePoolingInput,
     {},
     "A text, a list of texts, token ids, a list of such lists, or as messages.",
     field_schema::kPoolingInput},
    {"truncate_prompt_tokens",
     &PoolingRequest::truncate_prompt_tokens,
     {-1, kMaxTokenId},
     "Tokens of each input to keep; -1: as many as fit. Absent: a longer one is refused."},
    {"truncation_side",
     &ParsePoolingSide,
     {},
     "The side to cut: right (default; special tokens stay) or left.",
     R"({"enum":["left","right"]})"},
    {"add_special_tokens",
     &PoolingRequest::add_special_tokens,
     {},
     "Add those that the tokenizer adds; default true, of conversations false."},
    {"use_activation",
     &PoolingRequest::use_activation,
     {},
     "Vectors of length 1, scores as probabilities; default: as the model's files say."},
    {"priority", &PoolingRequest::priority, {}, "Lower runs first, under priority scheduling."},
    {"request_id", &PoolingRequest::request_id, {1, 128}, "Part of the response id."},
    {"cache_salt", &PoolingRequest::cache_salt, {1, 128}, "Separates cached prefixes."},
    {"user", Ignored{}, {}, "Accepted, without effect."},
    {"normalize", &RefuseNormalize, {}, "Gone: use_activation.", R"({"type":"null"})"},
    {"padding", Unsupported{"\"do_not_pad\""}, {}, "do_not_pad: inputs are never padded."},
    {"mm_processor_kwargs", Unsupported{}, {}, "Multimodal inputs."},
};

inline constexpr ApiField<PoolingRequest> kEncodingFields[] = {
    {"encoding_format",
     &ParseEncodingFormat,
     {},
     "float: numbers; base64: the bytes of each vector; bytes, bytes_only: all vectors as a body.",
     R"({"enum":["float","base64","bytes","bytes_only"]})"},
    {"embed_dtype",
     &ParseEmbedDtype,
     {},
     "What the vectors are rounded to: float32 (default), float16, bfloat16, fp8_e4m3 or fp8_e5m2.",
     R"({"enum":["float32","float16","bfloat16","fp8_e4m3","fp8_e5m2"]})"},
    {"endianness",
     &ParseEndianness,
     {},
     "Of bytes: native (default), little or big.",
     R"({"enum":["native","little","big"]})"},
    {"dimensions",
     &PoolingRequest::dimensions,
     {1, kMaxTokenId},
     "The first ones alone, of models trained for it."},
};

inline constexpr ApiField<PoolingRequest> kConversationFields[] = {
    {"messages",
     &ParseConversations,
     {},
     "A conversation, or a list of them, in place of input.",
     field_schema::kConversations},
};
// Of its rendering, as of a chat.
inline constexpr ApiField<ChatRequest> kRenderingFields[] = {
    {"add_generation_prompt",
     &ChatRequest::add_generation_prompt,
     {},
     "End conversations with the start of the assistant's turn; default false."},
    {"continue_final_message",
     &ChatRequest::continue_final_message,
     {},
     "Leave the last message open."},
    {"chat_template",
     &ChatRequest::chat_template,
     {},
     "A template in place of the model's; needs --trust-request-chat-template."},
    {"chat_template_kwargs",
     &ParseChatTemplateKwargs,
     {},
     "Variables for the template.",
     field_schema::kObject},
};

// Of other inputs than texts and tokens, and of vectors for each token.
inline constexpr ApiField<PoolingRequest> kUnbuiltFields[] = {
    {"media_io_kwargs", Unsupported{}, {}, "Of conversations with images."},
    {"data", Unsupported{}, {}, "Inputs of plugins."},
    {"late_chunking_params", Unsupported{}, {}, "Of models with a vector for each token."},
};

Status ParseScoreQueries(Json& value, ScoreRequest* out);
Status ParseScoreDocuments(Json& value, ScoreRequest* out);
Status ParseScoreKwargs(Json& value, ScoreRequest* out);

inline constexpr std::string_view kScoreTexts =
    R"({"anyOf":[{"type":"string"},{"type":"object"},{"type":"array","minItems":1,"items":)"
    R"({"anyOf":[{"type":"string"},{"type":"object"}]}}]})";

inline constexpr ApiField<ScoreRequest> kScoreFields[] = {
    {"queries", &ParseScoreQueries, {}, "A text, or a list of them.", kScoreTexts},
    {"data_1", &ParseScoreQueries, {}, "The same.", kScoreTexts},
    {"text_1", &ParseScoreQueries, {}, "The same.", kScoreTexts},
    {"documents", &ParseScoreDocuments, {}, "A text, or a list of them.", kScoreTexts},
    {"items", &ParseScoreDocuments, {}, "The same.", kScoreTexts},
    {"data_2", &ParseScoreDocuments, {}, "The same.", kScoreTexts},
    {"text_2", &ParseScoreDocuments, {}, "The same.", kScoreTexts},
};
inline constexpr ApiField<ScoreRequest> kRerankFields[] = {
    {"query", &ParseScoreQueries, {}, "The text that documents are compared with.", kScoreTexts},
    {"documents", &ParseScoreDocuments, {}, "A text, or a list of them.", kScoreTexts},
    {"top_n", &ScoreRequest::top_n, {0, kMaxTokenId}, "The best ones alone; 0: all."},
    {"return_documents", Ignored{}, {}, "They are returned in any case."},
};
inline constexpr ApiField<ScoreRequest> kPairFields[] = {
    {"max_tokens_per_query",
     &ScoreRequest::max_tokens_per_query,
     {0, kMaxTokenId},
     "Of each query; 0: all."},
    {"max_tokens_per_doc",
     &ScoreRequest::max_tokens_per_doc,
     {0, kMaxTokenId},
     "Of each document; 0: all."},
    {"instruction", &ScoreRequest::instruction, {}, "A variable of the template of scores."},
    {"chat_template_kwargs", &ParseScoreKwargs, {}, "More of them.", field_schema::kObject},
};

inline constexpr ApiField<PoolingRequest> kTaskFields[] = {
    {"task",
     &PoolingRequest::task,
     {},
     "embed, classify, token_embed or token_classify: the model's, which is the default."},
};

Status ParseCohereTexts(Json& value, CohereEmbedRequest* out);
Status ParseCohereInputs(Json& value, CohereEmbedRequest* out);
Status ParseEmbeddingTypes(Json& value, CohereEmbedRequest* out);
Status ParseTruncate(Json& value, CohereEmbedRequest* out);

inline constexpr ApiField<CohereEmbedRequest> kCohereEmbedFields[] = {
    {"model", &CohereEmbedRequest::model, {}, "A served model name; absent: the first one."},
    {"texts", &ParseCohereTexts, {}, "The inputs.", field_schema::kTexts},
    {"inputs",
     &ParseCohereInputs,
     {},
     "The inputs as lists of parts, of which those of type text are built.",
     field_schema::kObjects},
    {"images", Unsupported{}, {}, "Multimodal inputs."},
    {"input_type",
     &CohereEmbedRequest::input_type,
     {1, 64},
     "The name of a prompt of the model; search_query and search_document: query and document."},
    {"embedding_types",
     &ParseEmbeddingTypes,
     {},
     "float (default), binary, ubinary, base64.",
     R"({"type":"array","items":{"enum":["float","binary","ubinary","base64"]}})"},
    {"output_dimension",
     &CohereEmbedRequest::dimensions,
     {1, kMaxTokenId},
     "The first ones alone, of models trained for it."},
    {"truncate",
     &ParseTruncate,
     {},
     "What a text that is too long loses: its END (default), its START, or NONE: it is refused.",
     R"({"enum":["NONE","START","END"]})"},
    {"max_tokens",
     &CohereEmbedRequest::truncate_prompt_tokens,
     {1, kMaxTokenId},
     "Tokens of each text to keep."},
    {"priority", &CohereEmbedRequest::priority, {}, "Lower runs first, under priority scheduling."},
};

StatusOr<PoolingRequest> ParseEmbeddingRequest(Json body);  // also of /pooling
StatusOr<PoolingRequest> ParseClassifyRequest(Json body);
StatusOr<ScoreRequest> ParseScoreRequest(Json body);
StatusOr<ScoreRequest> ParseRerankRequest(Json body);
StatusOr<CohereEmbedRequest> ParseCohereEmbedRequest(Json body);

}  // namespace tandem
