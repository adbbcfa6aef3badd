#include "frontend/open_files.h"

#include <sys/resource.h>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

TEST_CASE("open files: connections leave what the process needs itself") {
  CHECK(*ConnectionsThatFit(100, 80, 1 << 20) == 100);
  CHECK(*ConnectionsThatFit(100, 80, 180) == 100);
  CHECK(*ConnectionsThatFit(100, 80, 179) == 99);
  CHECK(*ConnectionsThatFit(100, 80, 81) == 1);
  const Status status = ConnectionsThatFit(100, 80, 80).status();
  CHECK(status.code() == StatusCode::kFailedPrecondition);
  CHECK(status.message() ==
        "this process may have 80 files open, and needs 80 besides one for each connection "
        "(ulimit -n)");
  CHECK(NumOwnFiles(1, 1) == 82);
  CHECK(NumOwnFiles(3, 4) == 168);
}

TEST_CASE("open files: the limit is raised to what the host allows") {
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  const rlimit lower = {.rlim_cur = 64, .rlim_max = before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_NOFILE, &lower) == 0);
  CHECK(RaiseOpenFileLimit() == static_cast<int64_t>(before.rlim_max));
  rlimit now{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &now) == 0);
  CHECK(now.rlim_cur == before.rlim_max);
  REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
}

}  // namespace
}  // namespace tandem
