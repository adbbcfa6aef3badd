#pragma once

// The bodies of POST /v1/decisions and of POST /v1/systemone: a text, or JSON, and questions about
// it, each with the options between which the model decides. Structs and field tables.
// A field without a row is refused, in questions as well: it would change what is asked.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "frontend/openai/generation_request.h"

namespace tandem {

enum class DecisionKind {
  kPredicate,  // two options
  kChoice,     // any options
  kScore,      // the levels of a scale, from the lowest
};

// What stands for the options in the prompt and in the model's reply.
enum class DecisionLabels { kLetters, kYesNo, kDigits };

struct DecisionOption {
  std::string name;         // as the model reads it
  std::string description;  // may be empty
};

struct DecisionQuestion {
  DecisionKind kind = DecisionKind::kPredicate;
  DecisionLabels labels = DecisionLabels::kLetters;
  std::optional<std::string> name;  // of /v1/systemone: its key
  std::string instructions;
  std::vector<DecisionOption> options;
};

struct DecisionRequest : GenerationRequest {
  JsonDocument state;                       // what the questions are about; a text stands as it is
  std::optional<std::string> instructions;  // the system's message
  std::vector<DecisionQuestion> questions;
  JsonDocument chat_template_kwargs;  // object or null
  std::optional<std::string> safety_identifier;
};

inline constexpr size_t kMaxDecisionQuestions = 64;
inline constexpr size_t kMaxLetters = 26;      // options with a letter each
inline constexpr size_t kMaxScoreLevels = 10;  // with a digit each
inline constexpr double kMaxDecisionSaltBytes = 128;

Status ParseDecisionInput(Json& value, DecisionRequest* out);
Status ParseDecisionQuestions(Json& value, DecisionRequest* out);
Status ParseSystemOneState(Json& value, DecisionRequest* out);
Status ParseSystemOneQuestions(Json& value, DecisionRequest* out);
Status ParseDecisionKwargs(Json& value, DecisionRequest* out);

inline constexpr ApiField<DecisionRequest> kDecisionFields[] = {
    {"model", &DecisionRequest::model, {}, "A served model name; absent: the first one."},
    {"input",
     &ParseDecisionInput,
     {},
     "What the questions are about: a text, or messages of the user.",
     R"({"anyOf":[{"type":"string"},{"type":"array","items":{"type":"object",)"
     R"("required":["role","content"],"properties":{"role":{"const":"user"},)"
     R"("type":{"const":"message"},"content":{"anyOf":[{"type":"string"},{"type":"array",)"
     R"("items":{"type":"object","required":["type","text"],"properties":)"
     R"({"type":{"const":"input_text"},"text":{"type":"string"}}}}]}}}}]})"},
    {"questions",
     &ParseDecisionQuestions,
     {},
     "Predicates, choices and scores.",
     R"({"type":"array","minItems":1,"maxItems":64,"items":{"anyOf":[)"
     R"({"type":"object","required":["type","instructions"],"properties":)"
     R"({"type":{"const":"predicate"},"instructions":{"type":"string"},"name":{"type":"string"}}},)"
     R"({"type":"object","required":["type","instructions","choices"],"properties":)"
     R"({"type":{"const":"choice"},"instructions":{"type":"string"},"name":{"type":"string"},)"
     R"("choices":{"type":"array","minItems":2,"maxItems":26,"items":{"type":"object",)"
     R"("required":["value"],"properties":{"value":{"type":["string","boolean"]},)"
     R"("description":{"type":"string"}}}}}},)"
     R"({"type":"object","required":["type","instructions","levels"],"properties":)"
     R"({"type":{"const":"score"},"instructions":{"type":"string"},"name":{"type":"string"},)"
     R"("levels":{"type":"array","minItems":2,"maxItems":10,"items":{"type":"object",)"
     R"("required":["label"],"properties":{"label":{"type":"string"},)"
     R"("description":{"type":"string"}}}}}}]}})"},
    {"safety_identifier",
     &DecisionRequest::safety_identifier,
     {0, 128},
     "Who asks, for the client's own records; without effect."},
    {"joint", Unsupported{"false"}, {}, "Questions read together, by diffusion models only."},
    {"cache_salt",
     &DecisionRequest::cache_salt,
     {1, kMaxDecisionSaltBytes},
     "Separates cached prefixes."},
};

inline constexpr ApiField<DecisionRequest> kSystemOneFields[] = {
    {"model", &DecisionRequest::model, {}, "A served model name; absent: the first one."},
    {"state", &ParseSystemOneState, {}, "What the questions are about: a text, or JSON.", "{}"},
    {"questions",
     &ParseSystemOneQuestions,
     {},
     "Each by its id: the type noul, choice or score, instructions and criteria.",
     R"({"type":"object","minProperties":1,"maxProperties":64,"additionalProperties":)"
     R"({"type":"object","required":["type"],"properties":)"
     R"({"type":{"enum":["noul","choice","score"]},"instructions":{"type":["string","null"]},)"
     R"("criteria":{"anyOf":[{"type":"object"},{"type":"array","minItems":2,"maxItems":10},)"
     R"({"type":"null"}]}}}})"},
    {"instructions",
     &DecisionRequest::instructions,
     {},
     "A system's message before the questions."},
    {"images", Unsupported{"[]"}, {}, "Images that the questions are about."},
    {"audio", Unsupported{"[]"}, {}, "Sounds that the questions are about."},
    {"videos", Unsupported{"[]"}, {}, "Videos that the questions are about."},
    {"chat_template_kwargs",
     &ParseDecisionKwargs,
     {},
     "Variables for the template; thinking stays off.",
     field_schema::kObject},
    {"joint", Unsupported{"false"}, {}, "Questions read together, by diffusion models only."},
    {"cache_salt",
     &DecisionRequest::cache_salt,
     {1, kMaxDecisionSaltBytes},
     "Separates cached prefixes."},
    {"priority", &DecisionRequest::priority, {}, "Lower runs first, under priority scheduling."},
    {"request_id", &DecisionRequest::request_id, {1, 128}, "Part of the response id."},
};

StatusOr<DecisionRequest> ParseDecisionRequest(Json body);
StatusOr<DecisionRequest> ParseSystemOneRequest(Json body);

}  // namespace tandem
