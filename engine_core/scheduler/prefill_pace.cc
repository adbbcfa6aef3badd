#include "engine_core/scheduler/prefill_pace.h"

#include <algorithm>
#include <bit>

namespace tandem {
namespace {

// Of an estimate, taken from its newest observation.
constexpr double kWeight = 0.2;
// A busy server may have prompt tokens in every step. One step in so many has none, so that the
// time of a decode step does not stay what it was with other contexts.
constexpr int32_t kLookEvery = 64;
// A step without prompt tokens is seen when its result is there; until then one or two more may
// have been made. After this many the old estimate does.
constexpr int32_t kMostHeld = 4;
// While nothing is known of a token's time.
constexpr int32_t kFirstTokens = 128;
// An observation of fewer prompt tokens says little about one: the step's own cost is in it.
constexpr int32_t kLeastObserved = 8;
// Products take rows in groups.
constexpr int32_t kGranule = 16;

void Fold(double observed, double* estimate) {
  *estimate = *estimate == 0 ? observed : *estimate + kWeight * (observed - *estimate);
}

}  // namespace

PrefillPace::Decodes& PrefillPace::Of(int32_t num_decodes) {
  const auto bucket = std::bit_width(static_cast<uint32_t>(num_decodes - 1));
  return decodes_[std::min(static_cast<size_t>(bucket), decodes_.size() - 1)];
}

int32_t PrefillPace::TokensOfNextStep(int32_t num_decodes) {
  if (!is_on() || num_decodes == 0) return kNoLimit;
  Decodes& decodes = Of(num_decodes);
  const bool is_old = decodes.seconds == 0 || decodes.num_since >= kLookEvery;
  if (is_old && decodes.num_held < kMostHeld) {
    ++decodes.num_held;
    return 0;
  }
  if (seconds_per_token_ == 0) return kFirstTokens;
  const double limit = std::max(limit_.seconds, limit_.decode_steps * decodes.seconds);
  const double num_tokens = (limit - decodes.seconds) / seconds_per_token_;
  if (num_tokens >= kNoLimit) return kNoLimit;
  return std::max(static_cast<int32_t>(num_tokens) / kGranule * kGranule, kLeastTokens);
}

void PrefillPace::Observe(int32_t num_decodes, int32_t num_prefill_tokens, double seconds) {
  double without = 0;
  if (num_decodes > 0) {
    Decodes& decodes = Of(num_decodes);
    if (num_prefill_tokens == 0) {
      Fold(seconds, &decodes.seconds);
      decodes.num_since = decodes.num_held = 0;
      return;
    }
    ++decodes.num_since;
    if (decodes.num_since >= 2 * kLookEvery) decodes.num_since = decodes.num_held = 0;
    without = decodes.seconds;
    if (without == 0) return;
  }
  if (num_prefill_tokens < kLeastObserved) return;
  // Never 0, which means unknown.
  Fold(std::max(seconds - without, 1e-3 * seconds) / num_prefill_tokens, &seconds_per_token_);
}

void PrefillPace::Save(ByteWriter* out) const {
  out->Fixed(decodes_);
  out->Fixed(seconds_per_token_);
}

void PrefillPace::Load(ByteReader* in) {
  decodes_ = in->Fixed<decltype(decodes_)>();
  seconds_per_token_ = in->Fixed<double>();
}

}  // namespace tandem
