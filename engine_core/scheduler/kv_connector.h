#pragma once

// The scheduler's side of a KV connector, which moves KV between this cache and another place:
// another engine (separate prefill and decode) or a store of prefixes. The scheduler asks it what
// it can load and notifies it of allocations and ends; its worker's side, in the executor, moves
// the bytes and reports with each step's result. The calls and their order are those of vLLM's V1
// KV connector, whose traces tests/golden/scheduler_connector replays.
// Thread: engine loop. The creator of the engine owns it; it must outlive the scheduler. A call
// must not reach back into scheduler or cache; requests and spans are valid during the call.
//
// A load brings the KV of the tokens after a request's local prefix into blocks allocated for them.
// With the step: the worker loads before it computes the step that admits the request.
// Asynchronous: the request waits, with its blocks and outside the batch, until the load has ended.
// Blocks that an asynchronous load writes to are shared with no other request and are not freed
// before it has ended, even when the request is aborted. Steps in flight may still write to a block
// that has just been allocated for a load: the worker runs the load after them.
// Failure: a load that failed names the blocks it did not fill, or its request as a whole. With
// kFail the request ends with an error; with kRecompute it keeps the KV before the first of those
// blocks and computes the rest. What a request gets from a step whose loads failed is dropped.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "common/ids.h"
#include "engine_core/kv_cache/kv_cache_event.h"
#include "proto_msgpack/schema.h"

namespace tandem {

struct Request;

// What a connector can load for a request.
struct KvMatch {
  int32_t num_tokens = 0;
  bool is_async = false;
};

// What a connector says of a request that ends.
struct KvEnding {
  // They stay as they are until `released` names the request. Another holder of a block that a
  // failed load had left wrong may still write the same KV to it.
  bool keeps_blocks = false;
  bool holds_output = false;   // with it: so does the request's last output
  bool is_promised = false;    // with it: to another process, which the engine's end waits for
  wire::RawValue params = {};  // the output's kv_transfer_params: a map; nil: none
};

// What the worker's side reports with the result of a step.
struct KvTransferReport {
  std::vector<RequestId> loaded = {};  // asynchronous loads that have ended, with success or not
  // Blocks not filled by loads of this step, or by asynchronous loads that had not been reported as
  // ended before.
  std::vector<BlockId> failed_blocks = {};
  std::vector<RequestId> failed_loads = {};  // asynchronous; ended, and nothing of them is valid
  std::vector<RequestId> released = {};      // ended requests whose kept blocks are no longer read
  std::vector<RequestId> not_stored = {};    // of those: nobody can load what `params` name

  void Clear() {
    loaded.clear();
    failed_blocks.clear();
    failed_loads.clear();
    released.clear();
    not_stored.clear();
  }
};

class KvConnector {
 public:
  virtual ~KvConnector() = default;

  // A request has arrived. Whether it is to get KV from elsewhere, for statistics.
  virtual bool OnAdded(const Request&) { return false; }
  // A request with these extra_args has arrived and is refused: nobody is going to read what they
  // name.
  virtual void OnRefused(const RequestId& /*id*/, const wire::RawValue& /*extra_args*/) {}
  // What it can load after the first num_local_tokens (whole blocks). Called at each attempt to
  // admit a request that has nothing computed. nullopt: not known yet, ask again in a later step;
  // other requests may overtake this one meanwhile. A load with the step leaves at least the last
  // token to compute. The result is not used for a request that reads no prefix.
  virtual std::optional<KvMatch> Match(const Request& request, int32_t num_local_tokens) = 0;
  // Where the tokens of this match lie, which is not empty, by vLLM's names: host, p2p, disk or
  // external_unspecified. For statistics; asked once a request has its blocks, before OnAllocated.
  virtual wire::CountsByName Sources(const Request& /*request*/, int32_t /*num_local_tokens*/,
                                     const KvMatch& match) const {
    return {{"external_unspecified", match.num_tokens}};
  }
  // The request has its blocks: load the match, which may be empty, to positions [num_local_tokens,
  // num_local_tokens + match.num_tokens) of them. Called a second time, with an empty match, when a
  // request whose asynchronous load has ended is admitted.
  virtual void OnAllocated(const Request& request, std::span<const BlockId> table,
                           int32_t num_local_tokens, const KvMatch& match) = 0;
  // Whether blocks that it keeps will soon be free: a running request that lacks some waits for
  // them instead of preempting another.
  virtual bool WillFreeBlocks() const { return false; }
  // A request ends with this status, in any state. The table has the blocks of its computed tokens;
  // without any, no block is kept. While `request.load` is kRunning they stay until that load has
  // been reported as ended, and no longer.
  virtual KvEnding OnFinished(const Request& request, wire::RequestStatus status,
                              std::span<const BlockId> table) = 0;
  // A client aborts a request that has ended and whose blocks stay: nobody is going to read them.
  virtual void OnGivenUp(const RequestId&) {}
  // Appends what has changed, since the last call, in what it could load.
  virtual void TakeEvents(std::vector<KvCacheEvent>*) {}
  // What it has counted since the last call (proto_msgpack/kv_connector_stats.h); nil: nothing.
  // Called after each step.
  virtual wire::RawValue TakeStats() { return {}; }
  // Forgets what it could load. False: it could not.
  virtual bool Reset() { return true; }
};

}  // namespace tandem
