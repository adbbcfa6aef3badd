#include "common/log.h"

#include <cstdlib>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

TEST_CASE("Log: shows what the level lets through, FATAL always") {
  REQUIRE(InitLog("unit_common", "warning").ok());
  CHECK_FALSE(LogEnabled(LogLevel::kInfo));
  CHECK(LogEnabled(LogLevel::kWarning));
  REQUIRE(InitLog("unit_common", "ERROR").ok());
  CHECK_FALSE(LogEnabled(LogLevel::kWarning));
  CHECK(LogEnabled(LogLevel::kFatal));
}

TEST_CASE("Log: a level that the command line gave is not undone by the environment") {
  setenv("TANDEM_LOGGING_LEVEL", "ERROR", 1);
  const Status status = InitLog("unit_common", "DEBUG");
  unsetenv("TANDEM_LOGGING_LEVEL");
  REQUIRE(status.ok());
  CHECK(LogEnabled(LogLevel::kDebug));
}

TEST_CASE("Log: a level that there is not is named with those that there are") {
  const Status status = InitLog("unit_common", "LOUD");
  REQUIRE_FALSE(status.ok());
  CHECK(status.message() == "log level is 'LOUD', must be DEBUG, INFO, WARNING or ERROR");
}

}  // namespace
}  // namespace tandem
