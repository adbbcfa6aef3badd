#include "frontend/openai/decision_request.h"

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "common/shorten.h"
#include "frontend/openai/parse_fields.h"
#include "frontend/openai/refuse.h"

namespace tandem {
namespace {

using Keys = std::initializer_list<std::string_view>;

Status WrongForm(const std::string& place, std::string message) {
  return InvalidArgumentError(std::move(message)).WithParam(place);
}

Status CheckIsObject(const Json& value, const std::string& place) {
  if (value.is_object()) return OkStatus();
  return WrongForm(place, "must be an object, got " + std::string(JsonTypeName(value)));
}

Status CheckKeys(const Json& object, const std::string& place, Keys known) {
  for (const auto& [key, value] : object.items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    std::string names;
    for (const std::string_view name : known) names.append(names.empty() ? "" : ", ").append(name);
    return WrongForm(place + "." + Shorten(key), "is not a field here; there are " + names);
  }
  return OkStatus();
}

// The text at the key; nullopt: there is none.
StatusOr<std::optional<std::string>> OptionalText(const Json& object, const std::string& place,
                                                  const char* key) {
  const auto it = object.find(key);
  if (it == object.end()) return std::optional<std::string>();
  if (it->is_string()) return std::optional(it->get<std::string>());
  return WrongForm(place + "." + key, "must be a string, got " + std::string(JsonTypeName(*it)));
}

StatusOr<std::string> RequiredText(const Json& object, const std::string& place, const char* key) {
  ASSIGN_OR_RETURN(std::optional<std::string> text, OptionalText(object, place, key));
  if (text) return *std::move(text);
  return WrongForm(place + "." + key, "is required");
}

Status CheckSize(const std::string& place, const std::string& what, size_t size, size_t least,
                 size_t most) {
  if (size >= least && size <= most) return OkStatus();
  return WrongForm(place, "must have " + std::to_string(least) + " to " + std::to_string(most) +
                              " " + what + ", got " + std::to_string(size));
}

Status CheckNamesDiffer(const std::string& place, const std::vector<DecisionOption>& options) {
  std::set<std::string_view> names;
  for (const DecisionOption& option : options) {
    if (names.insert(option.name).second) continue;
    return WrongForm(place, "must differ from each other, got " + Shorten(option.name) + " twice");
  }
  return OkStatus();
}

// ---- /v1/decisions ----

StatusOr<std::string> MessageText(const Json& message, const std::string& place) {
  RETURN_IF_ERROR(CheckIsObject(message, place));
  RETURN_IF_ERROR(CheckKeys(message, place, {"role", "content", "type"}));
  if (message.value("role", Json()) != "user")
    return WrongForm(place + ".role", "must be \"user\"");
  if (message.value("type", Json("message")) != "message") {
    return WrongForm(place + ".type", "must be \"message\"");
  }
  const std::string content_place = place + ".content";
  const Json* const content = Find(message, "content");
  if (content == nullptr) return WrongForm(content_place, "is required");
  if (content->is_string()) return content->get<std::string>();
  if (!content->is_array()) {
    return WrongForm(content_place, "must be a string or a list of parts, got " +
                                        std::string(JsonTypeName(*content)));
  }
  std::string text;
  for (size_t i = 0; i < content->size(); ++i) {
    const Json& part = (*content)[i];
    const std::string part_place = content_place + "." + std::to_string(i);
    RETURN_IF_ERROR(CheckIsObject(part, part_place));
    if (part.value("type", Json()) != "input_text") {
      return WrongForm(part_place + ".type",
                       "must be \"input_text\": decisions are made about texts only");
    }
    RETURN_IF_ERROR(CheckKeys(part, part_place, {"type", "text"}));
    ASSIGN_OR_RETURN(const std::string part_text, RequiredText(part, part_place, "text"));
    text.append(i == 0 ? "" : "\n").append(part_text);
  }
  return text;
}

// The options of a list whose entries name themselves by this key.
StatusOr<std::vector<DecisionOption>> ListedOptions(const Json& question, const std::string& where,
                                                    const char* list, const char* key,
                                                    size_t most) {
  const std::string place = where + "." + list;
  const Json* const entries = Find(question, list);
  if (entries == nullptr) return WrongForm(place, "is required");
  if (!entries->is_array()) {
    return WrongForm(place,
                     "must be a list of objects, got " + std::string(JsonTypeName(*entries)));
  }
  RETURN_IF_ERROR(CheckSize(place, "entries", entries->size(), 2, most));
  std::vector<DecisionOption> options;
  for (size_t i = 0; i < entries->size(); ++i) {
    const Json& entry = (*entries)[i];
    const std::string entry_place = place + "." + std::to_string(i);
    RETURN_IF_ERROR(CheckIsObject(entry, entry_place));
    RETURN_IF_ERROR(CheckKeys(entry, entry_place, {key, "description"}));
    ASSIGN_OR_RETURN(std::optional<std::string> description,
                     OptionalText(entry, entry_place, "description"));
    options.push_back({{}, std::move(description).value_or("")});
  }
  return options;
}

// A value stays JSON text, which tells true from "true".
StatusOr<std::vector<DecisionOption>> Choices(const Json& question, const std::string& where) {
  ASSIGN_OR_RETURN(std::vector<DecisionOption> options,
                   ListedOptions(question, where, "choices", "value", kMaxLetters));
  for (size_t i = 0; i < options.size(); ++i) {
    const Json* const value = Find(question["choices"][i], "value");
    if (value == nullptr || (!value->is_string() && !value->is_boolean())) {
      return WrongForm(where + ".choices." + std::to_string(i) + ".value",
                       "must be a string or a boolean");
    }
    options[i].name = DumpJson(*value);
  }
  RETURN_IF_ERROR(CheckNamesDiffer(where + ".choices", options));
  return options;
}

StatusOr<std::vector<DecisionOption>> Levels(const Json& question, const std::string& where) {
  ASSIGN_OR_RETURN(std::vector<DecisionOption> options,
                   ListedOptions(question, where, "levels", "label", kMaxScoreLevels));
  for (size_t i = 0; i < options.size(); ++i) {
    ASSIGN_OR_RETURN(
        options[i].name,
        RequiredText(question["levels"][i], where + ".levels." + std::to_string(i), "label"));
  }
  return options;
}

StatusOr<DecisionQuestion> ReadDecisionQuestion(const Json& value, const std::string& place) {
  RETURN_IF_ERROR(CheckIsObject(value, place));
  DecisionQuestion question;
  const Json type = value.value("type", Json());
  if (type == "predicate") {
    RETURN_IF_ERROR(CheckKeys(value, place, {"type", "instructions", "name"}));
    question.options = {{"false", ""}, {"true", ""}};
  } else if (type == "choice") {
    RETURN_IF_ERROR(CheckKeys(value, place, {"type", "instructions", "name", "choices"}));
    question.kind = DecisionKind::kChoice;
    ASSIGN_OR_RETURN(question.options, Choices(value, place));
  } else if (type == "score") {
    RETURN_IF_ERROR(CheckKeys(value, place, {"type", "instructions", "name", "levels"}));
    question.kind = DecisionKind::kScore;
    ASSIGN_OR_RETURN(question.options, Levels(value, place));
  } else {
    return WrongForm(place + ".type", "must be one of predicate, choice, score");
  }
  ASSIGN_OR_RETURN(question.instructions, RequiredText(value, place, "instructions"));
  ASSIGN_OR_RETURN(question.name, OptionalText(value, place, "name"));
  return question;
}

// ---- /v1/systemone ----

// An option's name or description; numbers are taken as they are written.
StatusOr<std::string> CriterionText(const Json& value, const std::string& place) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number()) return DumpJson(value);
  return WrongForm(place, "must be a string or a number, got " + std::string(JsonTypeName(value)));
}

StatusOr<std::string> CriterionAt(const Json& criteria, const std::string& place, const char* key) {
  const Json* const value = Find(criteria, key);
  if (value == nullptr) return std::string();
  return CriterionText(*value, place + "." + key);
}

StatusOr<std::vector<DecisionOption>> NamedOptions(const Json& criteria, const std::string& place) {
  if (!criteria.is_object()) {
    return WrongForm(place, "must be an object of option names, each with a description or null");
  }
  RETURN_IF_ERROR(CheckSize(place, "options", criteria.size(), 1, kMaxLetters));
  std::vector<DecisionOption> options;
  for (const auto& [name, value] : criteria.items()) {
    DecisionOption& option = options.emplace_back();
    option.name = name;
    if (value.is_null()) continue;
    ASSIGN_OR_RETURN(option.description, CriterionText(value, place + "." + Shorten(name)));
  }
  return options;
}

StatusOr<std::vector<DecisionOption>> YesAndNo(const Json& criteria, const std::string& place) {
  std::vector<DecisionOption> options = {{"yes", ""}, {"no", ""}};
  if (criteria.is_null()) return options;
  RETURN_IF_ERROR(CheckIsObject(criteria, place));
  RETURN_IF_ERROR(CheckKeys(criteria, place, {"true", "false"}));
  ASSIGN_OR_RETURN(options[0].description, CriterionAt(criteria, place, "true"));
  ASSIGN_OR_RETURN(options[1].description, CriterionAt(criteria, place, "false"));
  return options;
}

StatusOr<std::vector<DecisionOption>> OrderedLevels(const Json& criteria,
                                                    const std::string& place) {
  if (!criteria.is_array()) return WrongForm(place, "must be a list of levels, the lowest first");
  RETURN_IF_ERROR(CheckSize(place, "levels", criteria.size(), 2, kMaxScoreLevels));
  std::vector<DecisionOption> options;
  for (size_t i = 0; i < criteria.size(); ++i) {
    ASSIGN_OR_RETURN(options.emplace_back().name,
                     CriterionText(criteria[i], place + "." + std::to_string(i)));
  }
  RETURN_IF_ERROR(CheckNamesDiffer(place, options));
  return options;
}

StatusOr<DecisionQuestion> ReadSystemOneQuestion(const std::string& id, const Json& value,
                                                 const std::string& place) {
  RETURN_IF_ERROR(CheckIsObject(value, place));
  RETURN_IF_ERROR(CheckKeys(value, place, {"type", "instructions", "criteria"}));
  DecisionQuestion question;
  question.name = id;
  const Json type = value.value("type", Json());
  const Json criteria = value.value("criteria", Json());
  const std::string criteria_place = place + ".criteria";
  if (type == "noul") {
    question.labels = DecisionLabels::kYesNo;
    ASSIGN_OR_RETURN(question.options, YesAndNo(criteria, criteria_place));
  } else if (type == "choice") {
    question.kind = DecisionKind::kChoice;
    ASSIGN_OR_RETURN(question.options, NamedOptions(criteria, criteria_place));
  } else if (type == "score") {
    question.kind = DecisionKind::kScore;
    question.labels = DecisionLabels::kDigits;
    ASSIGN_OR_RETURN(question.options, OrderedLevels(criteria, criteria_place));
  } else {
    return WrongForm(place + ".type", "must be one of choice, noul, score");
  }
  if (Find(value, "instructions") != nullptr) {
    ASSIGN_OR_RETURN(question.instructions, RequiredText(value, place, "instructions"));
  }
  return question;
}

// ---- both ----

template <size_t n>
StatusOr<DecisionRequest> ReadBody(Json body, const ApiField<DecisionRequest> (&fields)[n],
                                   Keys required) {
  if (!body.is_object()) return NotAnObject(body);
  DecisionRequest request;
  BodyErrors errors;
  for (const std::string_view name : required) {
    if (IsAbsent(body, name)) errors.AddForm("body." + std::string(name), "is required");
  }
  for (const auto& [name, value] : body.items()) {
    const bool is_known = std::any_of(std::begin(fields), std::end(fields),
                                      [&key = name](const auto& row) { return row.name == key; });
    if (!is_known) errors.AddForm("body." + Shorten(name), "is not a field of this endpoint");
  }
  ParseFields<DecisionRequest>(body, fields, &request, &errors);
  RETURN_IF_ERROR(errors.Result());
  RETURN_IF_ERROR(CheckGenerationRequest(request));
  return request;
}

}  // namespace

Status ParseDecisionInput(Json& value, DecisionRequest* out) {
  if (value.is_array()) {
    std::string text;
    for (size_t i = 0; i < value.size(); ++i) {
      ASSIGN_OR_RETURN(const std::string message,
                       MessageText(value[i], "body.input." + std::to_string(i)));
      text.append(i == 0 ? "" : "\n\n").append(message);
    }
    value = std::move(text);
  }
  if (!value.is_string()) return WrongType("", "a string or a list of messages", value);
  out->state = JsonDocument(std::move(value));
  return OkStatus();
}

Status ParseDecisionQuestions(Json& value, DecisionRequest* out) {
  if (!value.is_array()) return WrongType("", "a list of questions", value);
  RETURN_IF_ERROR(CheckSize("body.questions", "questions", value.size(), 1, kMaxDecisionQuestions));
  for (size_t i = 0; i < value.size(); ++i) {
    ASSIGN_OR_RETURN(out->questions.emplace_back(),
                     ReadDecisionQuestion(value[i], "body.questions." + std::to_string(i)));
  }
  return OkStatus();
}

Status ParseSystemOneState(Json& value, DecisionRequest* out) {
  out->state = JsonDocument(std::move(value));
  return OkStatus();
}

Status ParseSystemOneQuestions(Json& value, DecisionRequest* out) {
  if (!value.is_object()) return WrongType("", "an object of questions by their ids", value);
  RETURN_IF_ERROR(CheckSize("body.questions", "questions", value.size(), 1, kMaxDecisionQuestions));
  for (const auto& [id, question] : value.items()) {
    if (id.empty()) return WrongForm("body.questions", "must not have an empty id");
    ASSIGN_OR_RETURN(out->questions.emplace_back(),
                     ReadSystemOneQuestion(id, question, "body.questions." + Shorten(id)));
  }
  return OkStatus();
}

Status ParseDecisionKwargs(Json& value, DecisionRequest* out) {
  if (!value.is_object()) return WrongType("", "an object", value);
  const Json* const thinking = Find(value, "enable_thinking");
  if (thinking != nullptr && *thinking != false) {
    return RefuseByName(
        "chat_template_kwargs",
        "enable_thinking must be false: a decision is the first token of the reply");
  }
  for (const char* name : {"messages", "chat_template"}) {
    if (value.contains(name)) {
      return InvalidArgumentError("must not have " + std::string(name));
    }
  }
  out->chat_template_kwargs = JsonDocument(std::move(value));
  return OkStatus();
}

StatusOr<DecisionRequest> ParseDecisionRequest(Json body) {
  return ReadBody(std::move(body), kDecisionFields, {"input", "questions"});
}

StatusOr<DecisionRequest> ParseSystemOneRequest(Json body) {
  return ReadBody(std::move(body), kSystemOneFields, {"state", "questions"});
}

}  // namespace tandem
