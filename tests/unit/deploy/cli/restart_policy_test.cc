#include "deploy/cli/restart_policy.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

TEST_CASE("restart_policy: deaths with progress in between back off and never end") {
  RestartPolicy policy;
  double now = 0;
  for (const double delay : {0, 1, 2, 4, 8, 16, 16, 16}) {
    CHECK(policy.OnDeath(now, true) == delay);
    now += delay;
  }
  for (int i = 0; i < 1000; ++i) CHECK(policy.OnDeath(now, true) == 16);
  CHECK(policy.OnDeath(now + 61, true) == 0);  // a quiet minute begins anew
}

TEST_CASE("restart_policy: a process that does not become ready any more is given up") {
  RestartPolicy policy;
  CHECK(policy.OnDeath(0, true) == 0);
  for (int i = 0; i < 5; ++i) CHECK(policy.OnDeath(1, false));
  SECTION("however slowly it dies") { CHECK_FALSE(policy.OnDeath(10000, false)); }
  SECTION("unless one start succeeds") {
    CHECK(policy.OnDeath(2, true) == 16);
    for (int i = 0; i < 5; ++i) CHECK(policy.OnDeath(3, false));
    CHECK_FALSE(policy.OnDeath(4, false));
    CHECK(policy.num_failed_starts() == 6);
  }
}

}  // namespace
}  // namespace tandem
