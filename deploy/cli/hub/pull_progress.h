#pragma once

// Shows on stderr how far a download is: a line that is redrawn on a terminal, elsewhere a line
// every ten seconds. Thread: Add any; the others the one that draws.

#include <atomic>
#include <cstdint>
#include <string>

namespace tandem {

class PullProgress {
 public:
  // total: bytes in all, of which `done` are there.
  PullProgress(int64_t total, int64_t done, bool is_terminal);

  void Add(int64_t bytes) { done_ += bytes; }
  // Draws what is due by now. To be called a few times a second.
  void Draw();
  // Takes the line off the terminal.
  void Clear() const;

 private:
  std::string Line(double now) const;

  const int64_t total_, done_before_;
  const bool is_terminal_;
  const double begin_;
  double drawn_at_;
  std::atomic<int64_t> done_;
};

// "1.3 GiB".
std::string BytesText(int64_t bytes);

}  // namespace tandem
