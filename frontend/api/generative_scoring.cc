#include "frontend/api/generative_scoring.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "frontend/api/collected_choice.h"
#include "frontend/api/render.h"
#include "frontend/openai/generative_scoring_request.h"

namespace tandem {
namespace {

// What of the request the response depends on.
struct LabelShape {
  std::vector<int64_t> labels;  // each once, the scored one first
  bool apply_softmax = true;
};

// Of the label at the one position of the choice.
double LabelLogprob(const CollectedChoice& choice, int64_t label) {
  return choice.LogprobOf(static_cast<TokenId>(label));
}

double Score(const LabelShape& shape, const CollectedChoice& choice) {
  const double scored = LabelLogprob(choice, shape.labels.front());
  if (!shape.apply_softmax) return std::exp(scored);
  double sum = 0;  // of the others' probabilities, relative to the scored one's
  for (const int64_t label : shape.labels) sum += std::exp(LabelLogprob(choice, label) - scored);
  return 1 / sum;
}

class LabelScoresBody final : public ResponseWriter {
 public:
  LabelScoresBody(LabelShape shape, WriterInput input)
      : ResponseWriter(input.out),
        shape_(std::move(shape)),
        input_(std::move(input)),
        choices_(input_.prompts.size()) {}

  void WriteDelta(int index, MessageDelta& delta, const Usage&) override {
    choices_[static_cast<size_t>(index)].Append(delta);
  }

  void WriteEnd(const Usage& usage) override {
    Json data = Json::array();
    for (const CollectedChoice& choice : choices_) {
      data.push_back(
          {{"index", data.size()}, {"object", "score"}, {"score", Score(shape_, choice)}});
    }
    out_->append(DumpJson({{"id", input_.head.id},
                           {"object", "list"},
                           {"created", input_.head.created},
                           {"model", input_.head.model},
                           {"data", std::move(data)},
                           {"usage", UsageJson(usage)}}));
  }

 private:
  const LabelShape shape_;
  const WriterInput input_;
  std::vector<CollectedChoice> choices_;
};

class LabelScoresCall final : public GenerationCall {
 public:
  explicit LabelScoresCall(const ApiContext& context)
      : input_processor_(*context.input_processor) {}

  const char* id_prefix() const override { return "generative-scoring-"; }

  Status Parse(JsonDocument body) override {
    ASSIGN_OR_RETURN(request_, ParseGenerativeScoringRequest(std::move(body.mutable_value())));
    return OkStatus();
  }

  GenerationRequest& request() override { return request_; }

  StatusOr<ProcessedRequest> Process(const RequestContext& context) override {
    for (const int64_t label : request_.label_token_ids) {
      if (std::count(shape_.labels.begin(), shape_.labels.end(), label) == 0) {
        shape_.labels.push_back(label);
      }
    }
    request_.label_token_ids = shape_.labels;
    shape_.apply_softmax = request_.apply_softmax;
    auto processed = input_processor_.Process(std::move(request_), context);
    if (processed.ok() || processed.status().param() != "logprob_token_ids") return processed;
    return Status(processed.status()).WithParam("label_token_ids");
  }

  std::unique_ptr<ResponseWriter> MakeWriter(WriterInput input) const override {
    return std::make_unique<LabelScoresBody>(shape_, std::move(input));
  }

 private:
  const InputProcessor& input_processor_;
  GenerativeScoringRequest request_;
  LabelShape shape_;
};

}  // namespace

std::unique_ptr<GenerationCall> MakeGenerativeScoring(const ApiContext& context) {
  return std::make_unique<LabelScoresCall>(context);
}

}  // namespace tandem
