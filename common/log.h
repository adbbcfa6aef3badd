#pragma once

// Process log on stdout, through spdlog. One layout for both processes:
//   (EngineCore pid=123) INFO 11-20 13:02:11 [scheduler.cc:42] message
// A message of several lines repeats the prefix on each. Thread: any, after InitLog in main.
// Levels: DEBUG INFO WARNING ERROR; the flags choose one. FATAL is shown at every level: it is the
// last line of a process that then exits. Prompts and outputs are logged at DEBUG only: they
// are the users' own.

#include <string_view>

#include "common/status.h"

namespace tandem {

enum class LogLevel { kDebug, kInfo, kWarning, kError, kFatal };

// Also names the process (PR_SET_NAME), so that ps and gdb show it.
Status InitLog(std::string_view process_name, std::string_view level = "INFO");
bool LogEnabled(LogLevel level);
void LogLine(LogLevel level, const char* file, int line, std::string_view message);
// Names the calling thread (at most 15 characters are kept).
void SetThreadName(std::string_view name);

namespace internal {

class LogMessage {
 public:
  LogMessage(LogLevel level, const char* file, int line)
      : level_(level), file_(file), line_(line) {}
  ~LogMessage() { LogLine(level_, file_, line_, stream_.str()); }
  std::ostream& stream() { return stream_; }

 private:
  LogLevel level_;
  const char* file_;
  int line_;
  std::ostringstream stream_;
};

}  // namespace internal

#define LOG_AT(level)                   \
  !::tandem::LogEnabled(level)          \
      ? (void)0                         \
      : ::tandem::internal::Voidify() & \
            ::tandem::internal::LogMessage(level, __FILE__, __LINE__).stream()
#define LOG_DEBUG LOG_AT(::tandem::LogLevel::kDebug)
#define LOG_INFO LOG_AT(::tandem::LogLevel::kInfo)
#define LOG_WARNING LOG_AT(::tandem::LogLevel::kWarning)
#define LOG_ERROR LOG_AT(::tandem::LogLevel::kError)
#define LOG_FATAL LOG_AT(::tandem::LogLevel::kFatal)

}  // namespace tandem
