#include "frontend/processing/beam_search.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/check.h"

namespace tandem {
namespace {

struct Candidate {
  double sum_logprobs = 0;
  size_t beam_idx = 0;
  TokenId token_id = 0;
};

// Leaves the tokens that are allowed and can come at all, the most likely first.
void KeepAllowed(const std::vector<TokenId>& allowed_ids, PositionLogprobs* position) {
  std::erase_if(position->top, [&](const ScoredToken& token) {
    return token.logprob <= kLowestLogprob ||
           !std::binary_search(allowed_ids.begin(), allowed_ids.end(), token.token_id);
  });
  std::stable_sort(
      position->top.begin(), position->top.end(),
      [](const ScoredToken& a, const ScoredToken& b) { return a.logprob > b.logprob; });
}

}  // namespace

BeamSearch::BeamSearch(const BeamOptions& options, int64_t max_tokens)
    : options_(options), max_tokens_(max_tokens), live_(1) {
  CHECK(options.width > 0 && max_tokens > 0);
}

double BeamSearch::ScoreOf(double sum_logprobs, int64_t num_tokens) const {
  // There is no token before the first step.
  const auto length = static_cast<double>(std::max<int64_t>(num_tokens, 1));
  return sum_logprobs / std::pow(length, options_.length_penalty);
}

double BeamSearch::ScoreOf(const Beam& beam) const {
  return ScoreOf(beam.sum_logprobs, static_cast<int64_t>(beam.token_ids.size()));
}

// A sum of logprobs only falls, so a beam's score can rise no higher than by its length alone.
bool BeamSearch::is_done() const {
  if (live_.empty() || num_steps_ == max_tokens_) return true;
  if (ended_.size() < static_cast<size_t>(options_.width)) return false;
  const double needed = ScoreOf(ended_.back());
  return std::all_of(live_.begin(), live_.end(), [&](const Beam& beam) {
    const double now = ScoreOf(beam);
    const double longest = ScoreOf(beam.sum_logprobs, max_tokens_);
    return std::max(now, longest) <= needed;
  });
}

void BeamSearch::Advance(std::vector<PositionLogprobs> positions) {
  CHECK_EQ(positions.size(), live_.size());
  std::vector<std::shared_ptr<const PositionLogprobs>> shared;
  shared.reserve(positions.size());
  for (PositionLogprobs& position : positions) {
    if (!options_.allowed_ids.empty()) KeepAllowed(options_.allowed_ids, &position);
    shared.push_back(std::make_shared<const PositionLogprobs>(std::move(position)));
  }
  const auto child = [&](const Candidate& candidate) {
    Beam beam = live_[candidate.beam_idx];
    beam.token_ids.push_back(candidate.token_id);
    beam.sum_logprobs = candidate.sum_logprobs;
    if (options_.num_logprobs) beam.logprobs.push_back(shared[candidate.beam_idx]);
    return beam;
  };
  std::vector<Candidate> candidates;
  for (size_t i = 0; i < live_.size(); ++i) {
    for (const ScoredToken& token : shared[i]->top) {
      const Candidate candidate = {live_[i].sum_logprobs + token.logprob, i, token.token_id};
      if (std::find(options_.end_ids.begin(), options_.end_ids.end(), token.token_id) ==
          options_.end_ids.end()) {
        candidates.push_back(candidate);
        continue;
      }
      Beam ended = child(candidate);
      ended.has_ended = true;
      Keep(std::move(ended));
    }
  }
  // Equals stay in the order of their beams and of their ranks.
  std::stable_sort(
      candidates.begin(), candidates.end(),
      [](const Candidate& a, const Candidate& b) { return a.sum_logprobs > b.sum_logprobs; });
  candidates.resize(std::min(candidates.size(), static_cast<size_t>(options_.width)));
  std::vector<Beam> next;
  next.reserve(candidates.size());
  for (const Candidate& candidate : candidates) next.push_back(child(candidate));
  live_ = std::move(next);
  ++num_steps_;
}

void BeamSearch::Keep(Beam ended) {
  const double score = ScoreOf(ended);
  const auto worse = std::find_if(ended_.begin(), ended_.end(),
                                  [&](const Beam& other) { return ScoreOf(other) < score; });
  ended_.insert(worse, std::move(ended));
  if (ended_.size() > static_cast<size_t>(options_.width)) ended_.pop_back();
}

std::vector<Beam> BeamSearch::Best() const {
  std::vector<Beam> best = ended_;
  best.insert(best.end(), live_.begin(), live_.end());
  std::stable_sort(best.begin(), best.end(),
                   [this](const Beam& a, const Beam& b) { return ScoreOf(a) > ScoreOf(b); });
  best.resize(std::min(best.size(), static_cast<size_t>(options_.width)));
  return best;
}

}  // namespace tandem
