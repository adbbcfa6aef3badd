#pragma once

// Publishes batches of KV events to subscribers, as vLLM does: a PUB socket with the frames
// [topic][sequence number, 8 bytes big-endian][batch], and, when a replay endpoint is given, a
// ROUTER that responds to [empty][first sequence number wanted] with the batches it still has and
// an end marker of sequence number -1.
// Threads: the publisher runs one thread, which owns the sockets, encodes and sends. Publish may be
// called from one thread and never waits: when max_queue_size batches wait already, the new one is
// dropped, and its sequence number with it, so that subscribers notice the gap.
// Failure: addresses that cannot be used are a Status of Start; bad replay requests are logged.

#include <memory>
#include <string>

#include "common/status.h"
#include "proto_msgpack/kv_events.h"

namespace tandem::wire {

struct KvEventPublisherOptions {
  KvEventsConfig config;
  int data_parallel_rank = 0;  // added to the TCP ports of the configuration
  KvHashForm hash_form = KvHashForm::kInteger;
};

class KvEventPublisher {
 public:
  explicit KvEventPublisher(KvEventPublisherOptions options);
  ~KvEventPublisher();

  Status Start();
  // The configuration with the endpoints as they were bound. REQUIRES: started.
  const KvEventsConfig& config() const;
  void Publish(KvEventBatch batch);
  // Sends what is queued for at most a second, then stops the thread. Called by the destructor.
  void Close();

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

// The endpoint of the engine of that rank: tcp ports grow by the rank, other names get a suffix;
// rank 0 keeps it unchanged. INVALID_ARGUMENT: a tcp endpoint without a port.
StatusOr<std::string> KvEndpointOfRank(const std::string& endpoint, int rank);

}  // namespace tandem::wire
