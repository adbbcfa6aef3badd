#pragma once

// Writes the lines of a log on a thread of its own, so that a reader that stops reading (a full
// pipe, a held terminal, a disk that hangs) holds up nobody else. Lines wait up to a limit. What
// does not fit, or cannot be written, is dropped and counted; the count is a line in the place of
// the missing ones, as soon as lines can be written again.
// Thread: any. The destructor waits until every line was read or its reader has gone: a process
// that ends does not destroy its writer, but flushes it.

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "common/futex.h"
#include "common/mailbox.h"

namespace tandem {

class LogWriter {
 public:
  // Some 30,000 lines: what a busy server writes in minutes.
  static constexpr int64_t kMaxWaitingBytes = int64_t{4} << 20;

  // The line, with its end, that stands for so many missing ones. Called on the writer's thread.
  using LineOfMissing = std::function<std::string(int64_t num_missing)>;

  LogWriter(int fd, LineOfMissing line_of_missing);
  ~LogWriter();
  LogWriter(const LogWriter&) = delete;

  // Never waits. `line` has its end. A last word, of a process that ends itself, is kept also
  // beyond the limit.
  void Write(std::string line, bool is_last_word = false);

  // Waits until all earlier lines were written or dropped, so long at most: false when that was not
  // enough. Also from a signal handler.
  bool Flush(double limit_s) const;

 private:
  struct Line {
    std::string text;
    int64_t num_missing = 0;  // dropped before it
  };

  void Run();
  void WriteLines(const std::vector<Line>& lines);
  void WriteChunk(std::string_view text, int num_lines);
  void CountDone(size_t bytes, int num_lines);

  const int fd_;
  const LineOfMissing line_of_missing_;
  Mailbox<Line> lines_;
  std::atomic<int64_t> waiting_bytes_{0};
  std::atomic<int64_t> num_dropped_{0};  // since the last line that was taken in
  std::atomic<uint32_t> num_taken_{0};
  FutexWord num_done_{0};
  mutable std::atomic<bool> is_awaited_{false};
  int64_t num_missing_ = 0;  // not reported yet; the writer's thread
  std::thread thread_;
};

}  // namespace tandem
