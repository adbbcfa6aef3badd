#include "common/forking/forked_jobs.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>

#include <chrono>
#include <fstream>
#include <future>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "common/forking/process_rest.h"
#include "common/packets.h"
#include "common/unique_fd.h"
#include "tests/support/files/temp_folder.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

// UBSan opens a pipe to see whether an object's memory can be read.
#if !defined(__SANITIZE_ADDRESS__)
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
#endif

ForkedJobsOptions ForkingJobs(std::vector<std::string> arguments) {
  ForkedJobsOptions options;
  options.command = std::move(arguments);
  options.command.insert(options.command.begin(), TANDEM_BIN_DIR "/faulty/forking-jobs");
  options.thread_name = "jobs";
  return options;
}

struct JobReply {
  std::string forked;  // "ahead" of the job or "then"
  pid_t program = 0, process = 0;
  int num_ready = 0;
};

JobReply ReplyOf(ForkedJobs* jobs) {
  std::promise<std::string> reply;
  jobs->Submit("job", "", [&](const StatusOr<ForkedJobResult>& result) {
    reply.set_value(result.ok() ? result->packet.bytes.substr(1) : result.status().ToString());
  });
  std::istringstream words(reply.get_future().get());
  JobReply read;
  words >> read.forked >> read.program >> read.process >> read.num_ready;
  return read;
}

// The process that the program of an earlier job has forked ahead since.
pid_t ForkedAheadAfter(const JobReply& job) {
  const std::string id = std::to_string(job.program);
  for (;;) {
    std::ifstream children("/proc/" + id + "/task/" + id + "/children");
    pid_t first = 0, second = 0;
    children >> first >> second;
    if (first != 0 && second == 0 && first != job.process) return first;
  }
}

bool HasEnded(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string id, name, state;
  return !(file >> id >> name >> state) || state == "Z";
}

TEST_CASE("ForkedJobs: a process is forked ahead of the first job, and of later ones") {
  const SystemClock clock;
  ForkedJobs jobs(ForkingJobs({}), &clock);
  const JobReply first = ReplyOf(&jobs);
  CHECK(first.forked == "ahead");
  ForkedAheadAfter(first);
  const JobReply later = ReplyOf(&jobs);
  CHECK(later.forked == "ahead");
  CHECK(later.program == first.program);
}

TEST_CASE("ForkedJobs: a process that is forked ahead has what was made ready since") {
  const SystemClock clock;
  ForkedJobs jobs(ForkingJobs({"warms"}), &clock);
  JobReply reply = ReplyOf(&jobs);
  CHECK(reply.forked == "ahead");
  CHECK(reply.num_ready == 0);
  std::string name;
  while (name != "warm") std::ifstream("/proc/" + std::to_string(reply.program) + "/comm") >> name;
  while (reply.num_ready == 0) {
    ForkedAheadAfter(reply);
    reply = ReplyOf(&jobs);
  }
  CHECK(reply.forked == "ahead");
  CHECK(reply.num_ready == 3);
}

TEST_CASE("ForkedJobs: a program that is stopped is replaced, and takes no job with it") {
  const SystemClock clock;
  ForkedJobsOptions options = ForkingJobs({});
  options.begin_s = 3;
  ForkedJobs jobs(std::move(options), &clock);
  const JobReply first = ReplyOf(&jobs);
  REQUIRE(first.program > 1);
  kill(first.program, SIGSTOP);
  JobReply reply = first;  // a process that was forked ahead takes one more
  while (reply.program == first.program) reply = ReplyOf(&jobs);
  CHECK(reply.program > 1);
}

Status StatusOf(ForkedJobs* jobs, const std::string& head, const std::string& input = "") {
  std::promise<Status> status;
  jobs->Submit(head, input,
               [&](const StatusOr<ForkedJobResult>& result) { status.set_value(result.status()); });
  return status.get_future().get();
}

ForkedJobsOptions WithRest(double rest_s) {
  ForkedJobsOptions options = ForkingJobs({});
  options.rest_s = rest_s;
  options.timeout_s = 1e6;
  options.resting = DataLossError("it rests");
  return options;
}

TEST_CASE("ForkedJobs: a process that does nothing within its job is ended, and the next one too") {
  const SystemClock clock;
  ForkedJobs jobs(WithRest(0.5), &clock);
  CHECK(StatusOf(&jobs, "stop").code() == StatusCode::kDataLoss);
  CHECK(StatusOf(&jobs, "block").code() == StatusCode::kDataLoss);
  CHECK(ReplyOf(&jobs).process > 1);
}

TEST_CASE("ForkedJobs: a job whose process was stopped is done by another one") {
  const SystemClock clock;
  ForkedJobs jobs(WithRest(0.5), &clock);
  const TempFolder folder;
  const std::string file = folder.PathOf("stopped");
  CHECK(StatusOf(&jobs, "job", file).ok());
  CHECK(std::ifstream(file).is_open());
}

TEST_CASE("ForkedJobs: a process that computes, or lacks a CPU, does not rest") {
  const SystemClock clock;
  ForkedJobs jobs(WithRest(0.2), &clock);
  CHECK(StatusOf(&jobs, "compute").ok());
}

TEST_CASE("ProcessRest: what the kernel shows of a process and of its threads") {
  const std::string stat = "77 (a) b)) S 1 77 77 0 -1 4194560 100 0 0 0 31 11 0 0 20 0 1 0 5";
  CHECK(CpuTicksOf(stat) == 42);
  CHECK(CpuTicksOf("") == -1);
  CHECK(CpuTicksOf("77 (a) S 1") == -1);
  CHECK(ThreadRests(stat));
  CHECK(ThreadRests("77 (a) T 1"));
  for (const std::string rest :
       {"77 (a) R 1", "77 (a) D 1", "77 (a) t 1", "77 (a) Z 1", "77 (", ""}) {
    CHECK_FALSE(ThreadRests(rest));
  }
}

TEST_CASE("ForkedJobs: a process that was forked ahead ends with the program") {
  const SystemClock clock;
  ForkedJobs jobs(ForkingJobs({}), &clock);
  const JobReply first = ReplyOf(&jobs);
  REQUIRE(first.program > 1);
  const pid_t ahead = ForkedAheadAfter(first);
  kill(first.program, SIGKILL);
  while (!HasEnded(ahead)) {
  }
  CHECK(ReplyOf(&jobs).program != first.program);
}

TEST_CASE("ForkedJobs: jobs go on without processes that are forked ahead, if these die") {
  const SystemClock clock;
  ForkedJobs jobs(ForkingJobs({"dies"}), &clock);
  for (int i = 0; i < 3; ++i) CHECK(ReplyOf(&jobs).forked == "then");
}

TEST_CASE("ForkedJobs: a job that nobody wants is not started, and later ones are") {
  const SystemClock clock;
  ForkedJobs jobs(ForkingJobs({}), &clock);
  std::promise<Status> unwanted;
  jobs.Submit(
      "job", "",
      [&](const StatusOr<ForkedJobResult>& result) { unwanted.set_value(result.status()); },
      [] { return false; });
  CHECK(unwanted.get_future().get().code() == StatusCode::kCancelled);
  std::promise<bool> wanted;
  jobs.Submit(
      "job", "", [&](const StatusOr<ForkedJobResult>& result) { wanted.set_value(result.ok()); },
      [] { return true; });
  CHECK(wanted.get_future().get());
}

TEST_CASE("ForkedJobs: what a process says is UTF-8, whatever it quotes") {
  const SystemClock clock;
  ForkedJobs jobs(ForkingJobs({}), &clock);
  std::promise<Status> refused;
  jobs.Submit("wrong", "",
              [&](const StatusOr<ForkedJobResult>& result) { refused.set_value(result.status()); });
  CHECK(refused.get_future().get().message() == "half of \uFFFD");
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
