#include "common/log_writer.h"

#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "common/clock.h"
#include "common/log.h"

namespace tandem {
namespace {

// False when it could not be written.
bool WriteAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<size_t>(written));
    } else if (errno == EAGAIN) {  // another process that has the descriptor made it so
      pollfd room = {fd, POLLOUT, 0};
      poll(&room, 1, -1);
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

// Started with all signals blocked but those of the thread's own mistakes: others are for threads
// that wait for them.
std::thread StartQuietThread(std::function<void()> run) {
  sigset_t others, before;
  sigfillset(&others);
  for (const int own : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigdelset(&others, own);
  pthread_sigmask(SIG_BLOCK, &others, &before);
  std::thread thread(std::move(run));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace

LogWriter::LogWriter(int fd, LineOfMissing line_of_missing)
    : fd_(fd),
      line_of_missing_(std::move(line_of_missing)),
      thread_(StartQuietThread([this] { Run(); })) {}

LogWriter::~LogWriter() {
  lines_.Close();
  thread_.join();
}

void LogWriter::Write(std::string line, bool is_last_word) {
  const auto bytes = static_cast<int64_t>(line.size());
  if (waiting_bytes_.fetch_add(bytes) + bytes > kMaxWaitingBytes && !is_last_word) {
    waiting_bytes_ -= bytes;
    ++num_dropped_;
    return;
  }
  ++num_taken_;
  lines_.Push({std::move(line), num_dropped_.exchange(0)});
}

bool LogWriter::Flush(double limit_s) const {
  const uint32_t wanted = num_taken_;
  const SystemClock clock;
  const double deadline = clock.Monotonic() + limit_s;
  is_awaited_ = true;
  while (true) {
    const uint32_t done = num_done_;
    if (static_cast<int32_t>(wanted - done) <= 0) return true;
    const double left_s = deadline - clock.Monotonic();
    if (left_s <= 0) return false;
    FutexWait(num_done_, done, std::max(1, static_cast<int>(left_s * 1e3)));
  }
}

void LogWriter::Run() {
  SetThreadName("log");
  std::vector<Line> lines;
  while (!lines_.closed()) {
    lines_.Wait();
    while (lines_.Drain(&lines)) WriteLines(lines);
    num_missing_ += num_dropped_.exchange(0);
    WriteChunk("", 0);
  }
}

// Of a pipe, PIPE_BUF bytes are written as a whole, so lines of several processes do not mix.
void LogWriter::WriteLines(const std::vector<Line>& lines) {
  std::string chunk;
  int num_lines = 0;
  const auto write = [&] {
    WriteChunk(chunk, num_lines);
    chunk.clear();
    num_lines = 0;
  };
  for (const Line& line : lines) {
    if (line.num_missing > 0 || chunk.size() + line.text.size() > PIPE_BUF) write();
    num_missing_ += line.num_missing;
    chunk += line.text;
    ++num_lines;
  }
  write();
}

void LogWriter::WriteChunk(std::string_view text, int num_lines) {
  if (num_missing_ > 0 && WriteAll(fd_, line_of_missing_(num_missing_))) num_missing_ = 0;
  // While the missing ones cannot be reported, nothing after them can be written either.
  if (num_missing_ > 0 || !WriteAll(fd_, text)) num_missing_ += num_lines;
  CountDone(text.size(), num_lines);
}

void LogWriter::CountDone(size_t bytes, int num_lines) {
  waiting_bytes_ -= static_cast<int64_t>(bytes);
  num_done_ += static_cast<uint32_t>(num_lines);
  if (is_awaited_) FutexWakeAll(num_done_);
}

}  // namespace tandem
