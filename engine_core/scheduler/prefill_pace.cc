#include "engine_core/scheduler/prefill_pace.h"

#include <algorithm>
#include <bit>
#include <utility>

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
// By which the median follows a step that took more, or less.
constexpr double kMedianStep = 1.02;

// A clock that stood still must not read as "not known".
constexpr double kLeastSeconds = 1e-9;

void Fold(double observed, double* estimate) {
  *estimate = *estimate == 0 ? observed : *estimate + kWeight * (observed - *estimate);
}

}  // namespace

PrefillPace::Decodes& PrefillPace::Of(int32_t num_decodes) {
  const auto bucket = std::bit_width(static_cast<uint32_t>(num_decodes - 1));
  return decodes_[std::min(static_cast<size_t>(bucket), decodes_.size() - 1)];
}

double PrefillPace::TimeLeft(const StepTimeLimit& limit, double seconds_without) const {
  const double most = std::max(limit.decode_steps, limit.most_decode_steps);
  const double decode_steps = std::min(limit.decode_steps * median_, most);
  return std::max(limit.seconds, decode_steps * seconds_without) - seconds_without;
}

int32_t PrefillPace::TokensOfNextStep(int32_t num_decodes, bool is_image_under_way) {
  if (!limit_.is_on() || num_decodes == 0) return kNoLimit;
  Decodes& decodes = Of(num_decodes);
  const bool is_old = decodes.seconds == 0 || decodes.num_since >= kLookEvery;
  if (is_old && decodes.num_held < kMostHeld) {
    ++decodes.num_held;
    return 0;
  }
  if (seconds_per_token_ == 0) return kFirstTokens;
  const double share = is_image_under_way ? 0.5 : 1;
  const double num_tokens = share * TimeLeft(limit_, decodes.seconds) / seconds_per_token_;
  if (num_tokens >= kNoLimit) return kNoLimit;
  if (num_tokens < kLeastTokens) return kLeastTokens;
  return static_cast<int32_t>(num_tokens) / kGranule * kGranule;
}

int32_t PrefillPace::SlicesOfNextStep(int32_t num_decodes) {
  if (!image_limit_.is_on()) return kNoLimit;
  if (seconds_per_slice_ == 0) return 1;
  const double without = num_decodes > 0 ? Of(num_decodes).seconds : 0;
  const bool shares = limit_.is_on() && num_decodes > 0 && had_tokens_;
  const double num_slices =
      (shares ? 0.5 : 1) * TimeLeft(image_limit_, without) / seconds_per_slice_;
  return static_cast<int32_t>(std::clamp<double>(num_slices, 1, kNoLimit));
}

void PrefillPace::Observe(int32_t num_decodes, int32_t num_prefill_tokens, double seconds,
                          int32_t num_slices) {
  had_tokens_ = num_prefill_tokens > 0;
  seconds = std::max(seconds, kLeastSeconds);
  double without = 0;
  if (num_decodes > 0) {
    Decodes& decodes = Of(num_decodes);
    if (decodes.seconds > 0) ObserveMedian(seconds / decodes.seconds);
    if (num_prefill_tokens == 0 && num_slices == 0) return ObserveWithout(seconds, &decodes);
    ++decodes.num_since;
    if (decodes.num_since >= 2 * kLookEvery) decodes.num_since = decodes.num_held = 0;
    without = decodes.seconds;
    if (without == 0 && num_slices == 0) return;
  }
  ObserveWith(without, num_prefill_tokens, num_slices, seconds);
}

// Up by as many steps above it as down by steps below: that is where half of them are.
void PrefillPace::ObserveMedian(double num_decode_steps) {
  median_ *= num_decode_steps > median_ ? kMedianStep : 1 / kMedianStep;
  const double most = limit_.decode_steps > 0 ? limit_.most_decode_steps / limit_.decode_steps : 1;
  median_ = std::clamp(median_, 1.0, std::max(1.0, most));
}

// A step of a new size may touch pages for the first time, and a process may have been stopped: a
// time that is far from what is known counts once a second look has confirmed it.
void PrefillPace::ObserveWithout(double seconds, Decodes* decodes) {
  decodes->num_since = decodes->num_held = 0;
  const double known = decodes->seconds, doubted = std::exchange(decodes->doubted_seconds, 0);
  if (seconds >= known / 2 && seconds <= 2 * known) {
    Fold(seconds, &decodes->seconds);
  } else if (doubted == 0) {
    decodes->doubted_seconds = seconds;
    decodes->num_since = kLookEvery;
  } else {
    decodes->seconds = std::clamp(known, std::min(seconds, doubted), std::max(seconds, doubted));
  }
}

// What tokens and slices add. Never 0, which means unknown.
void PrefillPace::ObserveWith(double without, int32_t num_tokens, int32_t num_slices,
                              double seconds) {
  if (num_slices == 0) {
    if (num_tokens < kLeastObserved) return;
    Fold(std::max(seconds - without, 1e-3 * seconds) / num_tokens, &seconds_per_token_);
    return;
  }
  without += num_tokens * seconds_per_token_;
  Fold(std::max(seconds - without, 1e-3 * seconds) / num_slices, &seconds_per_slice_);
}

void PrefillPace::Save(ByteWriter* out) const {
  out->Fixed(decodes_);
  out->Fixed(seconds_per_token_);
  out->Fixed(seconds_per_slice_);
  out->Fixed(median_);
  out->Fixed(had_tokens_);
}

void PrefillPace::Load(ByteReader* in) {
  decodes_ = in->Fixed<decltype(decodes_)>();
  seconds_per_token_ = in->Fixed<double>();
  seconds_per_slice_ = in->Fixed<double>();
  median_ = in->Fixed<double>();
  had_tokens_ = in->Fixed<uint8_t>() != 0;
}

}  // namespace tandem
