#pragma once

// A beam search: the most likely continuations of a prompt among those that are found by following
// `width` of them at a time. In each step every live beam is continued by its
// most likely tokens; the best `width` of all these live on, and those that end are kept aside.
// As in vLLM, a beam's score is the sum of its logprobs over the number of its tokens, the end
// token among them, raised to length_penalty. Pure: logprobs go in, beams come out. Thread: any one
// at a time. Units: tokens.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "common/ids.h"
#include "frontend/openai/responses.h"

namespace tandem {

struct BeamOptions {
  int width = 1;
  double length_penalty = 1;
  std::vector<TokenId> end_ids;  // each ends a beam; empty: nothing does
  // How many of the most likely tokens the response shows at each; -1: all. Empty: none.
  std::optional<int64_t> num_logprobs;
  // Ascending; no other token continues a beam, or ends it. Empty: any may.
  std::vector<TokenId> allowed_ids = {};

  // The most likely tokens of each beam that a step needs: `width` that do not end it are among
  // them.
  int64_t num_candidates() const {
    return width + std::max<int64_t>(width, static_cast<int64_t>(end_ids.size()));
  }
};

struct Beam {
  std::vector<TokenId> token_ids;  // of the output, with the end token
  double sum_logprobs = 0;
  bool has_ended = false;  // by an end token
  // What the step that made each token gave; siblings share it. Empty without num_logprobs.
  std::vector<std::shared_ptr<const PositionLogprobs>> logprobs;
};

class BeamSearch {
 public:
  // max_tokens: of the output, at least 1.
  BeamSearch(const BeamOptions& options, int64_t max_tokens);

  // Whether Best is final: no live beam can become one of the best any more.
  bool is_done() const;
  // The beams whose next tokens are needed.
  const std::vector<Beam>& live() const { return live_; }
  // positions: the logprobs of the tokens after each live beam; of all that are allowed, where only
  // some are. REQUIRES: !is_done().
  void Advance(std::vector<PositionLogprobs> positions);
  // The best beams so far, at most `width`, the best first. Fewer where fewer tokens are allowed.
  std::vector<Beam> Best() const;

 private:
  double ScoreOf(double sum_logprobs, int64_t num_tokens) const;
  double ScoreOf(const Beam& beam) const;
  void Keep(Beam ended);

  const BeamOptions options_;
  const int64_t max_tokens_;
  int64_t num_steps_ = 0;
  std::vector<Beam> live_;
  std::vector<Beam> ended_;  // the best of them, best first, at most `width`
};

}  // namespace tandem
