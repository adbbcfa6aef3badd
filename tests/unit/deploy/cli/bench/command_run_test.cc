#include "deploy/cli/bench/command_run.h"

#include <signal.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "common/clock.h"
#include "tests/support/files/temp_folder.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

constexpr double kLongSeconds = 100;

bool IsAlive(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const size_t name_end = text.rfind(')');
  return name_end != text.npos && text.substr(name_end + 2, 1) != "Z";
}

TEST_CASE("RunCommand finds programs in PATH and reports how they ended") {
  const TempFolder folder;
  const std::string log = folder.PathOf("log");
  CHECK(RunCommand({"sh", "-c", "echo said"}, log, kLongSeconds).ok());
  CHECK(folder.Read("log") == "said\n");
  const Status failed = RunCommand({"sh", "-c", "echo why; exit 3"}, log, kLongSeconds);
  CHECK(failed.code() == StatusCode::kUnavailable);
  CHECK(failed.message().find("exited with status 3") != std::string::npos);
  CHECK(failed.message().ends_with(":\nwhy"));
  CHECK_FALSE(RunCommand({"no-such-program-here"}, log, kLongSeconds).ok());
}

TEST_CASE("A command that runs too long ends with all its processes") {
  const TempFolder folder;
  const std::string script = "sleep 1000 & echo $! > " + folder.PathOf("pid") + "; wait";
  const Status status = RunCommand({"sh", "-c", script}, folder.PathOf("log"), 3);
  CHECK(status.code() == StatusCode::kDeadlineExceeded);
  const pid_t sleeper = std::stoi(folder.Read("pid"));
  const SystemClock clock;
  const double limit = clock.Monotonic() + 30;
  while (IsAlive(sleeper) && clock.Monotonic() < limit) {
  }
  CHECK_FALSE(IsAlive(sleeper));
}

TEST_CASE("A signal interrupts a wait") {
  signal(SIGHUP, SIG_DFL);  // it may be ignored here, and would stay so
  const TempFolder folder;
  for (const char* name : {"INT", "TERM", "HUP"}) {
    CAPTURE(name);
    const StopSignals signals;
    CHECK_FALSE(StopSignals::Seen());
    const std::string script =
        std::string("kill -") + name + " " + std::to_string(getpid()) + "; sleep 1000";
    CHECK(RunCommand({"sh", "-c", script}, folder.PathOf("log"), kLongSeconds).code() ==
          StatusCode::kCancelled);
    CHECK(StopSignals::Seen());
  }
}

TEST_CASE("A server that ends before it is ready, and impossible URLs") {
  const TempFolder folder;
  const std::string log = folder.PathOf("log");
  const std::string url = "http://127.0.0.1:" + std::to_string(*FreePort());
  const auto ended = CommandServer::Start({"sh", "-c", "echo no model; exit 3"}, url, log, 30);
  CHECK(ended.status().message().find("exited with status 3 before it was ready") !=
        std::string::npos);
  CHECK(ended.status().message().ends_with("no model"));
  const auto late = CommandServer::Start({"sleep", "1000"}, url, log, 0.3);
  CHECK(late.status().code() == StatusCode::kDeadlineExceeded);
  for (const char* bad : {"unix:/x", "http://host", "", "https://h:1"}) {
    CAPTURE(bad);
    CHECK(CommandServer::Start({"true"}, bad, log, 1).status().code() ==
          StatusCode::kInvalidArgument);
  }
}

TEST_CASE("A free port is none of those that connections get") {
  int first = 0;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> first;
  for (int i = 0; i < 100; ++i) {
    const int port = FreePort().value();
    CHECK(port >= 10000);
    CHECK(port < std::max(first, 20000));
  }
}

TEST_CASE("The bench's own flags give the server's address") {
  CHECK(BenchUrl({"bench", "--port", "81"}) == "http://127.0.0.1:81");
  CHECK(BenchUrl({"bench", "--host=h"}) == "http://h:8000");
  CHECK(BenchUrl({"bench", "--base-url", "http://h:1/v", "--port", "2"}) == "http://h:1/v");
}

}  // namespace
}  // namespace tandem
