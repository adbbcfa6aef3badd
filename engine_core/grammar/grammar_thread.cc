#include "engine_core/grammar/grammar_thread.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/log.h"
#include "common/packets.h"
#include "grammar/protocol.h"

namespace tandem {
namespace {

// How often a grammar is tried whose process ended without a word. It was killed, perhaps by what
// kills the next one too; or together with the program, which may take one more before its own end
// is noticed.
constexpr int kMaxAttempts = 4;
constexpr double kRestartPauseS = 1;

bool IsError(const Packet& packet) {
  return packet.bytes[0] == static_cast<char>(ReplyKind::kError);
}

}  // namespace

GrammarThread::GrammarThread(const GrammarThreadOptions& options, const Clock* clock,
                             std::function<void(GrammarCompiled)> done)
    : options_(options),
      clock_(clock),
      done_(std::move(done)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      jobs_([this] { eventfd_write(wake_.get(), 1); }) {
  thread_ = std::thread([this] { Run(); });
}

GrammarThread::~GrammarThread() {
  jobs_.Close();
  thread_.join();
}

void GrammarThread::Run() {
  SetThreadName("grammars");
  while (!jobs_.closed()) {
    StartProgram();
    TakeJobs();
    StartJobs();
    Poll();
    EndOverdue();
  }
}

void GrammarThread::TakeJobs() {
  std::vector<GrammarJob> jobs;
  jobs_.Drain(&jobs);
  for (GrammarJob& job : jobs) {
    waiting_.emplace_back().job = std::move(job);
    waiting_.back().deadline = clock_->Monotonic() + options_.compile_timeout_s;
  }
}

void GrammarThread::StartProgram() {
  if (program_ || !broken_.ok() || clock_->Monotonic() < start_after_) return;
  start_after_ = clock_->Monotonic() + kRestartPauseS;
  StatusOr<GrammarProcess> started = GrammarProcess::Start(
      options_.program, options_.model_folder, options_.vocab_size, options_.masks_file);
  if (started.ok()) {
    program_ = std::move(*started);
  } else {
    broken_ = started.status();
  }
}

void GrammarThread::StartJobs() {
  while (!broken_.ok() && !waiting_.empty()) {
    End(&waiting_.front(),
        InternalError("structured outputs are not available: " + broken_.message()));
    waiting_.pop_front();
  }
  while (is_ready_ && !waiting_.empty() &&
         compiling_.size() < static_cast<size_t>(options_.max_compiling)) {
    Compiling next = std::move(waiting_.front());
    waiting_.pop_front();
    const Status status = Send(&next);
    if (status.code() == StatusCode::kUnavailable) {
      waiting_.push_front(std::move(next));
      return LoseProgram();
    }
    if (!status.ok()) {
      End(&next, status);
    } else {
      compiling_.push_back(std::move(next));
    }
  }
}

Status GrammarThread::Send(Compiling* compiling) {
  ++compiling->num_attempts;
  compiling->deadline = clock_->Monotonic() + options_.compile_timeout_s;
  ASSIGN_OR_RETURN(const UniqueFd spec, MakeMemoryFile("grammar-spec", compiling->job.packed_spec));
  ASSIGN_OR_RETURN(auto sockets, MakePacketSockets());
  const int fds[] = {sockets.second.get(), spec.get()};
  RETURN_IF_ERROR(SendPacket(program_->control(), "g", fds));
  compiling->socket = std::move(sockets.first);
  return OkStatus();
}

int GrammarThread::TimeoutMs() const {
  double wake_at = INFINITY;
  if (!program_ && broken_.ok()) wake_at = start_after_;
  for (const Compiling& job : waiting_) wake_at = std::min(wake_at, job.deadline);
  for (const Compiling& job : compiling_) wake_at = std::min(wake_at, job.deadline);
  if (std::isinf(wake_at)) return -1;
  return static_cast<int>(std::max(0.0, wake_at - clock_->Monotonic()) * 1e3) + 1;
}

void GrammarThread::Poll() {
  std::vector<pollfd> waited = {{wake_.get(), POLLIN, 0}};
  waited.push_back({program_ ? program_->control() : -1, POLLIN, 0});
  for (const Compiling& job : compiling_) waited.push_back({job.socket.get(), POLLIN, 0});
  poll(waited.data(), waited.size(), TimeoutMs());
  uint64_t count = 0;
  if (waited[0].revents != 0) eventfd_read(wake_.get(), &count);
  if (waited[1].revents != 0) HearProgram();
  for (size_t i = 0; i < compiling_.size(); ++i) {
    if (waited[i + 2].revents != 0) HearJob(&compiling_[i]);
  }
  std::erase_if(compiling_, [](const Compiling& job) { return !job.socket; });
}

void GrammarThread::HearProgram() {
  const StatusOr<Packet> packet = ReceivePacket(program_->control());
  if (!packet.ok()) return LoseProgram();
  if (!IsError(*packet)) {
    is_ready_ = true;
    return;
  }
  broken_ = InternalError(packet->bytes.substr(1));
  LOG_INFO << "structured outputs are not available: " << broken_.message();
  program_.reset();
}

// Grammars that are compiled are not lost with it: their processes live by themselves.
void GrammarThread::LoseProgram() {
  LOG_WARNING << "tandem-grammar has ended, another one is started";
  program_.reset();
  is_ready_ = false;
}

void GrammarThread::HearJob(Compiling* compiling) {
  const StatusOr<Packet> packet = ReceivePacket(compiling->socket.get());
  if (packet.ok() && !IsError(*packet)) return End(compiling, OkStatus());
  if (packet.ok()) return End(compiling, InvalidArgumentError(packet->bytes.substr(1)));
  if (compiling->num_attempts >= kMaxAttempts) {
    return End(compiling, InvalidArgumentError("the grammar ends its compiler without a word"));
  }
  compiling->socket.Reset();
  waiting_.push_front(std::move(*compiling));
}

void GrammarThread::EndOverdue() {
  const double now = clock_->Monotonic();
  const auto is_overdue = [&](Compiling& job) {
    if (now < job.deadline) return false;
    End(&job, InvalidArgumentError("the grammar takes too long to compile"));
    return true;
  };
  std::erase_if(compiling_, is_overdue);
  std::erase_if(waiting_, is_overdue);
}

void GrammarThread::End(Compiling* compiling, Status status) {
  GrammarCompiled compiled = {
      .grammar_id = compiling->job.grammar_id, .status = std::move(status), .socket = nullptr};
  if (compiled.status.ok()) {
    compiled.socket = std::make_shared<UniqueFd>(std::move(compiling->socket));
  }
  compiling->socket.Reset();
  done_(std::move(compiled));
}

}  // namespace tandem
