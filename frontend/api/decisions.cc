#include "frontend/api/decisions.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "frontend/api/collected_choice.h"
#include "frontend/api/or_null.h"
#include "frontend/api/render.h"
#include "frontend/openai/decision_request.h"

namespace tandem {
namespace {

struct AskedQuestion {
  DecisionQuestion question;
  std::vector<TokenId> labels;  // of its options
};

struct Answer {
  std::vector<double> probabilities;  // of the options; their sum is 1
  double label_mass = 0;              // of all labels together, in the whole vocabulary
  bool is_label = false;              // the likeliest token of all is one

  size_t best() const {
    return static_cast<size_t>(std::max_element(probabilities.begin(), probabilities.end()) -
                               probabilities.begin());
  }
  // Low also where the model would rather say something else.
  double confidence() const { return probabilities[best()] * label_mass; }
  // The expected level.
  double score() const {
    double sum = 0;
    for (size_t i = 0; i < probabilities.size(); ++i) {
      sum += static_cast<double>(i) * probabilities[i];
    }
    return sum;
  }
};

Answer AnswerOf(const AskedQuestion& asked, const CollectedChoice& choice) {
  Answer answer;
  std::vector<double> logprobs;
  for (const TokenId label : asked.labels) logprobs.push_back(choice.LogprobOf(label));
  const double most = *std::max_element(logprobs.begin(), logprobs.end());
  double sum = 0;  // relative to the likeliest label
  for (const double logprob : logprobs) {
    answer.probabilities.push_back(std::exp(logprob - most));
    sum += answer.probabilities.back();
    answer.label_mass += std::exp(logprob);
  }
  for (double& probability : answer.probabilities) probability /= sum;
  answer.is_label =
      !choice.logprobs.empty() && std::count(asked.labels.begin(), asked.labels.end(),
                                             choice.logprobs.front().token.token_id) > 0;
  return answer;
}

// Collects the tokens of all questions.
class AnswersBody : public ResponseWriter {
 public:
  AnswersBody(std::vector<AskedQuestion> asked, WriterInput input)
      : ResponseWriter(input.out),
        asked_(std::move(asked)),
        input_(std::move(input)),
        choices_(asked_.size()) {}

  void WriteDelta(int index, MessageDelta& delta, const Usage&) override {
    choices_[static_cast<size_t>(index)].Append(delta);
  }

 protected:
  const std::vector<AskedQuestion>& asked() const { return asked_; }
  const ResponseHead& head() const { return input_.head; }
  Answer AnswerTo(size_t i) const { return AnswerOf(asked_[i], choices_[i]); }

 private:
  const std::vector<AskedQuestion> asked_;
  const WriterInput input_;
  std::vector<CollectedChoice> choices_;
};

// ---- /v1/decisions ----

Json DecisionJson(const DecisionQuestion& question, const Answer& answer) {
  const Json name = OrNull(question.name);
  if (question.kind == DecisionKind::kPredicate) {
    return {{"type", "predicate"}, {"name", name}, {"probability", answer.probabilities[1]}};
  }
  const bool is_choice = question.kind == DecisionKind::kChoice;
  Json probabilities = Json::array();
  for (size_t i = 0; i < question.options.size(); ++i) {
    const std::string& option = question.options[i].name;
    Json entry = is_choice ? Json({{"value", Json::parse(option)}})
                           : Json({{"value", i}, {"label", option}});
    entry["probability"] = answer.probabilities[i];
    probabilities.push_back(std::move(entry));
  }
  Json json = {{"type", is_choice ? "choice" : "score"}, {"name", name}};
  if (is_choice) {
    json["choice"] = Json::parse(question.options[answer.best()].name);
  } else {
    json["score"] = answer.score();
  }
  json["probabilities"] = std::move(probabilities);
  json["confidence"] = answer.confidence();
  return json;
}

class DecisionsBody final : public AnswersBody {
 public:
  using AnswersBody::AnswersBody;

  void WriteEnd(const Usage& usage) override {
    Json answers = Json::array();
    for (size_t i = 0; i < asked().size(); ++i) {
      answers.push_back(DecisionJson(asked()[i].question, AnswerTo(i)));
    }
    const Json input_details = {{"cached_tokens", usage.cached_tokens.value_or(0)},
                                {"cache_write_tokens", usage.created_cache_tokens}};
    const Json counts = {{"input_tokens", usage.prompt_tokens},
                         {"input_tokens_details", input_details},
                         {"output_tokens", usage.completion_tokens},
                         {"output_tokens_details", {{"reasoning_tokens", 0}}},
                         {"total_tokens", usage.prompt_tokens + usage.completion_tokens}};
    out_->append(
        DumpJson({{"model", head().model}, {"answers", std::move(answers)}, {"usage", counts}}));
  }
};

// ---- /v1/systemone ----

Json SystemOneJson(const DecisionQuestion& question, const Answer& answer) {
  const bool is_score = question.kind == DecisionKind::kScore;
  Json probabilities = Json::object(), legend = Json::object();
  for (size_t i = 0; i < question.options.size(); ++i) {
    const std::string& option = question.options[i].name;
    const std::string key = is_score ? std::to_string(i) : option;
    probabilities[key] = answer.probabilities[i];
    legend[key] = option;
  }
  Json json;
  switch (question.kind) {
    case DecisionKind::kPredicate:
      json = {{"type", "noul"}, {"noul", answer.probabilities[0]}};
      break;
    case DecisionKind::kChoice:
      json = {{"type", "choice"}, {"choice", question.options[answer.best()].name}};
      break;
    case DecisionKind::kScore:
      json = {{"type", "score"}, {"score", answer.score()}, {"legend", std::move(legend)}};
      break;
  }
  json["probabilities"] = std::move(probabilities);
  json["confidence"] = answer.confidence();
  return json;
}

class SystemOneBody final : public AnswersBody {
 public:
  using AnswersBody::AnswersBody;

  void WriteEnd(const Usage& usage) override {
    Json answers = Json::object(), diagnostics = Json::object();
    for (size_t i = 0; i < asked().size(); ++i) {
      const DecisionQuestion& question = asked()[i].question;
      const Answer answer = AnswerTo(i);
      answers[*question.name] = SystemOneJson(question, answer);
      diagnostics[*question.name] = {{"label_mass", answer.label_mass},
                                     {"argmax_is_label", answer.is_label}};
    }
    out_->append(DumpJson(
        {{"id", head().id},
         {"object", "structured_decision"},
         {"created", head().created},
         {"model", head().model},
         {"answers", std::move(answers)},
         {"usage",
          {{"input_tokens", usage.prompt_tokens}, {"output_tokens", usage.completion_tokens}}},
         {"diagnostics", std::move(diagnostics)},
         {"joint", nullptr}}));
  }
};

// parse: of the body; Body: the writer of the response.
template <StatusOr<DecisionRequest> (*parse)(Json), class Body>
class DecisionCall final : public GenerationCall {
 public:
  explicit DecisionCall(const ApiContext& context) : input_processor_(*context.input_processor) {}

  const char* id_prefix() const override { return "decision-"; }

  Status Parse(JsonDocument body) override {
    ASSIGN_OR_RETURN(request_, parse(std::move(body.mutable_value())));
    return OkStatus();
  }

  GenerationRequest& request() override { return request_; }

  StatusOr<ProcessedRequest> Process(const RequestContext& context) override {
    std::vector<DecisionQuestion> questions = request_.questions;
    ASSIGN_OR_RETURN(ProcessedRequest processed,
                     input_processor_.Process(std::move(request_), context));
    for (size_t i = 0; i < questions.size(); ++i) {
      asked_.push_back(
          {std::move(questions[i]), processed.requests[i].sampling_params.logprob_token_ids});
    }
    return processed;
  }

  std::unique_ptr<ResponseWriter> MakeWriter(WriterInput input) const override {
    return std::make_unique<Body>(asked_, std::move(input));
  }

 private:
  const InputProcessor& input_processor_;
  DecisionRequest request_;
  std::vector<AskedQuestion> asked_;
};

}  // namespace

std::unique_ptr<GenerationCall> MakeDecisions(const ApiContext& context) {
  return std::make_unique<DecisionCall<ParseDecisionRequest, DecisionsBody>>(context);
}

std::unique_ptr<GenerationCall> MakeSystemOne(const ApiContext& context) {
  return std::make_unique<DecisionCall<ParseSystemOneRequest, SystemOneBody>>(context);
}

}  // namespace tandem
