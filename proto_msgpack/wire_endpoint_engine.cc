#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "common/check.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/mailbox.h"
#include "proto_msgpack/frontend_link.h"
#include "proto_msgpack/handshake_address.h"
#include "proto_msgpack/msgpack_reader.h"
#include "proto_msgpack/wire_endpoint.h"
#include "proto_msgpack/wire_endpoint_socket.h"

namespace tandem::wire {
namespace {

constexpr size_t kMaxSpent = 16;  // messages whose memory is kept
// For a frontend to which another one has introduced us: it listens already, or it is gone.
constexpr double kJoinSeconds = 10;
// An engine often starts some milliseconds before its frontend, one with packed weights some
// hundreds. On this host a look costs microseconds, and its pause is added to every start; but
// sixty in a second keep a CPU from its deeper sleep, so after a second they become rare.
constexpr double kFirstPause = 0.001, kEagerPause = 0.016, kRarePause = 0.2;
constexpr double kEagerSeconds = 1;
// A wrong address looks like a frontend that starts later: this long it is waited for in silence.
constexpr double kSilentSeconds = 5;
// After a connection that was closed before the frontend had said anything.
constexpr double kLookAgainSeconds = 0.1;

struct Outgoing {
  int client_index = 0;
  EngineCoreOutputs outputs;
  std::optional<EngineCoreReadyResponse> ready;
};

// The argument of a call that has one text.
std::string TextOf(const UtilityRequest& call) {
  MsgpackReader arguments(call.args.packed);
  return arguments.ArraySize() > 0 ? std::string(arguments.String()) : "";
}

// The names of a frontend's ipc sockets end alike (ipc_folder.h).
bool AreOfOneFrontend(std::string_view a, std::string_view b) {
  constexpr std::string_view kIpc = "ipc://";
  const size_t a_end = a.rfind('_'), b_end = b.rfind('_');
  return a.starts_with(kIpc) && b.starts_with(kIpc) && a_end != a.npos && b_end != b.npos &&
         a.substr(a_end) == b.substr(b_end);
}

}  // namespace

class EngineEndpoint::Loop {
 public:
  Loop(EngineEndpointOptions options, std::function<void(EngineInput)> deliver)
      : options_(std::move(options)), outgoing_([this] { wake_up_.Signal(); }) {
    shared_ = {.context = &context_,
               .options = &options_,
               .ready = &ready_,
               .deliver = std::move(deliver),
               .handle_call = [this](FrontendLink* from,
                                     const UtilityRequest& call) { return HandleCall(from, call); },
               .admit = [this](FrontendLink* link,
                               const EngineAddresses& clients) { return Admit(link, clients); },
               .on_new_sockets = [this] { has_new_sockets_ = true; }};
  }

  Status Start();
  void Close(bool is_dead);

 private:
  struct Link {
    std::unique_ptr<FrontendLink> link;
    double join_until = 0;  // of one that was introduced
    bool is_unwanted = false;
  };

  void Run();
  void LoseHome(double now);
  Status LookForHome(double now);
  void ComplainOfSilence(double now);
  bool HandleCall(FrontendLink* from, const UtilityRequest& call);
  void AnswerPing(FrontendLink* from, const UtilityRequest& call);
  void Join(const std::string& address);
  void MakeHome(FrontendLink* link);
  void Leave();
  void LeaveFor(const Status& why);
  std::optional<int> Admit(FrontendLink* link, const EngineAddresses& clients);
  std::optional<int> FreeIndices(int num_clients) const;
  void SetUnwanted(const FrontendLink* link);
  void DropLinks();
  bool is_over(const Link& each, double now) const;
  int WaitMs() const;
  void SendOutgoing();
  void SendOutputs(Outgoing* out);
  void RebuildPollSet();

  const EngineEndpointOptions options_;
  WakeUp wake_up_;
  std::atomic<bool> stop_{false};
  std::atomic<bool> dead_{false};

  zmq::context_t context_ = MakeContext();  // outlives every socket
  FrontendLink::Shared shared_;
  std::vector<Link> links_;
  // To the frontend that has options_.handshake_address; nullptr: none is there.
  FrontendLink* home_ = nullptr;
  double look_again_at_ = 0;
  double pause_ = kFirstPause;  // to the look after it
  double eager_until_ = 0;
  std::optional<double> complain_at_;  // if no frontend at tcp has responded until then
  bool is_leaving_ = false;            // no other frontend is looked for
  std::optional<EngineCoreReadyResponse> ready_;
  bool has_new_sockets_ = false;
  ComplaintLimit complaints_;
  PollSet poll_;
  std::vector<Outgoing> drained_;
  std::thread thread_;

 public:
  Mailbox<Outgoing> outgoing_;
  Mailbox<EngineCoreOutputs> spent_;
  std::vector<EngineCoreOutputs> spare_;  // the loop thread's
};

Status EngineEndpoint::Loop::Start() {
  // A wrong address fails here; a missing frontend is not an error.
  const double now = SystemClock().Monotonic();
  LoseHome(now);
  RETURN_IF_ERROR(LookForHome(now));
  if (options_.handshake_address.starts_with("tcp://")) complain_at_ = now + kSilentSeconds;
  RebuildPollSet();
  thread_ = std::thread([this] { Run(); });
  return OkStatus();
}

void EngineEndpoint::Loop::LoseHome(double now) {
  home_ = nullptr;
  pause_ = kFirstPause;
  eager_until_ = now + kEagerSeconds;
}

// Nothing connects before somebody listens. A socket that tries by itself goes on for a while after
// it is closed; if it reached the frontend after the one that follows it, it would take the
// identity over from that one, and ROUTER would receive from neither.
Status EngineEndpoint::Loop::LookForHome(double now) {
  if (!HasListener(options_.handshake_address)) {
    look_again_at_ = now + pause_;
    pause_ = now < eager_until_ ? std::min(2 * pause_, kEagerPause) : kRarePause;
    return OkStatus();
  }
  auto link = std::make_unique<FrontendLink>(&shared_, options_.handshake_address);
  RETURN_IF_ERROR(link->Start());
  home_ = link.get();
  links_.push_back({.link = std::move(link)});
  return OkStatus();
}

void EngineEndpoint::Loop::Close(bool is_dead) {
  if (!thread_.joinable()) return;
  dead_ = is_dead;
  stop_ = true;
  wake_up_.Signal();
  thread_.join();
}

void EngineEndpoint::Loop::Run() {
  SetThreadName("wire");
  while (!stop_) {
    poll_.Wait(WaitMs());
    SendOutgoing();
    // By number: a message may add a link.
    for (size_t i = 0; i < links_.size(); ++i) links_[i].link->ReceiveInputs();
    for (size_t i = 0; i < links_.size(); ++i) links_[i].link->ReceiveInit();
    for (const Link& each : links_) each.link->ApplyConnectionEvents();
    DropLinks();
    if (std::exchange(has_new_sockets_, false)) RebuildPollSet();
  }
  SendOutgoing();
  for (const Link& each : links_) each.link->Close(dead_);
}

void EngineEndpoint::Loop::RebuildPollSet() {
  poll_.Reset(wake_up_);
  for (const Link& each : links_) each.link->AddTo(&poll_);
}

// ---- Frontends ----

std::optional<int> EngineEndpoint::Loop::Admit(FrontendLink* link, const EngineAddresses& clients) {
  const std::string& input = clients.inputs.front();
  for (Link& each : links_) {
    if (each.link.get() == link) continue;
    if (each.link->input_address() == input) {
      // We have met this frontend by its other address.
      SetUnwanted(link);
      if (home_ == link) home_ = each.link.get();
      return std::nullopt;
    }
    // It waits there for what this link has.
    const bool waits = each.link->num_clients() == 0 && each.link.get() != home_;
    if (waits && AreOfOneFrontend(each.link->address(), input)) each.is_unwanted = true;
  }
  const auto num_clients = static_cast<int>(clients.inputs.size());
  const std::optional<int> first = FreeIndices(num_clients);
  if (!first) LOG_ERROR << "a frontend with " << num_clients << " clients is one too many";
  return first;
}

std::optional<int> EngineEndpoint::Loop::FreeIndices(int num_clients) const {
  // Behind no link, or behind one of them.
  std::optional<int> first;
  const auto consider = [&](int begin) {
    const int end = begin + num_clients;
    const bool is_free = std::all_of(links_.begin(), links_.end(), [&](const Link& each) {
      const int taken = each.link->first_client();
      return each.link->num_clients() == 0 || end <= taken ||
             taken + each.link->num_clients() <= begin;
    });
    if (is_free && end <= kMaxClients && (!first || begin < *first)) first = begin;
  };
  consider(0);
  for (const Link& each : links_) {
    consider(each.link->first_client() + each.link->num_clients());
  }
  return first;
}

void EngineEndpoint::Loop::SetUnwanted(const FrontendLink* link) {
  for (Link& each : links_) {
    if (each.link.get() == link) each.is_unwanted = true;
  }
}

bool EngineEndpoint::Loop::is_over(const Link& each, double now) const {
  const bool is_late = each.join_until > 0 && !each.link->has_met() && now >= each.join_until;
  return each.is_unwanted || is_late || !each.link->lost().empty();
}

void EngineEndpoint::Loop::DropLinks() {
  const double now = SystemClock().Monotonic();
  for (size_t i = 0; i < links_.size();) {
    Link& each = links_[i];
    if (!is_over(each, now)) {
      ++i;
      continue;
    }
    // INFO: a frontend may come and go. The loop logs the requests that it drops.
    const std::string& why = each.link->lost();
    const bool was_home = home_ == each.link.get();
    const bool was_silent = was_home && each.link->num_clients() == 0;
    if (was_home) LoseHome(now);
    if (was_silent) look_again_at_ = now + kLookAgainSeconds;
    if (was_silent && options_.handshake_address.starts_with("tcp://")) {
      if (complaints_.Next()) {
        LOG_WARNING << options_.handshake_address
                    << " closes the connection: is it a frontend, with keys of the same set?";
      }
    } else if (was_home) {
      LOG_INFO << "the frontend is gone (" << why << "), waiting for the next at "
               << options_.handshake_address;
    } else if (!why.empty()) {
      LOG_INFO << "the frontend beside it is gone (" << why << ")";
    }
    each.link->Lose();
    has_new_sockets_ = true;
    links_.erase(links_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  Leave();  // one that was not let go by the frontend that is gone
  ComplainOfSilence(now);
  if (home_ != nullptr || is_leaving_ || now < look_again_at_) return;
  const Status status = LookForHome(now);
  CHECK(status.ok()) << status.ToString();  // it was good in Start
}

void EngineEndpoint::Loop::ComplainOfSilence(double now) {
  if (!complain_at_) return;
  const bool has_responded = home_ != nullptr && home_->num_clients() > 0;
  if (!has_responded && now < *complain_at_) return;
  complain_at_.reset();
  if (has_responded) return;
  LOG_WARNING << "no frontend has responded at " << options_.handshake_address << " for "
              << kSilentSeconds << " s: it is not there, waits for no engine of this rank, or has "
              << "one; this engine goes on waiting";
}

// Until the next frontend that does not appear is given up, or is looked for again.
int EngineEndpoint::Loop::WaitMs() const {
  const double now = SystemClock().Monotonic();
  std::optional<double> wait_s;
  if (home_ == nullptr && !is_leaving_) wait_s = std::max(0.0, look_again_at_ - now);
  if (complain_at_) {
    wait_s = std::min(wait_s.value_or(kSilentSeconds), std::max(0.0, *complain_at_ - now));
  }
  for (const Link& each : links_) {
    if (each.join_until == 0 || each.link->has_met()) continue;
    const double left_s = std::max(0.0, each.join_until - now);
    if (!wait_s || left_s < *wait_s) wait_s = left_s;
  }
  return wait_s ? static_cast<int>(std::ceil(*wait_s * 1000)) : -1;
}

void EngineEndpoint::Loop::Join(const std::string& address) {
  for (const Link& each : links_) {
    const bool has_met = AreOfOneFrontend(each.link->input_address(), address);
    if ((each.link->address() == address || has_met) && !each.is_unwanted) return;
  }
  auto link = std::make_unique<FrontendLink>(&shared_, address);
  if (const Status status = link->Start(); !status.ok()) {
    LOG_WARNING << "the frontend names another one that cannot be reached: " << status.message();
    return;
  }
  LOG_INFO << "meeting another frontend at " << address;
  links_.push_back(
      {.link = std::move(link), .join_until = SystemClock().Monotonic() + kJoinSeconds});
}

void EngineEndpoint::Loop::MakeHome(FrontendLink* link) {
  if (home_ == link) return;
  LOG_INFO << "another frontend serves now";
  // One that has not replied yet is looked for at the address that leads to this one now.
  if (home_ != nullptr && !home_->is_ready()) SetUnwanted(home_);
  home_ = link;
}

// ---- Calls that are not the engine's ----

bool EngineEndpoint::Loop::HandleCall(FrontendLink* from, const UtilityRequest& call) {
  if (call.method == kPingMethod) {
    AnswerPing(from, call);
  } else if (call.method == kJoinMethod) {
    Join(TextOf(call));
  } else if (call.method == kHomeMethod) {
    MakeHome(from);
  } else if (call.method == kLeaveMethod) {
    from->SetLeft(call.client_index);
    Leave();
  } else if (call.method == kRefuseMethod) {
    const std::string why = TextOf(call);
    if (from == home_) {
      is_leaving_ = true;
      LeaveFor(FailedPreconditionError(why.empty() ? "no reason given" : why));
    } else {
      LOG_WARNING << "the frontend beside it refuses this engine: " << why;
      SetUnwanted(from);
    }
  } else {
    return false;
  }
  return true;
}

void EngineEndpoint::Loop::AnswerPing(FrontendLink* from, const UtilityRequest& call) {
  EngineCoreOutputs outputs;
  outputs.timestamp = SystemClock().Monotonic();
  outputs.utility_output.emplace().call_id = call.call_id;
  from->Send(call.client_index, &outputs);
}

void EngineEndpoint::Loop::Leave() {
  const auto has_left = [](const Link& each) { return each.link->has_left(); };
  const auto had_clients = [](const Link& each) { return each.link->num_clients() > 0; };
  if (!std::all_of(links_.begin(), links_.end(), has_left) ||
      !std::any_of(links_.begin(), links_.end(), had_clients)) {
    return;
  }
  if (!std::exchange(is_leaving_, true)) LeaveFor(OkStatus());
}

void EngineEndpoint::Loop::LeaveFor(const Status& why) {
  if (options_.on_leave) options_.on_leave(why);
}

// ---- Outputs ----

void EngineEndpoint::Loop::SendOutgoing() {
  if (!outgoing_.Drain(&drained_)) return;
  for (Outgoing& out : drained_) {
    if (out.ready) {
      ready_ = std::move(out.ready);
      for (const Link& each : links_) each.link->AnnounceReady();
      continue;
    }
    SendOutputs(&out);
    spent_.Push(std::move(out.outputs));
  }
  drained_.clear();
}

void EngineEndpoint::Loop::SendOutputs(Outgoing* out) {
  if (const auto& stats = out->outputs.scheduler_stats; stats && home_ != nullptr) {
    home_->ReportLoad(*stats, out->outputs.timestamp);
  }
  FrontendLink* receiver = nullptr;
  for (const Link& each : links_) {
    const int first = each.link->first_client();
    const int end = first + each.link->num_clients();
    if (first <= out->client_index && out->client_index < end) receiver = each.link.get();
  }
  if (receiver != home_ && home_ != nullptr && out->outputs.scheduler_stats) {
    // The statistics belong to the frontend whose metrics are read.
    EngineCoreOutputs stats;
    stats.timestamp = out->outputs.timestamp;
    stats.scheduler_stats = std::exchange(out->outputs.scheduler_stats, std::nullopt);
    home_->Send(0, &stats);
  }
  if (receiver == nullptr || out->outputs.is_empty()) return;
  receiver->Send(out->client_index - receiver->first_client(), &out->outputs);
}

EngineEndpoint::EngineEndpoint(EngineEndpointOptions options,
                               std::function<void(EngineInput)> deliver)
    : loop_(std::make_unique<Loop>(std::move(options), std::move(deliver))) {}
EngineEndpoint::~EngineEndpoint() { Close(); }

Status EngineEndpoint::Start() { return loop_->Start(); }
void EngineEndpoint::AnnounceReady(EngineCoreReadyResponse response) {
  loop_->outgoing_.Push({0, {}, std::move(response)});
}
void EngineEndpoint::Send(int client_index, EngineCoreOutputs outputs) {
  CHECK(!outputs.is_empty());
  loop_->outgoing_.Push({client_index, std::move(outputs), std::nullopt});
}
EngineCoreOutputs EngineEndpoint::TakeSpent() {
  if (loop_->spare_.empty()) loop_->spent_.Drain(&loop_->spare_);
  if (loop_->spare_.empty()) return {};
  if (loop_->spare_.size() > kMaxSpent) loop_->spare_.resize(kMaxSpent);
  EngineCoreOutputs outputs = std::move(loop_->spare_.back());
  loop_->spare_.pop_back();
  return outputs;
}
void EngineEndpoint::Close() { loop_->Close(false); }
void EngineEndpoint::CloseDead() { loop_->Close(true); }

}  // namespace tandem::wire
