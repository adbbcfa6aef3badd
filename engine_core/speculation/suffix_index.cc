#include "engine_core/speculation/suffix_index.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace tandem {

void SuffixIndex::Append(int64_t sequence_id, std::span<const TokenId> tokens) {
  const auto found = sequences_.find(sequence_id);
  CHECK(found != sequences_.end()) << sequence_id;
  Sequence& sequence = found->second;
  for (const TokenId token : tokens) {
    sequence.token_ids.push_back(token);
    sequence.times.push_back(now_++);
    places_of_[token].push_back({sequence_id, static_cast<int32_t>(sequence.token_ids.size())});
  }
  num_live_ += tokens.size();
}

void SuffixIndex::Remove(int64_t sequence_id) {
  const auto found = sequences_.find(sequence_id);
  if (found == sequences_.end()) return;
  num_live_ -= found->second.token_ids.size();
  num_dead_ += found->second.token_ids.size();
  sequences_.erase(found);
  if (num_dead_ > num_live_) DropDeadPlaces();
}

void SuffixIndex::Clear() {
  sequences_.clear();
  places_of_.clear();
  num_live_ = num_dead_ = 0;
}

void SuffixIndex::DropDeadPlaces() {
  for (auto& [token, places] : places_of_) {
    std::erase_if(places, [this](const StoredPlace& place) {
      return !sequences_.contains(place.sequence_id);
    });
  }
  absl::erase_if(places_of_, [](const auto& entry) { return entry.second.empty(); });
  num_dead_ = 0;
}

// Into places_, the newest.
void SuffixIndex::FindPlaces(TokenId token) {
  places_.clear();
  const auto found = places_of_.find(token);
  if (found == places_of_.end()) return;
  const std::vector<StoredPlace>& stored = found->second;
  for (size_t i = stored.size(); i-- > 0 && places_.size() < kMostPlaces;) {
    const auto sequence = sequences_.find(stored[i].sequence_id);
    if (sequence == sequences_.end()) continue;
    places_.push_back({&sequence->second, static_cast<size_t>(stored[i].end)});
  }
}

SuffixIndex::Guess SuffixIndex::Find(std::span<const TokenId> context, const Limits& limits) {
  Guess best;
  if (context.empty()) return best;
  FindPlaces(context.back());
  for (size_t depth = 1; depth < context.size(); ++depth) {
    if (depth > 1) {
      const TokenId token = context[context.size() - depth];
      std::erase_if(places_, [=](const Place& place) {
        return place.end < depth || place.sequence->token_ids[place.end - depth] != token;
      });
    }
    if (places_.empty()) break;
    constexpr double kRounding = 1e-6;
    const auto most = std::min<size_t>(
        static_cast<size_t>(limits.num_tokens),
        static_cast<size_t>(static_cast<double>(depth) * limits.tokens_per_matched + kRounding));
    Guess guess = Follow(depth, limits, most);
    if (guess.score >= best.score) best = std::move(guess);
  }
  return best;
}

SuffixIndex::Guess SuffixIndex::Follow(size_t depth, const Limits& limits, size_t most) {
  Guess guess;
  float probability = 1;
  followed_ = places_;
  while (guess.token_ids.size() < most && depth < static_cast<size_t>(max_depth_)) {
    const auto [token, count] = MostFrequent();
    if (count == 0) break;
    probability *= static_cast<float>(count) / static_cast<float>(followed_.size());
    if (probability < limits.least_probability) break;
    guess.token_ids.push_back(token);
    guess.score += probability;
    const TokenId taken = token;
    std::erase_if(followed_, [taken](const Place& place) {
      return !place.has_next() || place.next() != taken;
    });
    for (Place& place : followed_) ++place.end;
    ++depth;
  }
  return guess;
}

std::pair<TokenId, size_t> SuffixIndex::MostFrequent() {
  nexts_.clear();
  for (const Place& place : followed_) {
    if (place.has_next()) nexts_.emplace_back(place.next(), place.sequence->times[place.end]);
  }
  std::ranges::sort(nexts_);
  TokenId best = 0;
  size_t most = 0;
  int64_t since = 0;  // when `best` was that frequent
  for (size_t begin = 0, end = 0; begin < nexts_.size(); begin = end) {
    while (end < nexts_.size() && nexts_[end].first == nexts_[begin].first) ++end;
    const size_t count = end - begin;
    const int64_t last = nexts_[end - 1].second;
    if (count > most || (count == most && last < since)) {
      best = nexts_[begin].first;
      most = count;
      since = last;
    }
  }
  return {best, most};
}

}  // namespace tandem
