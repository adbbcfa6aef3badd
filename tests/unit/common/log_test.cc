#include "common/log.h"

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/log_format.h"
#include "common/log_json.h"
#include "common/log_level.h"
#include "common/utf8.h"
#include "tests/support/dice.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

TEST_CASE("Log: shows messages at or above the level, FATAL always") {
  REQUIRE(InitLog("unit_common", "warning").ok());
  CHECK_FALSE(LogEnabled(LogLevel::kInfo));
  CHECK(LogEnabled(LogLevel::kWarning));
  REQUIRE(InitLog("unit_common", "ERROR").ok());
  CHECK_FALSE(LogEnabled(LogLevel::kWarning));
  CHECK(LogEnabled(LogLevel::kFatal));
}

TEST_CASE("Log: the environment does not override the level of the command line") {
  setenv("TANDEM_LOGGING_LEVEL", "ERROR", 1);
  const Status status = InitLog("unit_common", "DEBUG");
  unsetenv("TANDEM_LOGGING_LEVEL");
  REQUIRE(status.ok());
  CHECK(LogEnabled(LogLevel::kDebug));
}

TEST_CASE("Log: the level can change while the process runs") {
  REQUIRE(InitLog("unit_common", "ERROR").ok());
  REQUIRE(SetLogLevel("debug").ok());
  CHECK(LogEnabled(LogLevel::kDebug));
  REQUIRE(SetLogLevel("WARNING").ok());
  CHECK_FALSE(LogEnabled(LogLevel::kInfo));
  CHECK_FALSE(SetLogLevel("LOUD").ok());
  CHECK_FALSE(LogEnabled(LogLevel::kInfo));
}

TEST_CASE("Log: every name of a level that flags take is one") {
  for (const std::string_view name : LogLevelNames()) {
    CAPTURE(name);
    CHECK(SetLogLevel(name).ok());
  }
}

TEST_CASE("Log: an unknown level is an error that lists the known ones") {
  const Status status = InitLog("unit_common", "LOUD");
  REQUIRE_FALSE(status.ok());
  CHECK(status.message() == "log level is 'LOUD', must be DEBUG, INFO, WARNING or ERROR");
}

TEST_CASE("Log: an unknown form is an error that lists the known ones") {
  CHECK(SetLogFormat("xml").message() == "log format is 'xml', must be text or json");
  REQUIRE(SetLogFormat("json").ok());
  CHECK(std::getenv("TANDEM_LOG_FORMAT") == std::string("json"));  // for programs started from here
  REQUIRE(SetLogFormat("text").ok());
}

LogRecord Record(std::string_view message, const std::vector<LogField>* fields = nullptr) {
  return {.unix_time = 1700000000.0429,
          .level = "INFO",
          .file = "generation.cc",
          .line = 42,
          .process_name = "APIServer",
          .process_id = 7,
          .message = message,
          .fields = fields};
}

TEST_CASE("Log: a line as JSON has the keys of vLLM's formatter, then the fields") {
  const std::vector<LogField> fields = {{"id", "cmpl-1", true},
                                        {"output_tokens", "3"},
                                        {"queue_ms", ""},
                                        {"status", "200", false, LogField::kOnlyJson},
                                        {"text", "shown", true, LogField::kOnlyText}};
  CHECK(JsonLogLine(Record("request finished", &fields)) ==
        R"({"asctime":"2023-11-14T22:13:20.042Z","levelname":"INFO","name":"tandem.generation",)"
        R"("lineno":42,"processName":"APIServer","process":7,"message":"request finished",)"
        R"("request_id":"cmpl-1","output_tokens":3,"queue_ms":null,"status":200})");
}

TEST_CASE("Log: any bytes make one valid JSON object on one line") {
  constexpr uint64_t kSeed = 19;
  INFO("seed " << kSeed);
  Dice dice(kSeed);
  for (int i = 0; i < 5000; ++i) {
    std::string message;
    const int size = dice.Roll(0, 20);
    for (int b = 0; b < size; ++b) message += static_cast<char>(dice.Roll(0, 255));
    const std::vector<LogField> fields = {{"error", message, true}};
    const std::string line = JsonLogLine(Record(message, &fields));
    CHECK(line.find('\n') == std::string::npos);
    const auto parsed = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    REQUIRE(parsed.is_object());
    std::string repaired;
    AppendLossyUtf8(message, &repaired);
    CHECK(parsed["message"] == repaired);
    CHECK(parsed["error"] == repaired);
  }
}

}  // namespace
}  // namespace tandem
