#include "common/forking/forked_jobs.h"

#include <fcntl.h>
#include <sys/resource.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <utility>

#include "common/clock.h"
#include "common/packets.h"
#include "common/unique_fd.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

// This process can open one more descriptor and no other, while it lives.
class OneMoreDescriptor {
 public:
  OneMoreDescriptor() {
    REQUIRE(getrlimit(RLIMIT_NOFILE, &before_) == 0);
    UniqueFd lowest(open("/dev/null", O_RDONLY | O_CLOEXEC));
    rlimit limit = before_;
    limit.rlim_cur = static_cast<rlim_t>(lowest.get()) + 1;
    REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
  }
  ~OneMoreDescriptor() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_;
};

std::string MessageOf(ForkedJobs* jobs) {
  std::promise<std::string> message;
  jobs->Submit("", "", [&](const StatusOr<ForkedJobResult>& result) {
    message.set_value(std::string(result.status().message()));
  });
  return message.get_future().get();
}

TEST_CASE(
    "ForkedJobs: a program that could not be started for want of descriptors is tried again") {
  const SystemClock clock;
  ForkedJobsOptions options;
  options.command = {"/does/not/exist"};
  options.thread_name = "jobs";
  options.timeout_s = 0.01;
  options.unavailable = "unavailable";
  options.kept_waiting = UnavailableError("kept waiting");
  std::unique_ptr<ForkedJobs> jobs;
  {
    const OneMoreDescriptor limit;  // its eventfd; the program would need a pair of sockets
    jobs = std::make_unique<ForkedJobs>(std::move(options), &clock);
    CHECK(MessageOf(jobs.get()) == "kept waiting");
  }
  std::string message = "kept waiting";
  while (message == "kept waiting") message = MessageOf(jobs.get());
  CHECK(message == "unavailable: /does/not/exist: No such file or directory");
}

TEST_CASE("ForkedJobs: a socket is watched until it can be read, is closed, or time has passed") {
  const SystemClock clock;
  ForkedJobsOptions options;
  options.command = {"/does/not/exist"};
  options.thread_name = "jobs";
  ForkedJobs jobs(std::move(options), &clock);
  constexpr double kForEver = 1e9;
  const auto watch = [&jobs](const std::shared_ptr<UniqueFd>& socket, double timeout_s) {
    auto noticed = std::make_shared<std::promise<void>>();
    jobs.Watch(socket, timeout_s, [noticed] { noticed->set_value(); });
    return noticed->get_future();
  };
  auto sockets = *MakePacketSockets();
  const auto ours = std::make_shared<UniqueFd>(std::move(sockets.first));
  watch(ours, 0.01).wait();
  std::future<void> written = watch(ours, kForEver);
  CHECK(written.wait_for(std::chrono::milliseconds(0)) == std::future_status::timeout);
  REQUIRE(SendPacket(sockets.second.get(), "x").ok());
  written.wait();
  REQUIRE(ReceivePacket(ours->get()).ok());  // it only looked
  std::future<void> closed = watch(ours, kForEver);
  sockets.second.Reset();
  closed.wait();
}

}  // namespace
}  // namespace tandem
