#include "common/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "common/check.h"
#include "common/clock.h"
#include "common/log_event.h"
#include "common/log_format.h"
#include "common/log_json.h"
#include "common/log_level.h"
#include "common/log_state.h"
#include "common/log_thread.h"
#include "common/log_writer.h"
#include "common/own_variable.h"
#include "common/strings.h"

namespace tandem {
namespace {

std::string& ProcessName() {
  static std::string& name = *new std::string("tandem");  // outlived by no thread
  return name;
}

// VLLM_LOGGING_PREFIX: before every line of text.
std::string& LinePrefix() {
  static std::string& prefix = *new std::string();
  return prefix;
}

// main sets them before other threads start.
bool writes_json = false;
int log_fd = STDOUT_FILENO;
constexpr const char* kFormatVariable = "TANDEM_LOG_FORMAT";

// Lives as long as the process: its thread may wait for a reader for ever. main sets it before
// other threads start.
LogWriter* log_writer = nullptr;
constexpr double kFlushSeconds = 1;

class WriterSink final : public spdlog::sinks::sink {
 public:
  void log(const spdlog::details::log_msg& message) override {
    std::string line(message.payload.data(), message.payload.size());
    line += '\n';
    log_writer->Write(std::move(line), message.level == spdlog::level::critical);
  }
  void flush() override {}
  void set_pattern(const std::string&) override {}
  void set_formatter(std::unique_ptr<spdlog::formatter>) override {}
};

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
    case LogLevel::kFatal:
      return spdlog::level::critical;
  }
  return spdlog::level::info;
}

std::string_view LevelName(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "DEBUG";
    case LogLevel::kInfo:
      return "INFO";
    case LogLevel::kWarning:
      return "WARNING";
    case LogLevel::kError:
      return "ERROR";
    case LogLevel::kFatal:
      return "FATAL";
  }
  return "INFO";
}

StatusOr<spdlog::level::level_enum> ParseLevel(std::string_view level) {
  const std::string lower = ToLower(level);
  if (lower == "debug") return spdlog::level::debug;
  if (lower == "info") return spdlog::level::info;
  if (lower == "warning" || lower == "warn") return spdlog::level::warn;
  if (lower == "error" || lower == "critical") return spdlog::level::err;
  return InvalidArgumentError("log level is '" + std::string(level) +
                              "', must be DEBUG, INFO, WARNING or ERROR");
}

// vLLM's names of Python's streams, or ours.
StatusOr<int> StreamFromEnvironment() {
  const std::optional<OwnVariable> stream = FindOwnVariable("LOGGING_STREAM");
  if (!stream || stream->value == "stdout" || stream->value == "ext://sys.stdout") {
    return STDOUT_FILENO;
  }
  if (stream->value == "stderr" || stream->value == "ext://sys.stderr") return STDERR_FILENO;
  return InvalidArgumentError(stream->name + " is '" + stream->value +
                              "', must be ext://sys.stdout or ext://sys.stderr");
}

}  // namespace

const std::vector<std::string_view>& LogLevelNames() {
  static const std::vector<std::string_view> names = {"DEBUG",   "INFO",     "WARNING", "WARN",
                                                      "ERROR",   "CRITICAL", "debug",   "info",
                                                      "warning", "warn",     "error",   "critical"};
  return names;
}

Status SetLogLevel(std::string_view level) {
  ASSIGN_OR_RETURN(const spdlog::level::level_enum parsed, ParseLevel(level));
  spdlog::default_logger_raw()->set_level(parsed);
  return OkStatus();
}

Status InitLog(std::string_view process_name, std::string_view level) {
  ASSIGN_OR_RETURN(const spdlog::level::level_enum parsed, ParseLevel(level));
  ASSIGN_OR_RETURN(log_fd, StreamFromEnvironment());
  if (auto prefix = FindOwnVariable("LOGGING_PREFIX")) LinePrefix() = std::move(prefix->value);
  ProcessName() = std::string(process_name);
  SetThreadName(process_name);
  spdlog::sink_ptr sink;
  if (log_fd == STDERR_FILENO) {
    sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  } else {
    sink = std::make_shared<spdlog::sinks::stdout_sink_mt>();
  }
  auto logger = std::make_shared<spdlog::logger>("tandem", std::move(sink));
  logger->set_level(parsed);
  logger->set_pattern("%v");
  logger->flush_on(spdlog::level::debug);
  spdlog::set_default_logger(std::move(logger));
  return OkStatus();
}

bool LogEnabled(LogLevel level) { return spdlog::should_log(ToSpdlog(level)); }

void LogLine(LogLevel level, const char* file, int line, std::string_view message) {
  LogLineWithFields(level, file, line, message, {});
}

namespace {

std::string TextPrefix(LogLevel level, std::string_view file, int line) {
  const time_t now = time(nullptr);
  tm local;
  localtime_r(&now, &local);
  char stamp[20];
  strftime(stamp, sizeof stamp, "%m-%d %H:%M:%S", &local);
  return fmt::format("{}({} pid={}) {} {} [{}:{}] ", LinePrefix(), ProcessName(), getpid(),
                     LevelName(level), stamp, file, line);
}

// As text every line has the prefix.
void WriteText(LogLevel level, std::string_view file, int line, std::string_view message) {
  const std::string prefix = TextPrefix(level, file, line);
  for (std::string_view rest = message; !rest.empty();) {
    const size_t end = rest.find('\n');
    spdlog::default_logger_raw()->log(ToSpdlog(level), "{}{}", prefix, rest.substr(0, end));
    if (end == rest.npos) break;
    rest.remove_prefix(end + 1);
  }
}

std::string JsonText(LogLevel level, std::string_view file, int line, std::string_view message,
                     const std::vector<LogField>& fields) {
  return JsonLogLine({.unix_time = SystemClock().Unix(),
                      .level = LevelName(level),
                      .file = file,
                      .line = line,
                      .process_name = ProcessName(),
                      .process_id = getpid(),
                      .message = message,
                      .fields = &fields});
}

std::string LineOfMissing(int64_t num_missing) {
  constexpr std::string_view kFile = "log.cc";
  const std::string message =
      std::to_string(num_missing) +
      " lines of this log are missing here: it was not read, or could not be written";
  constexpr LogLevel kLevel = LogLevel::kWarning;
  return (writes_json ? JsonText(kLevel, kFile, __LINE__, message, {})
                      : TextPrefix(kLevel, kFile, __LINE__) + message) +
         "\n";
}

}  // namespace

void StartLogThread() {
  CHECK(log_writer == nullptr);
  log_writer = new LogWriter(log_fd, LineOfMissing);
  spdlog::default_logger_raw()->sinks() = {std::make_shared<WriterSink>()};
  std::atexit(FlushLog);
}

void FlushLog() {
  if (log_writer != nullptr) log_writer->Flush(kFlushSeconds);
}

void ExitAfterLog(int exit_status) {
  FlushLog();
  _exit(exit_status);
}

void LogLineWithFields(LogLevel level, const char* file, int line, std::string_view message,
                       const std::vector<LogField>& fields) {
  std::string_view base(file);
  if (const size_t slash = base.rfind('/'); slash != base.npos) base.remove_prefix(slash + 1);
  if (writes_json) {
    const std::string text = JsonText(level, base, line, message, fields);
    spdlog::default_logger_raw()->log(ToSpdlog(level), "{}", text);
    return;
  }
  std::string text(message);
  for (const LogField& field : fields) {
    if (field.where == LogField::kOnlyJson) continue;
    text.append(" ").append(field.name).append("=");
    text += field.value.empty() && !field.is_text ? "-" : field.value;
  }
  WriteText(level, base, line, text);
}

namespace {

// "" for what is no number in JSON.
std::string Milliseconds(double seconds) {
  if (!std::isfinite(seconds)) return "";
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", seconds * 1e3);
  return text;
}

}  // namespace

LogEvent& LogEvent::AddMs(std::string_view name, const std::optional<double>& seconds) {
  return Append({name, seconds ? Milliseconds(*seconds) : ""});
}

LogEvent& LogEvent::AddMsToJson(std::string_view name, double seconds) {
  return Append({name, Milliseconds(seconds), /*is_text=*/false, LogField::kOnlyJson});
}

bool LogIsJson() { return writes_json; }

std::string_view LogProcessName() { return ProcessName(); }

Status SetLogFormat(std::string_view format) {
  if (format != "text" && format != "json") {
    return InvalidArgumentError("log format is '" + std::string(format) +
                                "', must be text or json");
  }
  writes_json = format == "json";
  setenv(kFormatVariable, writes_json ? "json" : "text", /*overwrite=*/1);
  return OkStatus();
}

void InheritLogFormat() {
  const char* format = std::getenv(kFormatVariable);
  writes_json = format != nullptr && std::string_view(format) == "json";
}

void SetThreadName(std::string_view name) {
  const std::string text(name.substr(0, 15));
  prctl(PR_SET_NAME, text.c_str(), 0, 0, 0);
}

}  // namespace tandem
