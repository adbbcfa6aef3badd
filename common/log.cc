#include "common/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "common/log_level.h"
#include "common/strings.h"

namespace tandem {
namespace {

std::string& ProcessName() {
  static std::string name = "tandem";
  return name;
}

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

}  // namespace

Status SetLogLevel(std::string_view level) {
  ASSIGN_OR_RETURN(const spdlog::level::level_enum parsed, ParseLevel(level));
  spdlog::default_logger_raw()->set_level(parsed);
  return OkStatus();
}

Status InitLog(std::string_view process_name, std::string_view level) {
  ASSIGN_OR_RETURN(const spdlog::level::level_enum parsed, ParseLevel(level));
  ProcessName() = std::string(process_name);
  SetThreadName(process_name);
  auto sink = std::make_shared<spdlog::sinks::stdout_sink_mt>();
  auto logger = std::make_shared<spdlog::logger>("tandem", std::move(sink));
  logger->set_level(parsed);
  logger->set_pattern("%v");
  logger->flush_on(spdlog::level::debug);
  spdlog::set_default_logger(std::move(logger));
  return OkStatus();
}

bool LogEnabled(LogLevel level) { return spdlog::should_log(ToSpdlog(level)); }

void LogLine(LogLevel level, const char* file, int line, std::string_view message) {
  std::string_view base(file);
  if (const size_t slash = base.rfind('/'); slash != base.npos) base.remove_prefix(slash + 1);
  const time_t now = time(nullptr);
  tm local;
  localtime_r(&now, &local);
  char stamp[20];
  strftime(stamp, sizeof stamp, "%m-%d %H:%M:%S", &local);
  const std::string prefix = fmt::format("({} pid={}) {} {} [{}:{}] ", ProcessName(), getpid(),
                                         LevelName(level), stamp, base, line);
  for (std::string_view rest = message; !rest.empty();) {
    const size_t end = rest.find('\n');
    spdlog::default_logger_raw()->log(ToSpdlog(level), "{}{}", prefix, rest.substr(0, end));
    if (end == rest.npos) break;
    rest.remove_prefix(end + 1);
  }
}

void SetThreadName(std::string_view name) {
  const std::string text(name.substr(0, 15));
  prctl(PR_SET_NAME, text.c_str(), 0, 0, 0);
}

}  // namespace tandem
