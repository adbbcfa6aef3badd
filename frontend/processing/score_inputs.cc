// The inputs of /score and /rerank: pairs of texts for a cross-encoder, single ones for an
// embedder.

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>
#include <utility>

#include "frontend/openai/refuse.h"
#include "frontend/processing/input_processor.h"
#include "frontend/text/tokenizer_file.h"

namespace tandem {
namespace {

void Cut(size_t keep, bool keeps_end, std::vector<TokenId>* ids) {
  if (keeps_end) ids->erase(ids->begin(), ids->end() - static_cast<ptrdiff_t>(keep));
  ids->resize(keep);
}

// As Hugging Face's tokenizers cut a pair that is too long: the longer text first, then both alike.
void CutLongestFirst(size_t keep, bool keeps_end, std::vector<TokenId>* first,
                     std::vector<TokenId>* second) {
  size_t shorter = std::min(first->size(), second->size());
  size_t longer = std::max(first->size(), second->size());
  if (shorter + longer <= keep) return;
  longer = shorter > keep ? shorter : std::max(shorter, keep - shorter);
  if (shorter + longer > keep) {
    shorter = keep / 2;
    longer = shorter + keep % 2;
  }
  const bool first_is_longer = first->size() > second->size();
  Cut(first_is_longer ? longer : shorter, keeps_end, first);
  Cut(first_is_longer ? shorter : longer, keeps_end, second);
}

Status CheckLimit(const char* name, int64_t limit, int64_t max_model_len) {
  if (limit < max_model_len) return OkStatus();
  return Refuse(name, std::string(name) + " (" + std::to_string(limit) +
                          ") must be less than max_model_len (" + std::to_string(max_model_len) +
                          ").");
}

// Each pair is rendered or encoded by itself, and one query may be in all of them.
Status CheckPairBytes(const ScoreRequest& request) {
  constexpr int64_t kMaxBytes = int64_t{64} << 20;
  int64_t num_bytes = 0;
  for (size_t i = 0; i < request.documents.size(); ++i) {
    const std::string& query = request.queries[request.queries.size() == 1 ? 0 : i];
    num_bytes += static_cast<int64_t>(query.size() + request.documents[i].size());
  }
  if (num_bytes <= kMaxBytes) return OkStatus();
  return Refuse("documents", "all pairs of a query and a document together have " +
                                 std::to_string(num_bytes) + " bytes, at most " +
                                 std::to_string(kMaxBytes) +
                                 " are allowed; send fewer or shorter ones");
}

}  // namespace

StatusOr<std::string> InputProcessor::CutText(const std::string& text, int64_t max_tokens) const {
  if (max_tokens == 0) return text;
  ASSIGN_OR_RETURN(auto ids, tokenizer_->Encode(text, false));
  if (static_cast<int64_t>(ids.size()) <= max_tokens) return text;
  ids.resize(static_cast<size_t>(max_tokens));
  return tokenizer_->Decode(ids, true);
}

StatusOr<std::string> InputProcessor::RenderScore(const ScoreRequest& request,
                                                  const std::string& query,
                                                  const std::string& document) const {
  const Json messages = Json::array(
      {{{"role", "query"}, {"content", query}}, {{"role", "document"}, {"content", document}}});
  Json variables =
      request.chat_template_kwargs.is_null() ? Json::object() : Json(*request.chat_template_kwargs);
  if (request.instruction) variables["instruction"] = *request.instruction;
  ChatTemplateInput input;
  input.messages = &messages;
  input.kwargs = &variables;
  input.special_tokens = &tokenizer_->special_tokens();
  input.now_s = std::time(nullptr);
  auto text = chat_template_->Render(input);
  if (text.ok()) return text;
  return InvalidArgumentError("the template of scores: " + text.status().message());
}

StatusOr<InputProcessor::PoolingTokens> InputProcessor::PairTokens(const ScoreRequest& request,
                                                                   const std::string& query,
                                                                   const std::string& document,
                                                                   int64_t max_model_len) const {
  PoolingTokens tokens;
  const bool has_template = config_.has_score_template && chat_template_;
  if (has_template || !config_.pooling->scores_pairs) {
    std::string text = query + document;
    if (has_template) {
      ASSIGN_OR_RETURN(text, RenderScore(request, query, document));
    }
    ASSIGN_OR_RETURN(tokens.token_ids, PoolingInput(request, text, max_model_len));
    return tokens;
  }
  for (const std::string* text : {&query, &document}) {
    const bool fits = request.truncate_prompt_tokens.has_value() ||
                      CheckTextBytes(text->size(), max_model_len + 1).ok();
    if (!fits) {
      return Refuse("input", "a text is too long: this model's maximum context length is " +
                                 std::to_string(max_model_len) + " tokens");
    }
  }
  ASSIGN_OR_RETURN(auto first, tokenizer_->Encode(query, false));
  ASSIGN_OR_RETURN(auto second, tokenizer_->Encode(document, false));
  const PairTemplate& pair = tokenizer_->pair();
  if (request.truncate_prompt_tokens) {
    const size_t num_special =
        pair.prefix_ids.size() + pair.between_ids.size() + pair.suffix_ids.size();
    const int64_t wanted = *request.truncate_prompt_tokens;
    const auto most = static_cast<size_t>(wanted == -1 ? max_model_len : wanted);
    if (most < num_special) {
      return Refuse("truncate_prompt_tokens",
                    "truncate_prompt_tokens is " + std::to_string(most) + ", but the " +
                        std::to_string(num_special) +
                        " special tokens around a query and a document are not cut");
    }
    CutLongestFirst(most - num_special, request.truncation_side == "left", &first, &second);
  }
  std::vector<TokenId>& ids = tokens.token_ids;
  const auto append = [&ids](const std::vector<TokenId>& part) {
    ids.insert(ids.end(), part.begin(), part.end());
  };
  append(pair.prefix_ids);
  append(first);
  append(pair.between_ids);
  if (pair.has_types) tokens.second_begin = static_cast<int64_t>(ids.size());
  append(second);
  append(pair.suffix_ids);
  for (const TokenId id : ids) RETURN_IF_ERROR(sampling_.CheckId("input", id));
  return tokens;
}

// Each token of a query is compared with each of its document, on a thread that serves others, too:
// a second of it at most.
Status InputProcessor::CheckComparisons(const PoolerConfig& pooling,
                                        const std::vector<PoolingTokens>& inputs,
                                        size_t num_queries) {
  constexpr double kMaxProducts = 1ull << 32;
  if (!IsTokenWise(pooling.task)) return OkStatus();
  double num_products = 0;
  for (size_t i = num_queries; i < inputs.size(); ++i) {
    const size_t query = num_queries == 1 ? 0 : i - num_queries;
    num_products += static_cast<double>(inputs[query].token_ids.size()) *
                    static_cast<double>(inputs[i].token_ids.size()) *
                    static_cast<double>(pooling.num_columns());
  }
  if (num_products <= kMaxProducts) return OkStatus();
  return Refuse("documents",
                "the tokens of these queries and documents are too many to be compared one with "
                "another; send fewer or shorter documents");
}

StatusOr<ProcessedRequest> InputProcessor::Process(ScoreRequest request,
                                                   const RequestContext& context) const {
  RETURN_IF_ERROR(CheckPooling(request, context));
  const int64_t max_model_len = context.max_model_len;
  RETURN_IF_ERROR(CheckLimit("max_tokens_per_query", request.max_tokens_per_query, max_model_len));
  RETURN_IF_ERROR(CheckLimit("max_tokens_per_doc", request.max_tokens_per_doc, max_model_len));
  if (static_cast<int64_t>(request.documents.size()) > config_.max_pooling_inputs) {
    return Refuse("documents", "there are " + std::to_string(request.documents.size()) +
                                   " documents, at most " +
                                   std::to_string(config_.max_pooling_inputs) + " are allowed");
  }
  SetCase(&request.queries);
  SetCase(&request.documents);
  for (std::string& query : request.queries) {
    ASSIGN_OR_RETURN(query, CutText(query, request.max_tokens_per_query));
  }
  for (std::string& document : request.documents) {
    ASSIGN_OR_RETURN(document, CutText(document, request.max_tokens_per_doc));
  }
  std::vector<PoolingTokens> inputs;
  if (MakesVectors(config_.pooling->task)) {
    for (const auto* texts : {&request.queries, &request.documents}) {
      for (const std::string& text : *texts) {
        ASSIGN_OR_RETURN(auto ids, PoolingInput(request, text, max_model_len));
        inputs.push_back({std::move(ids)});
      }
    }
    request.use_activation = true;
    RETURN_IF_ERROR(CheckComparisons(*config_.pooling, inputs, request.queries.size()));
  } else {
    RETURN_IF_ERROR(CheckPairBytes(request));
    for (size_t i = 0; i < request.documents.size(); ++i) {
      const std::string& query = request.queries[request.queries.size() == 1 ? 0 : i];
      ASSIGN_OR_RETURN(PoolingTokens tokens,
                       PairTokens(request, query, request.documents[i], max_model_len));
      inputs.push_back(std::move(tokens));
    }
  }
  return PoolingRequests(request, std::move(inputs), context);
}

}  // namespace tandem
