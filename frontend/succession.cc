#include "frontend/succession.h"

#include <fcntl.h>

#include <algorithm>
#include <utility>

#include "common/clock.h"
#include "common/log.h"
#include "common/sd_notify.h"
#include "frontend/adapters/adapter_directory.h"
#include "frontend/engine_client/engine_client.h"
#include "frontend/http/listener.h"
#include "frontend/metrics/metrics.h"

namespace tandem {
namespace {

constexpr std::string_view kNeedsFolder =
    "only frontends that meet their engines at an ipc:// address take over from each other";
constexpr double kCountsSeconds = 1;      // how long the next frontend waits for the counts
constexpr double kLateCountsSeconds = 5;  // how often a retired one sends its own

}  // namespace

// ---- After the one before ----

StatusOr<std::optional<HandOverClaim>> Succession::Claim(const FrontendConfig& config) {
  if (!config.take_over) return std::optional<HandOverClaim>();
  constexpr std::string_view kIpc = "ipc://";
  if (!config.handshake_address.starts_with(kIpc)) {
    return InvalidArgumentError("--take-over: " + std::string(kNeedsFolder));
  }
  const std::string folder = DataAddress(config.handshake_address).substr(kIpc.size());
  ASSIGN_OR_RETURN(std::optional<HandOverClaim> claim,
                   HandOverClaim::Make(folder + "/" + std::string(kHandOverName),
                                       static_cast<int>(config.data_parallel_size)));
  if (!claim) return claim;
  RETURN_IF_ERROR(CheckListensThere(claim->estate().listener, config.server));
  return claim;
}

Status Succession::Listen(HttpServer* server) {
  if (!claim_) return server->Listen();
  server->Inherit(std::move(claim_->estate().listener));
  return OkStatus();
}

Status Succession::MeetEngines(wire::FrontendEndpoint* endpoint) {
  if (!claim_) return endpoint->Start();
  return endpoint->StartBeside(std::move(claim_->estate().folder_lock));
}

void Succession::Begin(Parts parts) {
  parts_ = std::move(parts);
  is_healthy_.resize(parts_.engines.size());
  if (!claim_) {
    const Status status = OfferHandOver();
    if (!status.ok()) LOG_WARNING << "no other frontend can take over: " << status.message();
    return;
  }
  LOG_INFO << "[reload] standing by until the engines are ready";
  claim_->WatchEnd(parts_.shard, [this](const auto& counts) { OnPredecessorEnd(counts); });
  (void)claim_->SendBound(parts_.endpoint->own_address());  // one that is gone is noticed above
}

void Succession::OnHealthChange(const EngineClient& engines) {
  parts_.shard->Post([this, shard = engines.client_index(), is_healthy = engines.healthy()] {
    SetHealthy(shard, is_healthy);
  });
}

void Succession::SetHealthy(int shard, bool is_healthy) {
  is_healthy_[static_cast<size_t>(shard)] = is_healthy;
  const bool all =
      std::all_of(is_healthy_.begin(), is_healthy_.end(), [](bool each) { return each; });
  if (all && stands_by() && !has_claimed_ && failure_.ok()) Serve();
}

void Succession::OnPredecessorEnd(const StatusOr<std::string>& counts) {
  if (has_claimed_) {
    if (counts.ok()) AddCounts(*counts);
    return BeginAccepting();
  }
  if (!counts.ok()) {
    return Fail(counts.status().WithContext("the frontend that serves refuses this one"));
  }
  LOG_WARNING << "[reload] the frontend before has ended: serving in its place";
  Serve();
}

// Until SendServing the one before takes everything back if this process ends. From then on clients
// wait in the shared queue until this one accepts, which it does with the counts of the one before:
// counters that its page has shown must not fall.
void Succession::Serve() {
  Status status = parts_.endpoint->Publish();
  if (status.ok()) status = OfferHandOver();
  if (!status.ok()) return Fail(status);
  has_claimed_ = true;
  if (!claim_->SendServing().ok()) return BeginAccepting();
  parts_.shard->At(SystemClock().Monotonic() + kCountsSeconds, [this] { BeginAccepting(); });
}

void Succession::BeginAccepting() {
  if (!claim_) return;  // it does already
  parts_.server->StartAccepting();
  claim_.reset();
  LOG_INFO << "[reload] serving";
  parts_.on_serving();  // what reports it may rely on it
}

void Succession::AddCounts(const std::string& counts) {
  const Status status = parts_.metrics->AddCounts(counts);
  if (!status.ok()) LOG_WARNING << "[reload] metrics: " << status.message();
}

void Succession::Fail(const Status& why) {
  failure_ = why;
  parts_.events->Push(ShutdownEvent::kSignal);
}

// ---- Before the next one ----

Status Succession::OfferHandOver() {
  wire::IpcFolder* const folder = parts_.endpoint->folder();
  if (folder == nullptr) return OkStatus();
  offer_.emplace(
      parts_.shard,
      HandOverOffer::Calls{
          .share = [this](int num_engines) { return Share(num_engines); },
          .introduce = [this](const std::string& address) { parts_.endpoint->Introduce(address); },
          .retire = [this](pid_t successor) { return Retire(successor); },
          .take_back = [this] { TakeBack(); }});
  RETURN_IF_ERROR(offer_->Listen(folder->SocketOf(kHandOverName)));
  late_counts_.emplace(parts_.shard, [this](const std::string& counts) { AddCounts(counts); });
  RETURN_IF_ERROR(late_counts_->Listen(folder->SocketOf(kLateCountsName)));
  return PublishOffer();
}

Status Succession::PublishOffer() {
  const wire::IpcFolder* const folder = parts_.endpoint->folder();
  RETURN_IF_ERROR(folder->Publish(kHandOverName));
  return folder->Publish(kLateCountsName);
}

StatusOr<Estate> Succession::Share(int num_engines) const {
  if (parts_.server->draining()) return UnavailableError("the server is shutting down");
  const EngineClient& engines = *parts_.engines.front();
  if (num_engines != engines.num_engines()) {
    return FailedPreconditionError("--data-parallel-size is " + std::to_string(num_engines) +
                                   ", and must stay " + std::to_string(engines.num_engines()));
  }
  for (int i = 0; i < num_engines; ++i) {
    if (!engines.engine_ready(i) || engines.engine_info(i).peer() == wire::Peer::kTandem) continue;
    return FailedPreconditionError("engine " + std::to_string(i) +
                                   " is another program's, which serves one frontend at a time");
  }
  Estate estate;
  ASSIGN_OR_RETURN(estate.adapters, parts_.adapters->Share());
  const int lock_fd = parts_.endpoint->folder()->lock_fd();
  estate.folder_lock = UniqueFd(::fcntl(lock_fd, F_DUPFD_CLOEXEC, 0));
  estate.listener = parts_.server->ShareListener();
  return estate;
}

std::string Succession::Retire(pid_t successor) {
  LOG_INFO << "[reload] process " << successor << " serves; this one ends with its last connection";
  if (parts_.config->enable_responses_api_store) {
    LOG_WARNING << "[reload] stored responses end with this process";
  }
  is_retired_ = true;
  (void)SdNotify("MAINPID=" + std::to_string(successor));
  next_end_.reset();
  offer_->Close("another frontend serves");
  parts_.endpoint->Retire();
  parts_.server->Retire();
  parts_.events->Push(ShutdownEvent::kRetired);
  if (late_counts_) late_counts_->Take();
  late_counts_.reset();
  SendCountsAgain();
  return parts_.metrics->HandOverCounts();
}

void Succession::SendCountsAgain() {
  parts_.shard->At(SystemClock().Monotonic() + kLateCountsSeconds, [this] {
    SendLastCounts();
    SendCountsAgain();
  });
}

void Succession::SendLastCounts() {
  if (!is_retired_) return;
  const std::string counts = parts_.metrics->HandOverCounts();
  if (counts.empty()) return;
  const std::string path = parts_.endpoint->folder()->path() + "/" + std::string(kLateCountsName);
  const Status sent = LateCounts::Send(path, counts);
  if (!sent.ok()) {
    LOG_WARNING << "[reload] what was counted since the last time is on no page of metrics: "
                << sent.message();
  }
}

void Succession::TakeBack() {
  Status status = parts_.endpoint->Publish();
  if (status.ok()) status = PublishOffer();
  if (!status.ok()) LOG_ERROR << "[reload] the address cannot be taken back: " << status.message();
}

void Succession::Reload() {
  if (parts_.server->closes_connections()) return;
  if (IsSupervised()) {
    (void)SdNotify(kReloadNotice);
    return;
  }
  if (parts_.endpoint->folder() == nullptr) {
    LOG_ERROR << "[reload] " << kNeedsFolder;
    return;
  }
  if (!offer_ || next_ || offer_->has_successor()) {
    LOG_WARNING << "[reload] another one is under way";
    return;
  }
  StatusOr<NextProcess> next = StartNextProcess(parts_.words, *parts_.config);
  if (!next.ok()) {
    LOG_ERROR << "[reload] " << next.status().message();
    return;
  }
  LOG_INFO << "[reload] started process " << next->pid << " to take over";
  next_ = *std::move(next);
  next_end_ = std::make_unique<Socket>(parts_.shard, next_->pidfd.Release());
  next_end_->NotifyReadable([this] { OnNextProcessEnd(); });
}

void Succession::OnNextProcessEnd() {
  LOG_ERROR << "[reload] process " << next_->pid << " " << next_->Reap()
            << " before it took over; this one serves on";
  next_.reset();
  next_end_.reset();
}

void Succession::End() {
  parts_.shard->Post([this] {
    if (offer_) offer_->Close("the server is shutting down");
  });
}

}  // namespace tandem
