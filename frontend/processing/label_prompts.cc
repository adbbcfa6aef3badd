// The prompts of /generative_scoring: a query with each of the items, after which one token is
// drawn for the logprobs of the labels.

#include <algorithm>
#include <utility>

#include "frontend/processing/input_processor.h"
#include "frontend/processing/own_distribution.h"

namespace tandem {

StatusOr<std::vector<std::vector<TokenId>>> InputProcessor::ScoredTokens(
    const GenerativeScoringRequest& request, const Prompts& parts, bool add_special_tokens,
    int64_t max_model_len) const {
  std::vector<std::vector<TokenId>> tokens;
  if (const auto* texts = std::get_if<TextPrompts>(&parts)) {
    for (const std::string& text : *texts) {
      ASSIGN_OR_RETURN(tokens.emplace_back(),
                       Tokenize(request, text, add_special_tokens, max_model_len));
    }
  } else {
    for (const auto& ids : std::get<TokenPrompts>(parts)) {
      ASSIGN_OR_RETURN(tokens.emplace_back(), CheckTokens(request, ids, max_model_len));
    }
  }
  return tokens;
}

StatusOr<ProcessedRequest> InputProcessor::Process(GenerativeScoringRequest request,
                                                   const RequestContext& context) const {
  UseOwnDistribution(/*temperature=*/1, &request);
  request.logprob_token_ids = request.label_token_ids;
  ASSIGN_OR_RETURN(const auto queries,
                   ScoredTokens(request, request.query, request.add_special_tokens.value_or(true),
                                context.max_model_len));
  ASSIGN_OR_RETURN(const auto items,
                   ScoredTokens(request, request.items, false, context.max_model_len));
  const auto num_items = static_cast<int64_t>(items.size());
  if (num_items > config_.max_completion_prompts) {
    return InvalidArgumentError("items has " + std::to_string(num_items) + " entries, at most " +
                                std::to_string(config_.max_completion_prompts) + " are allowed")
        .WithParam("items");
  }
  const std::vector<TokenId>& query = queries.front();
  const auto most_tokens = static_cast<size_t>(context.max_model_len - 1);
  bool was_cut = false;
  std::vector<Prompt> prompts;
  for (const std::vector<TokenId>& item : items) {
    // No more than fits is copied: the query may be far longer, and there are many items.
    std::vector<TokenId> ids;
    const auto append = [&](const std::vector<TokenId>& part) {
      const size_t num_fitting = std::min(part.size(), most_tokens - ids.size());
      was_cut |= num_fitting < part.size();
      ids.insert(ids.end(), part.begin(), part.begin() + static_cast<ptrdiff_t>(num_fitting));
    };
    append(request.item_first ? item : query);
    append(request.item_first ? query : item);
    prompts.push_back({std::move(ids), {}});
  }
  ASSIGN_OR_RETURN(ProcessedRequest result,
                   Finish(request, std::move(prompts), {1, "max_tokens", std::nullopt},
                          /*logprobs=*/0, /*number_prompts=*/true, {}, context));
  if (was_cut) {
    result.warning =
        "a query and its item have more tokens than the model takes; what is too long is cut off "
        "at the end";
  }
  return result;
}

}  // namespace tandem
