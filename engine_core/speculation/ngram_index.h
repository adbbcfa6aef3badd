#pragma once

// Where the runs of min to max tokens of one request occurred first. A drafter looks up the last
// tokens in it: what followed them there may follow them again. The rule is vLLM's: the longest run
// that occurred before wins, and of its places the first; the places may overlap the tail.
// Thread: engine loop. Cost per token: max - min + 1 insertions into hash tables of positions, some
// 20 ns each while they fit a cache; 8 bytes per token and length. Tables are keyed by a process's
// seed, so that no client can construct prompts that collide.

#include <cstdint>
#include <span>
#include <vector>

#include "common/ids.h"

namespace tandem {

class NgramIndex {
 public:
  // REQUIRES: 1 <= min_tokens <= max_tokens.
  NgramIndex(int32_t min_tokens, int32_t max_tokens, uint64_t seed);

  // Starts a new request.
  void Clear();
  // Takes in the tokens that it has not seen, and returns the position after the earlier place of
  // the longest run at their end; -1: none of these runs occurred before.
  // REQUIRES: the tokens of the last call, and others after them.
  int32_t Find(std::span<const TokenId> tokens);

 private:
  // The end of the first place of each run of one length. Open addressing; 0: free.
  struct Table {
    std::vector<int32_t> ends;
    size_t num_used = 0;
  };

  // The first end of the run that ends at `end`, which is entered if it is new.
  int32_t Enter(std::span<const TokenId> tokens, int32_t end, int32_t length, uint64_t hash);
  // The longest run that ends at `end`, and all shorter ones.
  int32_t EnterAll(std::span<const TokenId> tokens, int32_t end);
  void Grow(std::span<const TokenId> tokens, int32_t length, Table* table);

  int32_t min_tokens_, max_tokens_;
  uint64_t seed_;
  int32_t num_taken_ = 0;
  std::vector<Table> tables_;  // by length - min_tokens
};

}  // namespace tandem
