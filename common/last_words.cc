#include "common/last_words.h"

#include <limits.h>
#include <poll.h>
#include <unistd.h>

#include "common/log_thread.h"

namespace tandem {
namespace {

constexpr int kPatienceMs = 1000;

}  // namespace

void WriteLastWords(std::string_view text) {
  FlushLog();
  pollfd room = {STDERR_FILENO, POLLOUT, 0};
  if (poll(&room, 1, kPatienceMs) <= 0) return;
  // A pipe that has room at all takes as much without waiting.
  text = text.substr(0, PIPE_BUF);
  [[maybe_unused]] const ssize_t ignored = write(STDERR_FILENO, text.data(), text.size());
}

}  // namespace tandem
