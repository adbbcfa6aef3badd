// /score and /rerank: how well a document answers a query, by a cross-encoder of one label, or as
// the cosine of two embeddings.

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "frontend/api/pooled_writer.h"
#include "frontend/api/pooling.h"

namespace tandem {
namespace {

// What of the request the response depends on.
struct ScoreShape {
  bool is_cosine = false;  // the results are embeddings, the queries first
  size_t num_queries = 1;
  size_t num_documents = 0;
  size_t top_n = 0;                    // of /rerank; 0: all
  std::vector<std::string> documents;  // of /rerank
};

double Cosine(const std::vector<float>& a, const std::vector<float>& b) {
  double ab = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    ab += static_cast<double>(a[i]) * b[i];
    aa += static_cast<double>(a[i]) * a[i];
    bb += static_cast<double>(b[i]) * b[i];
  }
  return ab / std::max(std::sqrt(aa) * std::sqrt(bb), 1e-8);
}

class ScoreBody : public PooledWriter {
 public:
  ScoreBody(ScoreShape shape, WriterInput input)
      : PooledWriter(std::move(input)), shape_(std::move(shape)) {}

  void WriteEnd(const Usage& usage) override {
    BeginList();
    for (size_t i = 0; i < shape_.num_documents; ++i) {
      out_->append(i > 0 ? ",{\"index\":" : "{\"index\":").append(std::to_string(i));
      out_->append(",\"object\":\"score\",\"score\":").append(ScoreText(i)).push_back('}');
    }
    EndList(usage);
  }

 protected:
  float ScoreOf(size_t i) const {
    if (shape_.is_cosine) {
      const size_t query = shape_.num_queries == 1 ? 0 : i;
      return static_cast<float>(
          Cosine(results_[query].values, results_[shape_.num_queries + i].values));
    }
    return results_[i].values.empty() ? 0 : results_[i].values[0];
  }
  // A number alone: "[0.5]" without the brackets.
  std::string ScoreText(size_t i) const {
    std::string text;
    AppendNumbers({.num_columns = 1, .values = {ScoreOf(i)}}, &text);
    return text.substr(1, text.size() - 2);
  }

  const ScoreShape shape_;
};

class RerankBody final : public ScoreBody {
 public:
  using ScoreBody::ScoreBody;

  void WriteEnd(const Usage& usage) override {
    std::vector<size_t> order(shape_.num_documents);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return ScoreOf(a) > ScoreOf(b); });
    if (shape_.top_n > 0 && shape_.top_n < order.size()) order.resize(shape_.top_n);
    std::string head = DumpJson(
        {{"id", input_.head.id},
         {"model", input_.head.model},
         {"usage",
          {{"prompt_tokens", usage.prompt_tokens}, {"total_tokens", usage.prompt_tokens}}}});
    head.back() = ',';
    out_->append(head).append("\"results\":[");
    for (size_t i = 0; i < order.size(); ++i) {
      const Json document = {{"text", shape_.documents[order[i]]}, {"multi_modal", nullptr}};
      out_->append(i > 0 ? ",{\"index\":" : "{\"index\":").append(std::to_string(order[i]));
      out_->append(",\"document\":").append(DumpJson(document));
      out_->append(",\"relevance_score\":").append(ScoreText(order[i])).push_back('}');
    }
    out_->append("]}");
  }
};

class ScoreCall final : public GenerationCall {
 public:
  ScoreCall(const ApiContext& context, bool reranks)
      : input_processor_(*context.input_processor), reranks_(reranks) {}

  const char* id_prefix() const override { return "score-"; }
  Status Parse(JsonDocument body) override {
    Json& json = body.mutable_value();
    if (reranks_) {
      ASSIGN_OR_RETURN(request_, ParseRerankRequest(std::move(json)));
    } else {
      ASSIGN_OR_RETURN(request_, ParseScoreRequest(std::move(json)));
    }
    return OkStatus();
  }
  GenerationRequest& request() override { return request_; }

  StatusOr<ProcessedRequest> Process(const RequestContext& context) override {
    const PoolerConfig& pooling = *input_processor_.config().pooling;
    shape_.is_cosine = pooling.task == PoolingTask::kEmbed;
    if (!shape_.is_cosine && pooling.labels.size() != 1) {
      return UnimplementedError(reranks_ ? "The model does not support Rerank (Score) API"
                                         : "The model does not support Score API");
    }
    shape_.num_queries = request_.queries.size();
    shape_.num_documents = request_.documents.size();
    shape_.top_n = static_cast<size_t>(request_.top_n);
    if (reranks_) shape_.documents = request_.documents;
    return input_processor_.Process(std::move(request_), context);
  }
  std::unique_ptr<ResponseWriter> MakeWriter(WriterInput input) const override {
    if (reranks_) return std::make_unique<RerankBody>(shape_, std::move(input));
    return std::make_unique<ScoreBody>(shape_, std::move(input));
  }

 private:
  const InputProcessor& input_processor_;
  const bool reranks_;
  ScoreRequest request_;
  ScoreShape shape_;
};

}  // namespace

std::unique_ptr<GenerationCall> MakeScore(const ApiContext& context) {
  return std::make_unique<ScoreCall>(context, /*reranks=*/false);
}

std::unique_ptr<GenerationCall> MakeRerank(const ApiContext& context) {
  return std::make_unique<ScoreCall>(context, /*reranks=*/true);
}

}  // namespace tandem
