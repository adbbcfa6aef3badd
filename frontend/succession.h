#pragma once

// One frontend process after another, without a moment in which none serves: this process takes
// over from the one before it (--take-over), and hands over to the next one (which it starts on
// SIGUSR2, if nobody else does). frontend/hand_over has the messages. Thread: the first shard's,
// unless noted. Borrows everything.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/mailbox.h"
#include "common/status.h"
#include "frontend/config.h"
#include "frontend/hand_over/hand_over.h"
#include "frontend/next_process.h"
#include "frontend/shutdown.h"
#include "proto_msgpack/wire_endpoint.h"

namespace tandem {

class AdapterDirectory;
class EngineClient;
class Metrics;

class Succession {
 public:
  struct Parts {
    const FrontendConfig* config = nullptr;
    std::vector<std::string> words;  // of the command line
    Shard* shard = nullptr;
    wire::FrontendEndpoint* endpoint = nullptr;
    HttpServer* server = nullptr;
    std::vector<EngineClient*> engines;  // one per shard
    const AdapterDirectory* adapters = nullptr;
    Metrics* metrics = nullptr;
    std::function<void()> on_serving;  // this process stood by, and serves now
    Mailbox<ShutdownEvent>* events = nullptr;
  };

  // Asks the frontend that serves, if there is one and the flags say so. Main thread, before
  // anything is bound.
  static StatusOr<std::optional<HandOverClaim>> Claim(const FrontendConfig& config);

  explicit Succession(std::optional<HandOverClaim> claim) : claim_(std::move(claim)) {}

  // Open the sockets for clients and for engines, or take those of the one before. Main thread.
  Status Listen(HttpServer* server);
  Status MeetEngines(wire::FrontendEndpoint* endpoint);
  // From now on the process serves, or stands by until its engines are ready. Main thread, before
  // the shards start.
  void Begin(Parts parts);
  // For an engine client that reports a change, on its shard. A process that stands by serves from
  // the first moment at which the engines of all shards are healthy.
  void OnHealthChange(const EngineClient& engines);
  bool stands_by() const { return claim_.has_value(); }
  // Another process is about to take over, or has.
  bool is_handing_over() const { return is_retired_ || (offer_ && offer_->has_successor()); }
  // Starts the next process, or has `tandem serve` start it.
  void Reload();
  // This process is about to end by itself: nobody takes over from it. Any thread.
  void End();
  // What a retired frontend counted since it last sent its counts goes to the one that serves.
  // Main thread, after the shards have ended.
  void SendLastCounts();
  // Why this process could not take over; for main, after the shards have ended.
  const Status& failure() const { return failure_; }

 private:
  void SetHealthy(int shard, bool is_healthy);
  void Serve();
  void BeginAccepting();
  void Fail(const Status& why);
  void OnPredecessorEnd(const StatusOr<std::string>& counts);
  void AddCounts(const std::string& counts);
  Status OfferHandOver();
  Status PublishOffer();
  StatusOr<Estate> Share(int num_engines) const;
  std::string Retire(pid_t successor);
  void SendCountsAgain();
  void TakeBack();
  void OnNextProcessEnd();

  std::optional<HandOverClaim> claim_;  // while this process stands by
  bool has_claimed_ = false;            // the one before retires
  Parts parts_;
  std::vector<bool> is_healthy_;        // by shard
  std::optional<HandOverOffer> offer_;  // while it serves
  std::optional<LateCounts> late_counts_;
  bool is_retired_ = false;
  std::optional<NextProcess> next_;
  std::unique_ptr<Socket> next_end_;
  Status failure_;
};

}  // namespace tandem
