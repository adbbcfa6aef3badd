#pragma once

// The scheduler's side of KV that is moved between this cache and somewhere else: another engine
// (prefill and decode apart), a store of prefixes. It answers questions and is told what happened;
// the bytes are moved by its worker's side, within the executor, whose news come back with each
// step's result. The idea is the scheduler half of vLLM's v1 KV connector.
// Thread: engine loop. The engine's maker owns it; it must outlive the scheduler. A call must not
// reach back into scheduler or cache; requests and spans are valid during the call.
//
// A load brings the KV of tokens behind a request's local prefix, into blocks that it got for them.
// With the step: the worker loads before it computes the step that admits the request.
// Asynchronous: the request waits, with its blocks and outside the batch, until the load has ended.
// Blocks that a load writes into are nobody else's and are not given back before it has ended, also
// when the request is aborted. Steps in flight may still write to a block that has just been given
// to a load: the worker orders the load behind them.
// Failure: a load that went wrong names the blocks it did not fill. With kFail the request ends
// with an error; with kRecompute it keeps what is in front of those and computes the rest, without
// asking again. In a step that has loaded with it, all that the request has got is thrown away for
// that, as by a preemption.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "common/ids.h"

namespace tandem {

struct Request;

// What can be brought for a request.
struct KvMatch {
  int32_t num_tokens = 0;
  bool is_async = false;
};

// What the worker's side has to tell with the result of a step.
struct KvTransferNews {
  std::vector<RequestId> loaded = {};  // asynchronous loads that have ended, well or not
  // Not filled: by asynchronous loads that have not been told as ended before this, or by loads of
  // this step.
  std::vector<BlockId> failed_blocks = {};
  std::vector<RequestId> released = {};  // their blocks, kept behind their end, are no longer read

  void Clear() {
    loaded.clear();
    failed_blocks.clear();
    released.clear();
  }
};

class KvConnector {
 public:
  virtual ~KvConnector() = default;

  // What it can bring behind the first num_local_tokens (whole blocks); at each attempt to admit
  // the request. nullopt: not known yet, ask in a later step; others may pass meanwhile. A load
  // with the step leaves at least the last token to compute.
  virtual std::optional<KvMatch> Match(const Request& request, int32_t num_local_tokens) = 0;
  // The request has its blocks: what was matched is to be loaded to positions [num_local_tokens,
  // num_local_tokens + match.num_tokens) of them; that may be nothing.
  virtual void OnAllocated(const Request& request, std::span<const BlockId> table,
                           int32_t num_local_tokens, const KvMatch& match) = 0;
  // Whether the blocks of a running request could be given to another now. Not while the worker
  // still reads them, to save them. What has been loaded is not saved before the load's end.
  virtual bool CanRelease(const Request& request) const = 0;
  // A request has ended, whatever it was doing; the table is empty if it had no blocks. True: its
  // blocks stay as they are until `released` names it.
  virtual bool OnFinished(const Request& request, std::span<const BlockId> table) = 0;
};

}  // namespace tandem
