#include "engine_core/workers/cpu_bind.h"

#include <sched.h>

#include <thread>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Catch::Matchers::Contains;
using Lists = std::vector<std::vector<int>>;

TEST_CASE("cpu bind: a list of CPUs and ranges for each rank") {
  CHECK(ParseCpuBind("", 2).value().empty());
  CHECK(ParseCpuBind("3", 1).value() == Lists{{3}});
  CHECK(ParseCpuBind("0-2,8|4,6-7", 2).value() == Lists{{0, 1, 2, 8}, {4, 6, 7}});
}

TEST_CASE("cpu bind: what is no such list is refused with its text") {
  for (const char* text :
       {"a|1", "1|", "|1", "0-|1", "3-1|0", "-1|0", "0,|1", "1-2-3|0", "99999|0"}) {
    CAPTURE(text);
    const auto ranks = ParseCpuBind(text, 2);
    REQUIRE(!ranks.ok());
    CHECK_THAT(ranks.status().message(), Contains("--cpu-bind " + std::string(text)));
  }
  const auto too_few = ParseCpuBind("0-3", 2);
  REQUIRE(!too_few.ok());
  CHECK_THAT(too_few.status().message(), Contains("has 1 lists") && Contains("2 ranks"));
}

TEST_CASE("cpu bind: a thread runs on its CPUs alone, or gets an error") {
  cpu_set_t usable;
  CPU_ZERO(&usable);
  REQUIRE(sched_getaffinity(0, sizeof usable, &usable) == 0);
  int first = 0;
  while (!CPU_ISSET(first, &usable)) ++first;
  std::thread([&] {
    CHECK(BindToCpus({first}).ok());
    cpu_set_t now;
    CPU_ZERO(&now);
    CHECK(sched_getaffinity(0, sizeof now, &now) == 0);
    CHECK(CPU_COUNT(&now) == 1);
    CHECK(CPU_ISSET(first, &now));
    const Status absent = BindToCpus({CPU_SETSIZE - 1});
    CHECK_THAT(absent.message(), Contains("1023"));
  }).join();
}

}  // namespace
}  // namespace tandem
