#include "deploy/cli/bench/progress_bar.h"

#include <cstdio>
#include <string>

#include "common/clock.h"

namespace tandem {
namespace {

constexpr size_t kBarWidth = 30;

}  // namespace

ProgressBar::ProgressBar(size_t total, bool visible)
    : total_(total), visible_(visible), begin_(SystemClock().Monotonic()) {}

void ProgressBar::Show(size_t num_done, size_t num_failed) {
  if (!visible_) return;
  const double seconds = SystemClock().Monotonic() - begin_;
  const size_t filled = total_ == 0 ? kBarWidth : kBarWidth * num_done / total_;
  const std::string bar = std::string(filled, '#') + std::string(kBarWidth - filled, '.');
  std::fprintf(stderr, "\r[%s] %zu/%zu  %.1f s  %.2f/s", bar.c_str(), num_done, total_, seconds,
               seconds > 0 ? static_cast<double>(num_done) / seconds : 0);
  if (num_failed > 0) std::fprintf(stderr, "  %zu failed", num_failed);
  std::fflush(stderr);
}

void ProgressBar::Finish() {
  if (visible_) std::fputs("\r\x1b[K", stderr);
}

}  // namespace tandem
