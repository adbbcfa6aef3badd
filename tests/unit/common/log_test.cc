#include "common/log.h"

#include <cstdlib>

#include "common/log_level.h"

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

TEST_CASE("Log: an unknown level is an error that lists the known ones") {
  const Status status = InitLog("unit_common", "LOUD");
  REQUIRE_FALSE(status.ok());
  CHECK(status.message() == "log level is 'LOUD', must be DEBUG, INFO, WARNING or ERROR");
}

}  // namespace
}  // namespace tandem
