#include "common/forking/forked_jobs.h"

#include <fcntl.h>
#include <sys/resource.h>

#include <future>
#include <string>

#include "common/clock.h"
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

}  // namespace
}  // namespace tandem
