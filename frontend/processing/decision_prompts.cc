// The prompts of decisions: a chat for each question, in which the state stands before it and its
// options have labels, of which the model's reply is one.

#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "frontend/jinja/value.h"
#include "frontend/openai/refuse.h"
#include "frontend/processing/input_processor.h"
#include "frontend/processing/own_distribution.h"

namespace tandem {
namespace {

constexpr std::string_view kLetters[kMaxLetters] = {"A", "B", "C", "D", "E", "F", "G", "H", "I",
                                                    "J", "K", "L", "M", "N", "O", "P", "Q", "R",
                                                    "S", "T", "U", "V", "W", "X", "Y", "Z"};
constexpr std::string_view kYesNo[] = {"yes", "no"};
constexpr std::string_view kDigits[kMaxScoreLevels] = {"0", "1", "2", "3", "4",
                                                       "5", "6", "7", "8", "9"};

// Of the question's options.
std::span<const std::string_view> LabelsOf(const DecisionQuestion& question) {
  const size_t num_options = question.options.size();
  switch (question.labels) {
    case DecisionLabels::kLetters:
      return std::span(kLetters).first(num_options);
    case DecisionLabels::kYesNo:
      return std::span(kYesNo).first(num_options);
    case DecisionLabels::kDigits:
      return std::span(kDigits).first(num_options);
  }
  return {};
}

const char* ReplyRule(DecisionLabels labels) {
  switch (labels) {
    case DecisionLabels::kLetters:
      return "Answer with the letter of one option only.";
    case DecisionLabels::kYesNo:
      return "Answer with yes or no only.";
    case DecisionLabels::kDigits:
      return "Answer with the number of one level only.";
  }
  return "";
}

// As vLLM words it.
std::string QuestionText(const DecisionQuestion& question) {
  std::string text;
  if (!question.instructions.empty()) text = "Question: " + question.instructions + "\n";
  const std::span<const std::string_view> labels = LabelsOf(question);
  for (size_t i = 0; i < labels.size(); ++i) {
    const DecisionOption& option = question.options[i];
    text += labels[i];
    const bool has_name = question.labels != DecisionLabels::kYesNo;
    if (has_name) text += ": " + option.name;
    if (!option.description.empty()) text += (has_name ? " - " : ": ") + option.description;
    text += "\n";
  }
  return text + ReplyRule(question.labels);
}

StatusOr<std::string> StateText(const Json& state) {
  if (state.is_string()) return state.get<std::string>();
  jinja::Heap heap(std::numeric_limits<int64_t>::max());  // the body's limits hold
  return jinja::ToJson(heap.FromJson(state), {});
}

// The ids after the last added token: the start of a reply is encoded together with these alone.
std::vector<TokenId> TailOf(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  const auto last = std::find_if(ids.rbegin(), ids.rend(),
                                 [&](const TokenId id) { return tokenizer.IsAdded(id); });
  return {last.base(), ids.end()};
}

bool EndsWith(const std::vector<TokenId>& ids, const std::vector<TokenId>& tail) {
  return ids.size() >= tail.size() && std::equal(tail.rbegin(), tail.rend(), ids.rbegin());
}

Status CannotDecide(const std::string& why) {
  return UnimplementedError("the model does not support decisions: " + why);
}

// Adds to ids, of the first labels, the tokens that the others are, as the first one of a reply
// after the tail.
Status AddLabelIds(const Tokenizer& tokenizer, const std::vector<TokenId>& tail,
                   std::span<const std::string_view> labels, std::vector<int64_t>* ids) {
  const std::string text = tokenizer.Decode(tail, /*skip_special_tokens=*/false);
  for (size_t i = ids->size(); i < labels.size(); ++i) {
    const std::string label(labels[i]);
    ASSIGN_OR_RETURN(const std::vector<TokenId> reply,
                     tokenizer.Encode(text + label, /*add_special_tokens=*/false));
    const bool is_one = reply.size() == tail.size() + 1 &&
                        std::equal(tail.begin(), tail.end(), reply.begin()) &&
                        std::count(ids->begin(), ids->end(), reply.back()) == 0;
    if (!is_one) {
      return CannotDecide("the reply \"" + label +
                          "\" is not one token of its own after its chat prompt");
    }
    ids->push_back(reply.back());
  }
  return OkStatus();
}

}  // namespace

StatusOr<std::vector<TokenId>> InputProcessor::DecisionChat(const DecisionRequest& request,
                                                            std::string text,
                                                            int64_t max_model_len) const {
  Json messages = Json::array();
  if (request.instructions && !request.instructions->empty()) {
    messages.push_back({{"role", "system"}, {"content", *request.instructions}});
  }
  messages.push_back({{"role", "user"}, {"content", std::move(text)}});
  Json kwargs = {{"enable_thinking", false}};
  if (!request.chat_template_kwargs.is_null()) kwargs.update(*request.chat_template_kwargs);
  ChatRequest chat;
  chat.messages = JsonDocument(std::move(messages));
  chat.chat_template_kwargs = JsonDocument(std::move(kwargs));
  ASSIGN_OR_RETURN(const std::string rendered, RenderChat(chat));
  return Tokenize(request, rendered, /*add_special_tokens=*/false, max_model_len);
}

StatusOr<ProcessedRequest> InputProcessor::Process(DecisionRequest request,
                                                   const RequestContext& context) const {
  if (!chat_template_) return CannotDecide("it has no chat template");
  const auto num_questions = static_cast<int64_t>(request.questions.size());
  if (num_questions > config_.max_completion_prompts) {
    return Refuse("questions", "questions has " + std::to_string(num_questions) +
                                   " entries, at most " +
                                   std::to_string(config_.max_completion_prompts) + " are allowed");
  }
  UseOwnDistribution(/*temperature=*/0, &request);  // the likeliest token
  // Replies to all questions begin alike.
  ASSIGN_OR_RETURN(const std::vector<TokenId> probe,
                   DecisionChat(request, "x", context.max_model_len));
  const std::vector<TokenId> tail = TailOf(*tokenizer_, probe);
  ASSIGN_OR_RETURN(const std::string state, StateText(*request.state));
  std::map<DecisionLabels, std::vector<int64_t>> known;  // most questions have the same labels
  std::vector<std::vector<int64_t>> label_ids;
  std::vector<Prompt> prompts;
  for (const DecisionQuestion& question : request.questions) {
    const std::span<const std::string_view> labels = LabelsOf(question);
    std::vector<int64_t>& ids = known[question.labels];
    RETURN_IF_ERROR(AddLabelIds(*tokenizer_, tail, labels, &ids));
    label_ids.emplace_back(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(labels.size()));
    Prompt& prompt = prompts.emplace_back();
    ASSIGN_OR_RETURN(
        prompt.token_ids,
        DecisionChat(request, state + "\n\n" + QuestionText(question), context.max_model_len));
    if (!EndsWith(prompt.token_ids, tail)) {
      return CannotDecide("its chat template ends prompts in different ways");
    }
  }
  // Of the longest list, whose size counts for every request.
  request.logprob_token_ids = *std::max_element(
      label_ids.begin(), label_ids.end(),
      [](const auto& left, const auto& right) { return left.size() < right.size(); });
  ASSIGN_OR_RETURN(ProcessedRequest result,
                   Finish(request, std::move(prompts), {1, "max_tokens", std::nullopt},
                          /*logprobs=*/0, /*number_prompts=*/true, {}, context));
  for (size_t i = 0; i < label_ids.size(); ++i) {
    std::vector<TokenId>& ids = result.requests[i].sampling_params.logprob_token_ids;
    ids.clear();
    for (const int64_t id : label_ids[i]) {
      RETURN_IF_ERROR(sampling_.CheckId("questions", static_cast<TokenId>(id)));
      ids.push_back(static_cast<TokenId>(id));
    }
  }
  return result;
}

}  // namespace tandem
