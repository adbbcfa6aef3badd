// /score and /rerank: how well a document answers a query, by a cross-encoder of one label, as the
// cosine of two embeddings, or by those of their tokens.

#include <algorithm>
#include <cmath>
#include <limits>
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
  bool has_embeddings = false;  // the results are those of the texts, the queries first
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

// Sums of every eighth product, which the compiler adds side by side.
float Product(const float* a, const float* b, size_t size) {
  constexpr size_t kLanes = 8;
  float sums[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  }
  float sum = 0;
  for (; i < size; ++i) sum += a[i] * b[i];
  for (const float part : sums) sum += part;
  return sum;
}

// ColBERT's MaxSim: each token of the query counts with that of the document which is most alike.
double LateInteraction(const PooledNumbers& query, const PooledNumbers& document) {
  const size_t columns = query.num_columns;
  if (document.num_columns != columns) return 0;  // an engine that pools texts in two ways
  double sum = 0;
  for (size_t q = 0; q < query.values.size(); q += columns) {
    float most = -std::numeric_limits<float>::infinity();
    for (size_t d = 0; d < document.values.size(); d += columns) {
      most = std::max(most, Product(&query.values[q], &document.values[d], columns));
    }
    sum += static_cast<double>(most);
  }
  return sum;
}

class ScoreBody : public PooledWriter {
 public:
  ScoreBody(ScoreShape shape, WriterInput input)
      : PooledWriter(std::move(input)), shape_(std::move(shape)) {}

  void WriteEnd(const Usage& usage) override {
    BeginList();
    for (size_t i = 0; i < shape_.num_documents; ++i) {
      out_->append(i > 0 ? ",{\"index\":" : "{\"index\":").append(std::to_string(i));
      out_->append(",\"object\":\"score\",\"score\":")
          .append(NumberText(ScoreOf(i)))
          .push_back('}');
    }
    EndList(usage);
  }

 protected:
  float ScoreOf(size_t i) const {
    if (!shape_.has_embeddings) return results_[i].values.empty() ? 0 : results_[i].values[0];
    const PooledNumbers& query = results_[shape_.num_queries == 1 ? 0 : i];
    const PooledNumbers& document = results_[shape_.num_queries + i];
    if (query.is_matrix) return static_cast<float>(LateInteraction(query, document));
    return static_cast<float>(Cosine(query.values, document.values));
  }
  // A number alone: "[0.5]" without the brackets.
  static std::string NumberText(float number) {
    std::string text;
    AppendNumbers({.num_columns = 1, .values = {number}}, &text);
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
    std::vector<float> scores(order.size());
    for (const size_t i : order) scores[i] = ScoreOf(i);
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return scores[a] > scores[b]; });
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
      out_->append(",\"relevance_score\":").append(NumberText(scores[order[i]])).push_back('}');
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
    shape_.has_embeddings = MakesVectors(pooling.task);
    const bool is_cross_encoder =
        pooling.task == PoolingTask::kClassify && pooling.labels.size() == 1;
    if (!shape_.has_embeddings && !is_cross_encoder) {
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
