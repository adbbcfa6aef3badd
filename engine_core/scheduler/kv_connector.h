#pragma once

// The scheduler's side of a KV connector, which moves KV between this cache and another place:
// another engine (separate prefill and decode) or a store of prefixes. The scheduler asks it what
// it can load and notifies it of allocations and ends; its worker's side, in the executor, moves
// the bytes and reports with each step's result. The idea is the scheduler half of vLLM's V1 KV
// connector.
// Thread: engine loop. The creator of the engine owns it; it must outlive the scheduler. A call
// must not reach back into scheduler or cache; requests and spans are valid during the call.
// Nothing turns this on yet: only the simulation has a connector.
//
// A load brings the KV of the tokens after a request's local prefix into blocks allocated for them.
// With the step: the worker loads before it computes the step that admits the request.
// Asynchronous: the request waits, with its blocks and outside the batch, until the load has ended.
// Blocks that a load writes to are shared with no other request and are not freed before it has
// ended, even when the request is aborted. Steps in flight may still write to a block that has just
// been allocated for a load: the worker runs the load after them.
// Failure: a load that failed names the blocks it did not fill. With kFail the request ends with an
// error; with kRecompute it keeps the KV before the first of those blocks and computes the rest,
// without asking again. When the load came with a step, what the request gets from that step is
// dropped, as by a preemption.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "common/ids.h"

namespace tandem {

struct Request;

// What a connector can load for a request.
struct KvMatch {
  int32_t num_tokens = 0;
  bool is_async = false;
};

// What the worker's side reports with the result of a step.
struct KvTransferReport {
  std::vector<RequestId> loaded = {};  // asynchronous loads that have ended, with success or not
  // Blocks not filled by loads of this step, or by asynchronous loads that had not been reported as
  // ended before.
  std::vector<BlockId> failed_blocks = {};
  std::vector<RequestId> released = {};  // ended requests whose kept blocks are no longer read

  void Clear() {
    loaded.clear();
    failed_blocks.clear();
    released.clear();
  }
};

class KvConnector {
 public:
  virtual ~KvConnector() = default;

  // What it can load after the first num_local_tokens (whole blocks). Called at each attempt to
  // admit the request. nullopt: not known yet, ask again in a later step; other requests may
  // overtake this one meanwhile. A load with the step leaves at least the last token to compute.
  virtual std::optional<KvMatch> Match(const Request& request, int32_t num_local_tokens) = 0;
  // The request has its blocks: load the match, which may be empty, to positions [num_local_tokens,
  // num_local_tokens + match.num_tokens) of them.
  virtual void OnAllocated(const Request& request, std::span<const BlockId> table,
                           int32_t num_local_tokens, const KvMatch& match) = 0;
  // Whether the blocks of a running request may be freed now: not while the worker still reads them
  // to save them. Blocks that are being loaded are not saved before the load has ended.
  virtual bool CanRelease(const Request& request) const = 0;
  // A request has ended, in any state; the table is empty if it had no blocks. True: its blocks
  // stay as they are until `released` names it.
  virtual bool OnFinished(const Request& request, std::span<const BlockId> table) = 0;
};

}  // namespace tandem
