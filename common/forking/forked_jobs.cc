#include "common/forking/forked_jobs.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

#include "common/forking/job_reply.h"
#include "common/log.h"

namespace tandem {
namespace {

// How often a job is tried whose process ended without a word. It was killed, perhaps by what kills
// the next one too; or together with the program, which may take one more before its own end is
// noticed.
constexpr int kMaxAttempts = 4;
constexpr double kRestartPauseS = 1;
// A process that did nothing was stopped, perhaps, and the next one is not.
constexpr int kMostRests = 2;
constexpr int kLooksPerRest = 5;
// How long a job may go on that nobody wants any more.
constexpr double kUnwantedS = 0.5;

// Of processes, descriptors or memory, which a host or a control group may lack for a while.
bool IsOutOfResources(const Status& status) {
  return status.code() == StatusCode::kResourceExhausted ||
         status.code() == StatusCode::kUnavailable;
}

}  // namespace

ForkedJobs::ForkedJobs(ForkedJobsOptions options, const Clock* clock)
    : options_(std::move(options)),
      program_name_(std::filesystem::path(options_.command[0]).filename().string()),
      clock_(clock),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      jobs_([this] { eventfd_write(wake_.get(), 1); }),
      new_watches_([this] { eventfd_write(wake_.get(), 1); }) {
  thread_ = std::thread([this] { Run(); });
}

ForkedJobs::~ForkedJobs() {
  jobs_.Close();
  thread_.join();
}

void ForkedJobs::Submit(std::string head, std::string input, Done done,
                        std::function<bool()> is_wanted) {
  Job job;
  job.head = std::move(head);
  job.input = std::move(input);
  job.done = std::move(done);
  job.is_wanted = std::move(is_wanted);
  jobs_.Push(std::move(job));
}

void ForkedJobs::Watch(std::shared_ptr<UniqueFd> socket, double timeout_s,
                       std::function<void()> noticed) {
  new_watches_.Push({.socket = std::move(socket),
                     .deadline = clock_->Monotonic() + timeout_s,
                     .noticed = std::move(noticed)});
}

void ForkedJobs::Run() {
  SetThreadName(options_.thread_name);
  while (!jobs_.closed()) {
    StartProgram();
    TakeJobs();
    StartJobs();
    Poll();
    EndResting();
    EndOverdue();
  }
}

void ForkedJobs::TakeJobs() {
  std::vector<Job> jobs;
  jobs_.Drain(&jobs);
  for (Job& job : jobs) {
    job.deadline = clock_->Monotonic() + options_.timeout_s;
    waiting_.push_back(std::move(job));
  }
  std::vector<Watched> watches;
  new_watches_.Drain(&watches);
  for (Watched& watched : watches) watched_.push_back(std::move(watched));
}

void ForkedJobs::StartProgram() {
  if (program_ || !broken_.ok() || clock_->Monotonic() < start_after_) return;
  start_after_ = clock_->Monotonic() + kRestartPauseS;
  StatusOr<HelperProcess> started = HelperProcess::Start(options_.command, options_.fds);
  if (started.ok()) {
    program_ = std::move(*started);
    lacks_resources_ = false;
  } else if (!IsOutOfResources(started.status())) {
    broken_ = started.status();
  } else if (!std::exchange(lacks_resources_, true)) {
    LOG_WARNING << program_name_ << " cannot be started now: " << started.status().message();
  }
}

void ForkedJobs::StartJobs() {
  while (!broken_.ok() && !waiting_.empty()) {
    End(&waiting_.front(), InternalError(options_.unavailable + ": " + broken_.message()));
    waiting_.pop_front();
  }
  EndUnwanted();
  while (is_ready_ && !waiting_.empty() &&
         running_.size() < static_cast<size_t>(options_.max_running)) {
    Job next = std::move(waiting_.front());
    waiting_.pop_front();
    const Status status = Send(&next);
    if (status.code() == StatusCode::kUnavailable) {
      waiting_.push_front(std::move(next));
      return LoseProgram();
    }
    if (!status.ok()) {
      End(&next, status);
    } else {
      running_.push_back(std::move(next));
    }
  }
}

// Nobody's jobs take neither a turn nor memory nor time.
void ForkedJobs::EndUnwanted() {
  const auto end_unwanted = [](Job& job) {
    if (!job.is_wanted || job.is_wanted()) return false;
    End(&job, CancelledError("nobody waits for it any more"));
    return true;
  };
  std::erase_if(waiting_, end_unwanted);
  std::erase_if(running_, end_unwanted);
}

Status ForkedJobs::Send(Job* job) {
  ++job->num_attempts;
  job->has_begun = false;
  job->deadline = clock_->Monotonic() + options_.begin_s;
  ASSIGN_OR_RETURN(const UniqueFd input, MakeMemoryFile("job-input", job->input));
  ASSIGN_OR_RETURN(auto sockets, MakePacketSockets());
  const int fds[] = {sockets.second.get(), input.get()};
  RETURN_IF_ERROR(SendPacket(program_->control(), job->head, fds));
  job->socket = std::move(sockets.first);
  return OkStatus();
}

int ForkedJobs::TimeoutMs() const {
  double wake_at = INFINITY;
  if (!program_ && broken_.ok()) wake_at = start_after_;
  for (const Job& job : waiting_) wake_at = std::min(wake_at, job.deadline);
  for (const Job& job : running_) {
    wake_at = std::min(wake_at, job.deadline);
    if (job.process) wake_at = std::min(wake_at, job.look_at);
    if (job.is_wanted) wake_at = std::min(wake_at, clock_->Monotonic() + kUnwantedS);
  }
  for (const Watched& watched : watched_) wake_at = std::min(wake_at, watched.deadline);
  constexpr double kMaxWaitS = 1e6;
  if (std::isinf(wake_at)) return -1;
  return static_cast<int>(std::clamp(wake_at - clock_->Monotonic(), 0.0, kMaxWaitS) * 1e3) + 1;
}

void ForkedJobs::Poll() {
  std::vector<pollfd> waited = {{wake_.get(), POLLIN, 0}};
  waited.push_back({program_ ? program_->control() : -1, POLLIN, 0});
  for (const Job& job : running_) waited.push_back({job.socket.get(), POLLIN, 0});
  for (const Watched& watched : watched_) waited.push_back({watched.socket->get(), POLLIN, 0});
  poll(waited.data(), waited.size(), TimeoutMs());
  uint64_t count = 0;
  if (waited[0].revents != 0) eventfd_read(wake_.get(), &count);
  if (waited[1].revents != 0) HearProgram();
  for (size_t i = 0; i < running_.size(); ++i) {
    if (waited[i + 2].revents != 0) HearJob(&running_[i]);
  }
  size_t place = 2 + running_.size();
  for (Watched& watched : watched_) {
    if (waited[place++].revents != 0) watched.deadline = 0;
  }
  std::erase_if(running_, [](const Job& job) { return !job.socket; });
}

void ForkedJobs::HearProgram() {
  const StatusOr<Packet> packet = ReceivePacket(program_->control());
  if (!packet.ok()) return LoseProgram();
  if (!IsErrorReply(*packet)) {
    is_ready_ = true;
    return;
  }
  broken_ = InternalError(ErrorOf(*packet));
  LOG_INFO << options_.unavailable << ": " << broken_.message();
  program_.reset();
}

// What runs is not lost with it: those processes live by themselves.
void ForkedJobs::LoseProgram() {
  LOG_WARNING << program_name_ << " has ended or hangs, another one is started";
  program_.reset();
  is_ready_ = false;
}

void ForkedJobs::HearJob(Job* job) {
  StatusOr<Packet> packet = ReceivePacket(job->socket.get());
  if (packet.ok() && IsBegunReply(*packet)) {
    const double now = clock_->Monotonic();
    job->has_begun = true;
    job->deadline = now + options_.timeout_s;
    job->look_at = now + options_.rest_s / kLooksPerRest;
    if (!packet->fds.empty()) job->process.emplace(std::move(packet->fds[0]));
    return;
  }
  if (packet.ok() && !IsErrorReply(*packet)) {
    return End(job,
               ForkedJobResult{.packet = *std::move(packet), .socket = std::move(job->socket)});
  }
  if (packet.ok()) return End(job, InvalidArgumentError(ErrorOf(*packet)));
  StartAgain(job, options_.killed);
}

void ForkedJobs::StartAgain(Job* job, const Status& otherwise) {
  if (job->num_attempts >= kMaxAttempts) return End(job, otherwise);
  EndProcess(job);
  job->deadline = clock_->Monotonic() + options_.timeout_s;
  waiting_.push_front(std::move(*job));
}

void ForkedJobs::EndResting() {
  const double now = clock_->Monotonic();
  std::erase_if(running_, [&](Job& job) {
    if (!Rests(&job, now)) return false;
    if (++job.num_rests < kMostRests) {
      StartAgain(&job, options_.resting);
    } else {
      End(&job, options_.resting);
    }
    return true;
  });
}

// Closing its socket ends one that goes on.
void ForkedJobs::EndProcess(Job* job) {
  job->socket.Reset();
  if (job->process) job->process->Kill();
  job->process.reset();
}

bool ForkedJobs::Rests(Job* job, double now) const {
  if (!job->process || now < job->look_at) return false;
  job->look_at = now + options_.rest_s / kLooksPerRest;
  return job->process->Look() >= kLooksPerRest;
}

void ForkedJobs::EndOverdue() {
  const double now = clock_->Monotonic();
  std::erase_if(watched_, [now](const Watched& watched) {
    if (now < watched.deadline) return false;
    watched.noticed();
    return true;
  });
  std::erase_if(waiting_, [&](Job& job) {
    if (now < job.deadline) return false;
    End(&job, options_.kept_waiting);
    return true;
  });
  bool program_hangs = false;
  std::erase_if(running_, [&](Job& job) {
    if (now < job.deadline) return false;
    program_hangs |= !job.has_begun;
    job.has_begun ? End(&job, options_.overdue) : StartAgain(&job, options_.kept_waiting);
    return true;
  });
  if (program_hangs && program_) LoseProgram();
}

void ForkedJobs::End(Job* job, StatusOr<ForkedJobResult> result) {
  if (!result.ok()) EndProcess(job);
  job->socket.Reset();
  job->process.reset();
  job->done(std::move(result));
}

}  // namespace tandem
