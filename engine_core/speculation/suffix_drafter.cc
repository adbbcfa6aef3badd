#include "engine_core/speculation/suffix_drafter.h"

#include <algorithm>
#include <utility>

namespace tandem {

SuffixDrafter::SuffixDrafter(int32_t num_slots, const SuffixOptions& options)
    : options_(options),
      rows_(static_cast<size_t>(num_slots), Row{.own = SuffixIndex(options.max_tree_depth)}),
      outputs_(options.max_tree_depth) {}

void SuffixDrafter::Begin(int32_t slot, int32_t num_known) {
  End(slot);
  rows_[static_cast<size_t>(slot)].num_known = static_cast<size_t>(num_known);
}

void SuffixDrafter::End(int32_t slot) {
  Row& row = rows_[static_cast<size_t>(slot)];
  row.own.Clear();
  row.sequence_id = kNoSequence;
  row.num_known = row.num_taken = 0;
}

void SuffixDrafter::AddSequence(Row* row) {
  row->own.Add(kOwn);
  if (options_.max_cached_requests == 0) return;
  row->sequence_id = next_sequence_id_++;
  outputs_.Add(row->sequence_id);
  cached_.push_back(row->sequence_id);
  if (cached_.size() <= static_cast<size_t>(options_.max_cached_requests)) return;
  outputs_.Remove(cached_.front());
  cached_.pop_front();
}

void SuffixDrafter::TakeIn(std::span<const TokenId> tokens, Row* row) {
  if (row->num_taken == 0) AddSequence(row);
  row->own.Append(kOwn, tokens.subspan(row->num_taken));
  const bool is_cached = !cached_.empty() && row->sequence_id >= cached_.front();
  if (is_cached) {
    outputs_.Append(row->sequence_id, tokens.subspan(std::max(row->num_taken, row->num_known)));
  }
  row->num_taken = tokens.size();
}

void SuffixDrafter::Propose(int32_t slot, std::span<const TokenId> tokens, int32_t most,
                            std::vector<TokenId>* drafts) {
  Row& row = rows_[static_cast<size_t>(slot)];
  if (tokens.size() <= row.num_known) return;
  TakeIn(tokens, &row);
  if (most <= 0) return;
  const auto context =
      tokens.last(std::min(tokens.size(), static_cast<size_t>(options_.max_tree_depth)));
  const SuffixIndex::Limits limits = {
      .num_tokens = most,
      .tokens_per_matched = options_.max_spec_factor,
      .least_probability = static_cast<float>(options_.min_token_prob)};
  SuffixIndex::Guess own = row.own.Find(context, limits);
  SuffixIndex::Guess others = outputs_.Find(context, limits);
  *drafts = std::move(own.score >= others.score ? own.token_ids : others.token_ids);
}

}  // namespace tandem
