#include "deploy/cli/hub/pull_progress.h"

#include <algorithm>
#include <cstdio>

#include "common/clock.h"

namespace tandem {
namespace {

constexpr size_t kBarWidth = 30;
constexpr double kRedrawSeconds = 0.2, kLineSeconds = 10;

}  // namespace

std::string BytesText(int64_t bytes) {
  constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return std::to_string(bytes) + " B";
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  for (value /= 1024; value >= 1000 && unit + 1 < std::size(kUnits); ++unit) value /= 1024;
  char text[32];
  std::snprintf(text, sizeof text, value < 10 ? "%.2f %s" : "%.1f %s", value, kUnits[unit]);
  return text;
}

PullProgress::PullProgress(int64_t total, int64_t done, bool is_terminal)
    : total_(total),
      done_before_(done),
      is_terminal_(is_terminal),
      begin_(SystemClock().Monotonic()),
      drawn_at_(is_terminal ? begin_ - kRedrawSeconds : begin_),
      done_(done) {}

std::string PullProgress::Line(double now) const {
  const int64_t done = std::min(done_.load(), total_);
  const double rate = static_cast<double>(done - done_before_) / std::max(now - begin_, 1e-3);
  std::string text = BytesText(done) + " of " + BytesText(total_) + ", " +
                     BytesText(static_cast<int64_t>(rate)) + "/s";
  if (rate > 0) {
    const auto left = static_cast<int64_t>(static_cast<double>(total_ - done) / rate);
    char eta[32];
    std::snprintf(eta, sizeof eta, ", %d:%02d left", static_cast<int>(left / 60),
                  static_cast<int>(left % 60));
    text += eta;
  }
  if (!is_terminal_) return text;
  const auto filled = static_cast<size_t>(
      total_ == 0 ? kBarWidth
                  : static_cast<double>(done) / static_cast<double>(total_) * kBarWidth);
  return "[" + std::string(filled, '#') + std::string(kBarWidth - filled, '.') + "] " + text;
}

void PullProgress::Draw() {
  const double now = SystemClock().Monotonic();
  if (now - drawn_at_ < (is_terminal_ ? kRedrawSeconds : kLineSeconds)) return;
  drawn_at_ = now;
  std::fprintf(stderr, is_terminal_ ? "\r\x1b[K%s" : "%s\n", Line(now).c_str());
}

void PullProgress::Clear() const {
  if (is_terminal_) std::fputs("\r\x1b[K", stderr);
}

}  // namespace tandem
