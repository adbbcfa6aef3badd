#pragma once

// How much of the prefill engines' caches has KV for others: of prompts under way there, and of
// those whose KV the engine that decodes has not read. Half of a cache is for them, of which each
// shard has an equal share, for beyond it a TandemConnector ends the oldest leases unread. A prompt
// that is alone may be larger.
// Thread: the shard's. Knows counts and ids only. Units: whole blocks; the last token of a prompt
// is computed where it is decoded.

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/ids.h"
#include "frontend/engine_client/running_requests.h"

namespace tandem {

// The requests that read the KV of one prefill.
struct KvReaders {
  int engine_index = kNoEngine;          // which decodes; kNoEngine: nobody reads
  std::vector<RequestId> sent_ids = {};  // as that engine knows them
};

class PrefillRoom {
 public:
  // A prefill of which nobody is going to read the KV.
  struct GivenUp {
    RequestId prefill_id;
    int engine_index = kNoEngine;  // which has computed it
  };

  PrefillRoom(int num_engines, int num_clients);

  // A new process has this cache. A block size of 0: unknown, and no limit.
  void Reset(int engine_index, int64_t num_blocks, int64_t block_size);
  bool Fits(int engine_index, size_t num_prompt_tokens) const;
  // It is sent there.
  void Begin(const RequestId& prefill_id, int engine_index, size_t num_prompt_tokens);
  // It has failed, was aborted, or nobody reads it. Returns the engine that had it.
  int End(const RequestId& prefill_id);
  // It is done, and its KV stays until all of them have read it.
  void AwaitReaders(const RequestId& prefill_id, const KvReaders& readers);
  // The engine that decodes has sent an output of it, or has ended it: either way it has read.
  void OnRead(const RequestId& sent_id);

  // Another engine has the index from now on (RunningRequests).
  void MakePredecessor(int engine_index);
  // An engine is gone, with what it held and read. Returns what it was to read of others.
  std::vector<GivenUp> OnLost(int engine_index);

  int64_t num_blocks(int engine_index) const {  // in use
    return engines_[static_cast<size_t>(engine_index)].num_used;
  }

 private:
  struct Engine {  // by index, the predecessors' last
    int64_t capacity = 0, block_size = 0, num_used = 0;
  };
  struct Holding {
    int engine_index = kNoEngine;
    int64_t num_blocks = 0;
    int reader_index = kNoEngine;  // kNoEngine: it is under way
    size_t num_readers = 0;        // that have not read
  };
  using Holdings = std::unordered_map<RequestId, Holding>;

  int64_t NumBlocks(const Engine& engine, size_t num_prompt_tokens) const;
  void Erase(Holdings::iterator holding);

  const int num_clients_;
  std::vector<Engine> engines_;
  Holdings holdings_;                                // by prefill
  std::unordered_map<RequestId, RequestId> unread_;  // a reader's sent id → its prefill
};

}  // namespace tandem
