#pragma once

// Sequences of tokens, and what most often followed the last tokens of a text in them. Counts are
// those of a suffix tree of limited depth (Oliaro et al., "SuffixDecoding", 2024), taken from lists
// of the places of each token instead: 12 bytes per token in place of a node per token and depth.
// Thread: engine loop. A guess looks at the newest kMostPlaces places of the last token, and reads
// only those that match further; the cost does not grow with the number of sequences.

#include <cstdint>
#include <span>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include "common/ids.h"

namespace tandem {

class SuffixIndex {
 public:
  // Strings of up to max_depth tokens count, the guessed ones included.
  explicit SuffixIndex(int32_t max_depth) : max_depth_(max_depth) {}

  // An empty sequence. REQUIRES: the id is not in use.
  void Add(int64_t sequence_id) { sequences_[sequence_id]; }
  void Append(int64_t sequence_id, std::span<const TokenId> tokens);
  void Remove(int64_t sequence_id);
  void Clear();

  struct Limits {
    int32_t num_tokens = 0;         // most tokens of a guess
    double tokens_per_matched = 1;  // and of each token that it follows from
    float least_probability = 0;    // of each
  };
  // The guess with the highest score: the sum of its tokens' probabilities. Of equal ones that
  // which follows from more tokens; of equally frequent tokens the one that was so first.
  struct Guess {
    std::vector<TokenId> token_ids;
    float score = 0;
  };
  Guess Find(std::span<const TokenId> context, const Limits& limits);

 private:
  static constexpr size_t kMostPlaces = 512;

  struct Sequence {
    std::vector<TokenId> token_ids;
    std::vector<int64_t> times;  // when each was appended, over all sequences
  };
  // After a token of a sequence.
  struct Place {
    const Sequence* sequence = nullptr;
    size_t end = 0;
    bool has_next() const { return end < sequence->token_ids.size(); }
    TokenId next() const { return sequence->token_ids[end]; }
  };
  struct StoredPlace {
    int64_t sequence_id = 0;
    int32_t end = 0;
  };

  void FindPlaces(TokenId token);
  // What follows places_, which all follow `depth` equal tokens.
  Guess Follow(size_t depth, const Limits& limits, size_t most);
  // The most frequent token that follows followed_, and how often.
  std::pair<TokenId, size_t> MostFrequent();
  void DropDeadPlaces();

  int32_t max_depth_;
  int64_t now_ = 0;
  absl::flat_hash_map<int64_t, Sequence> sequences_;
  absl::flat_hash_map<TokenId, std::vector<StoredPlace>> places_of_;  // oldest first
  size_t num_live_ = 0, num_dead_ = 0;                                // of these
  std::vector<Place> places_, followed_;
  std::vector<std::pair<TokenId, int64_t>> nexts_;  // tokens after followed_, and their times
};

}  // namespace tandem
