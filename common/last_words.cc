#include "common/last_words.h"

#include <limits.h>
#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>

#include "common/clock.h"
#include "common/log_state.h"
#include "common/log_thread.h"
#include "common/utf8.h"

namespace tandem {
namespace {

constexpr int kPatienceMs = 1000;

// A line without the heap, whose lock the process may have died with. A pipe that has room at all
// takes as much without waiting.
class Line {
 public:
  void Put(std::string_view text) {
    for (const char c : text.substr(0, sizeof text_ - size_)) text_[size_++] = c;
  }
  // With zeros in front up to the width.
  void Put(int64_t number, int width = 1) {
    char digits[24];
    int count = 0;
    for (; number > 0 || count < width; number /= 10) {
      digits[count++] = static_cast<char>('0' + number % 10);
    }
    while (count > 0) Put(std::string_view(&digits[--count], 1));
  }
  // Leaves room for `after`.
  void PutJson(std::string_view text, size_t after) {
    constexpr size_t kLongest = 6;  // of one character
    for (size_t pos = 0; pos < text.size() && size_ + kLongest + after <= sizeof text_;) {
      const Utf8Sequence next = ReadUtf8(text, pos);
      const std::string_view bytes = text.substr(pos, next.size);
      pos += next.size;
      if (next.code_point == '\n') {
        Put("\\n");
      } else if (next.code_point < 0x20) {
        Put(" ");
      } else if (next.code_point == '"' || next.code_point == '\\') {
        Put("\\");
        Put(bytes);
      } else {
        Put(next.well_formed ? bytes : "\xEF\xBF\xBD");
      }
    }
  }
  std::string_view text() const { return {text_, size_}; }

 private:
  char text_[PIPE_BUF];
  size_t size_ = 0;
};

// "2026-11-20T13:02:11.042Z", without the locks of gmtime.
void PutTime(Line* line) {
  const double now = SystemClock().Unix();
  const auto whole = static_cast<int64_t>(now);
  const std::chrono::sys_seconds time{std::chrono::seconds(whole)};
  const auto day = std::chrono::floor<std::chrono::days>(time);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss clock(time - day);
  line->Put(int{date.year()}, 4);
  line->Put("-");
  line->Put(unsigned{date.month()}, 2);
  line->Put("-");
  line->Put(unsigned{date.day()}, 2);
  line->Put("T");
  line->Put(clock.hours().count(), 2);
  line->Put(":");
  line->Put(clock.minutes().count(), 2);
  line->Put(":");
  line->Put(clock.seconds().count(), 2);
  line->Put(".");
  line->Put(static_cast<int64_t>((now - static_cast<double>(whole)) * 1000), 3);
  line->Put("Z");
}

// As common/log_json.h has every line.
void PutJsonLine(std::string_view text, Line* line) {
  constexpr std::string_view kEnd = "\"}\n";
  line->Put("{\"asctime\":\"");
  PutTime(line);
  line->Put(
      "\",\"levelname\":\"FATAL\",\"name\":\"tandem.last_words\",\"lineno\":0,\"processName\":\"");
  line->Put(LogProcessName());
  line->Put("\",\"process\":");
  line->Put(int64_t{getpid()});
  line->Put(",\"message\":\"");
  if (text.ends_with('\n')) text.remove_suffix(1);
  line->PutJson(text, kEnd.size());
  line->Put(kEnd);
}

}  // namespace

void WriteLastWords(std::string_view text) {
  FlushLog();
  pollfd room = {STDERR_FILENO, POLLOUT, 0};
  if (poll(&room, 1, kPatienceMs) <= 0) return;
  Line line;
  if (LogIsJson()) {
    PutJsonLine(text, &line);
  } else {
    line.Put(text);
  }
  text = line.text();
  [[maybe_unused]] const ssize_t ignored = write(STDERR_FILENO, text.data(), text.size());
}

}  // namespace tandem
