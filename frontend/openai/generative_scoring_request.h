#pragma once

// The body of POST /generative_scoring: struct and field table.

#include <cstdint>
#include <vector>

#include "frontend/openai/completion_request.h"

namespace tandem {

struct GenerativeScoringRequest : GenerationRequest {
  // Each a text or token ids.
  Prompts query;  // one
  Prompts items;
  std::vector<int64_t> label_token_ids;
  bool apply_softmax = true;  // over the labels alone, else over the whole vocabulary
  bool item_first = false;
};

Status ParseScoredQuery(Json& value, GenerativeScoringRequest* out);
Status ParseScoredItems(Json& value, GenerativeScoringRequest* out);

inline constexpr ApiField<GenerativeScoringRequest> kGenerativeScoringFields[] = {
    {"model", &GenerativeScoringRequest::model, {}, "A served model name; absent: the first one."},
    {"query",
     &ParseScoredQuery,
     {},
     "A text or token ids, the same for all items.",
     R"({"anyOf":[{"type":"string"},{"type":"array","items":{"type":"integer","minimum":0}}]})"},
    {"items",
     &ParseScoredItems,
     {},
     "Texts, or lists of token ids.",
     R"({"anyOf":[{"type":"array","minItems":1,"items":{"type":"string"}},)"
     R"({"type":"array","minItems":1,"items":)"
     R"({"type":"array","items":{"type":"integer","minimum":0}}}]})"},
    {"label_token_ids",
     &GenerativeScoringRequest::label_token_ids,
     {0, kMaxTokenId},
     "The tokens that may come next; the score is the probability of the first one."},
    {"apply_softmax",
     &GenerativeScoringRequest::apply_softmax,
     {},
     "Probabilities among the labels alone (default), or in the whole vocabulary."},
    {"item_first", &GenerativeScoringRequest::item_first, {}, "The item stands before the query."},
    {"add_special_tokens",
     &GenerativeScoringRequest::add_special_tokens,
     {},
     "Add to the query those that the tokenizer adds; default true."},
    {"cache_salt", &GenerativeScoringRequest::cache_salt, {1, 128}, "Separates cached prefixes."},
    {"priority",
     &GenerativeScoringRequest::priority,
     {},
     "Lower runs first, under priority scheduling."},
    {"request_id", &GenerativeScoringRequest::request_id, {1, 128}, "Part of the response id."},
};

StatusOr<GenerativeScoringRequest> ParseGenerativeScoringRequest(Json body);

}  // namespace tandem
