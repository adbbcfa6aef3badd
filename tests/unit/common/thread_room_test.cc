#include "common/thread_room.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

constexpr uid_t kNobodyElse = 64123;

// In a process of a user that may have one.
int CheckWithoutRoom() {
  if (geteuid() == 0 && setresuid(kNobodyElse, kNobodyElse, kNobodyElse) != 0) return 2;
  const rlimit one = {1, 1};
  if (setrlimit(RLIMIT_NPROC, &one) != 0) return 3;
  const Status status = CheckThreadRoom(4);
  if (status.code() != StatusCode::kResourceExhausted) return 4;
  const bool has_words = status.message().find("0 more threads, and needs 4") != std::string::npos;
  return has_words ? 0 : 5;
}

TEST_CASE("thread_room: threads that may be started are no error") {
  CHECK(CheckThreadRoom(4).ok());
  CHECK(CheckThreadRoom(0).ok());
}

TEST_CASE("thread_room: too few are an error that names the limits") {
  const pid_t pid = fork();
  if (pid == 0) _exit(CheckWithoutRoom());
  int status = -1;
  REQUIRE(waitpid(pid, &status, 0) == pid);
  CHECK(status == 0);
}

}  // namespace
}  // namespace tandem
