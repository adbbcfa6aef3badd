#include "deploy/cli/runtime_directory.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <filesystem>
#include <optional>

#include "tests/support/files/temp_folder.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

// A process that makes a folder with a file in it and is killed.
std::string LeaveOneIn(const std::string& parent) {
  std::array<int, 2> ends{};
  REQUIRE(pipe(ends.data()) == 0);
  const pid_t pid = fork();
  if (pid == 0) {
    const auto made = RuntimeDirectory::Make(parent);
    if (!made.ok() || mkdir((made->path() + "/sockets").c_str(), 0700) != 0) _exit(1);
    const auto size = static_cast<ssize_t>(made->path().size());
    if (write(ends[1], made->path().data(), made->path().size()) != size) _exit(1);
    raise(SIGKILL);
  }
  int status = 0;
  REQUIRE(waitpid(pid, &status, 0) == pid);
  REQUIRE(WIFSIGNALED(status));
  std::array<char, 4096> path{};
  const ssize_t size = read(ends[0], path.data(), path.size());
  close(ends[0]);
  close(ends[1]);
  return {path.data(), static_cast<size_t>(size)};
}

TEST_CASE("runtime_directory: a private folder that goes with its object") {
  const TempFolder parent;
  std::string path;
  {
    const auto made = RuntimeDirectory::Make(parent.path());
    REQUIRE(made.ok());
    path = made->path();
    CHECK(fs::path(path).parent_path() == parent.path());
    CHECK(fs::status(path).permissions() == fs::perms::owner_all);
  }
  CHECK_FALSE(fs::exists(path));
}

TEST_CASE("runtime_directory: what a killed process has left goes, what others use stays") {
  const TempFolder parent;
  const auto living = RuntimeDirectory::Make(parent.path());
  REQUIRE(living.ok());
  const std::string dead = LeaveOneIn(parent.path());
  REQUIRE(fs::exists(dead + "/sockets"));
  parent.Write("tandem-strange/file", "of another program");
  parent.Write("other-/lock", "of another program");
  parent.Write("tandem-file", "no folder");
  parent.Write("elsewhere/lock", "");
  fs::create_directory_symlink(parent.PathOf("elsewhere"), parent.PathOf("tandem-link"));

  const auto next = RuntimeDirectory::Make(parent.path());
  REQUIRE(next.ok());
  CHECK_FALSE(fs::exists(dead));
  CHECK(fs::exists(living->path()));
  for (const char* kept : {"tandem-strange/file", "other-/lock", "tandem-file", "elsewhere/lock"}) {
    INFO(kept);
    CHECK(fs::exists(parent.PathOf(kept)));
  }
}

TEST_CASE("runtime_directory: many that start and die at once never take a living one's folder") {
  const TempFolder parent;
  constexpr int kProcesses = 6, kRounds = 40;
  std::array<pid_t, kProcesses> pids{};
  for (pid_t& pid : pids) {
    pid = fork();
    if (pid != 0) continue;
    for (int round = 0; round < kRounds; ++round) {
      auto made = RuntimeDirectory::Make(parent.path());
      const auto beside = RuntimeDirectory::Make(parent.path());
      if (!made.ok() || !beside.ok() || !fs::exists(made->path() + "/lock")) _exit(1);
      // As by a death: the lock ends, the folder stays.
      const pid_t dying = fork();
      if (dying == 0 && !RuntimeDirectory::Make(parent.path()).ok()) _exit(1);
      if (dying == 0) _exit(0);
      int status = 0;
      waitpid(dying, &status, 0);
      if (status != 0 || !fs::exists(made->path() + "/lock")) _exit(1);
    }
    _exit(0);
  }
  for (const pid_t pid : pids) {
    int status = -1;
    REQUIRE(waitpid(pid, &status, 0) == pid);
    CHECK(status == 0);
  }
  { REQUIRE(RuntimeDirectory::Make(parent.path()).ok()); }
  CHECK(fs::is_empty(parent.path()));
}

TEST_CASE("runtime_directory: a folder that nothing can be made in is an error with its name") {
  const auto made = RuntimeDirectory::Make("/proc/self/fd");
  REQUIRE_FALSE(made.ok());
  CHECK_THAT(made.status().message(), Catch::Matchers::Contains("/proc/self/fd/tandem-") &&
                                          Catch::Matchers::Contains("XDG_RUNTIME_DIR"));
}

}  // namespace
}  // namespace tandem
