#include "deploy/cli/environment.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Words = std::vector<std::string>;

TEST_CASE("environment: what is named as ours or vLLM's and read by nothing") {
  std::string key, level;
  const std::vector<Flag> flags = {{"api-key", &key, "", {.env = "API_KEY"}},
                                   {"log-level", &level, "", {.env = "LOGGING_LEVEL"}}};
  const char* const environment[] = {"VLLM_PORT=tcp://10.0.0.1:8000",
                                     "PATH=/bin",
                                     "VLLM_API_KEY=a",
                                     "TANDEM_LOGING_LEVEL=DEBUG",
                                     "TANDEM_LOG_STATS_INTERVAL=1",
                                     "VLLM_EMPTY=",
                                     "VLLM_CPU_KVCACHE_SPACE=4",
                                     "MY_VLLM_X=1",
                                     "VLLM",
                                     "TANDEM_LOGGING_LEVEL=INFO",
                                     nullptr};
  const Words unread = UnreadVariables(environment, flags);
  CHECK(unread == Words{"TANDEM_LOGING_LEVEL", "VLLM_PORT"});
  CHECK(UnreadVariablesWarning(unread) ==
        "environment: TANDEM_LOGING_LEVEL, VLLM_PORT have no effect: docs/user/flags.md lists the "
        "variables that are read");
  CHECK(UnreadVariablesWarning({"VLLM_X"}).starts_with("environment: VLLM_X has no effect: "));
  CHECK(UnreadVariablesWarning({}).empty());
}

}  // namespace
}  // namespace tandem
