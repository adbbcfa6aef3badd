#pragma once

// The drafts of method suffix: what most often followed the last tokens, in this request or in the
// outputs of this and earlier requests, whichever is likelier. How many follows from how much
// matches and how sure they are. As vLLM's, with arctic-inference.
// Thread: engine loop. Owns an index of each slot's request, and one of the outputs of the last
// max_cached_requests requests; the oldest leaves first, also while it runs.

#include <deque>

#include "engine_core/speculation/drafter.h"
#include "engine_core/speculation/speculative_config.h"
#include "engine_core/speculation/suffix_index.h"

namespace tandem {

class SuffixDrafter final : public Drafter {
 public:
  SuffixDrafter(int32_t num_slots, const SuffixOptions& options);

  void Begin(int32_t slot, int32_t num_known) override;
  void End(int32_t slot) override;
  void Propose(int32_t slot, std::span<const TokenId> tokens, int32_t most,
               std::vector<TokenId>* drafts) override;

 private:
  static constexpr int64_t kNoSequence = -1;
  static constexpr int64_t kOwn = 0;  // the one sequence of a request's own index

  struct Row {
    SuffixIndex own;
    int64_t sequence_id = kNoSequence;  // in outputs_
    size_t num_known = 0;
    size_t num_taken = 0;
  };
  void TakeIn(std::span<const TokenId> tokens, Row* row);
  void AddSequence(Row* row);

  SuffixOptions options_;
  std::vector<Row> rows_;
  SuffixIndex outputs_;
  std::deque<int64_t> cached_;  // in outputs_, oldest first
  int64_t next_sequence_id_ = 0;
};

}  // namespace tandem
