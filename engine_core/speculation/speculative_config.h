#pragma once

// --speculative-config: a JSON object with vLLM's keys, and "adaptive", which is ours.
// Pure; any thread. Failure: INVALID_ARGUMENT that names the key, its value and what is allowed; a
// method that is not built is refused by name.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/status.h"
#include "engine_core/scheduler/scheduler_config.h"

namespace tandem {

enum class DraftMethod { kNone, kNgram, kSuffix, kDraftModel, kEagle, kEagle3, kMtp, kMedusa };

// Of method suffix.
struct SuffixOptions {
  int32_t max_tree_depth = 24;          // longest string whose places are counted
  int32_t max_cached_requests = 10000;  // whose outputs are kept for all; 0: none
  double max_spec_factor = 1;           // drafts per token that matches
  double min_token_prob = 0.1;          // of each draft
};

struct SpeculativeConfig {
  DraftMethod method = DraftMethod::kNone;
  int32_t num_speculative_tokens = 0;  // the most drafts of a request in a step
  // Tokens at the end of a request that are looked for in what comes before them.
  int32_t prompt_lookup_min = 0;
  int32_t prompt_lookup_max = 0;
  SuffixOptions suffix = {};
  std::vector<DraftConfig::FromBatch> by_batch = {};
  // Fewer drafts, or none, where they would not pay (DraftPolicy).
  bool adaptive = true;

  // Of the methods with a model: the drafter's folder (of mtp empty: the target's), and the most
  // tokens of a request that it drafts for.
  std::string model = {};
  std::optional<int32_t> max_model_len = {};
  // Of a head, which reads one token ahead: a cached block is found by the token after it too.
  // Without that the last block of what is found is computed again, or, if kept, not quite right.
  bool hashes_next_token = true;
  bool drops_last_found_block = true;
  // Each draft is drawn as the target's token will be, with the same draw; else the likeliest one.
  bool draws_drafts = false;

  bool enforce_eager = false;  // the drafter's passes are not replayed from graphs

  std::vector<std::string> keys_without_effect = {};  // those of other methods, for a warning

  bool drafts() const { return method != DraftMethod::kNone; }
  bool has_model() const { return method == DraftMethod::kDraftModel || has_head(); }
  // A head over the target's hidden states.
  bool has_head() const { return reads_next_token() || method == DraftMethod::kMedusa; }
  // The keys and values of a position depend on the token after it.
  bool reads_next_token() const {
    return method == DraftMethod::kEagle || method == DraftMethod::kEagle3 ||
           method == DraftMethod::kMtp;
  }
};

// An empty text: no speculation.
StatusOr<SpeculativeConfig> ParseSpeculativeConfig(const std::string& text);

}  // namespace tandem
