#pragma once

// The one StoredResponses of a server, for the shards: a response that one shard has made is found
// from any other. The table belongs to one shard, the owner; every call posts to it, and what it
// replies is posted back, so nothing is shared but texts that no longer change. Two calls of which
// one happens before the other reach the table in this order, so a client that has its response can
// continue it.
// Thread: any shard's. Lives until the shards have ended.

#include <memory>
#include <string>

#include "common/status.h"
#include "frontend/api/stored_responses.h"
#include "frontend/metrics/metrics.h"
#include "frontend/net/net.h"

namespace tandem {

// The events of a stored response on their way to one reader. Thread: the reader's shard.
struct StoredEvents {
  std::string text;  // that have arrived and were not taken yet
  bool is_end = false;
  Event arrived;
};

class ResponseStore {
 public:
  ResponseStore(const StoredResponseLimits& limits, Shard* owner, FrontendMetrics* metrics)
      : limits_(limits), owner_(owner), metrics_(metrics), table_(limits) {}
  ResponseStore(const ResponseStore&) = delete;

  const StoredResponseLimits& limits() const { return limits_; }

  // Of responses that have ended.
  void Put(std::string id, StoredResponse response);
  Awaitable<StatusOr<StoredResponsePtr>> Find(std::string id);
  Awaitable<Status> Remove(std::string id);

  // Of responses that run. stop runs on the owner's shard.
  Awaitable<Status> Begin(std::string id, StoredResponse response, bool keeps_events,
                          StoredResponses::Stop stop);
  void Update(std::string id, std::string body);
  void Append(std::string id, std::string events);
  void End(std::string id, std::string body);
  Awaitable<StatusOr<StoredResponsePtr>> Cancel(std::string id);

  // Events with a number above `after` go to *events for as long as it lives, in order.
  Awaitable<Status> Follow(std::string id, int64_t after,
                           const std::shared_ptr<StoredEvents>& events);

 private:
  void Report();  // what the table holds

  const StoredResponseLimits limits_;
  Shard* const owner_;
  FrontendMetrics* const metrics_;
  StoredResponses table_;  // touched by the owner's thread only
};

}  // namespace tandem
