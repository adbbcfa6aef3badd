#pragma once

// The adapters of an engine: those that are loaded, and those that are being loaded for requests or
// for calls. An adapter is known by its name and folder. At most max_adapters are kept; one that is
// not there is loaded when a request names it, in place of the one that was used longest ago, and
// waits while requests have all of the others. Adapters that were loaded by a call count as well,
// but never wait: without room they leave as soon as they have been checked.
// An adapter that is loaded again in place gets another id. Requests that have the old one keep it.
// With several engines that is done in two steps, so that all of them change or none: Stage reads
// the files, Settle decides.
// Thread: engine loop. Pure: what it decides depends on its calls alone, so a replay decides the
// same. Owns: the weights, shared with the requests that have them.
// Failure: of a load, is what its requests and calls get; the cache is as it was before.

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "common/ids.h"
#include "common/packed_bytes.h"
#include "common/status.h"
#include "engine_core/adapters/adapter_link.h"
#include "engine_core/scheduler/adapter_slots.h"
#include "proto_msgpack/lora_request.h"

namespace tandem {

class AdapterCache {
 public:
  // A request that waits for a load, and a call to reply to.
  struct Waiter {
    RequestId id;
    int64_t order = 0;  // of its adding
  };
  struct Call {
    int32_t client_index = 0;
    uint64_t call_id = 0;
  };

  // `loads` outlives it; null: there are no adapters.
  AdapterCache(int32_t max_adapters, AdapterLoads* loads)
      : max_adapters_(static_cast<size_t>(max_adapters)), loads_(loads) {}

  // INVALID_ARGUMENT, UNIMPLEMENTED: what is wrong with a name, folder or id.
  Status Check(const wire::LoraRequest& lora) const;

  // ---- REQUIRES: Check ----
  // The adapter of a new request. Without weights that are there it has an id and a name, and the
  // request Awaits it.
  struct Place {
    Adapter adapter;
    bool is_there = false;
  };
  Place Find(const wire::LoraRequest& lora);
  void Await(AdapterId id, const Waiter& request) { pending_.at(id).requests.push_back(request); }
  // True: it is there. False: the call gets a reply when it has been loaded.
  bool Add(const wire::LoraRequest& lora, const Call& call);

  // Reads the files and keeps the result beside what requests get. The call gets a reply.
  void Stage(const wire::LoraRequest& lora, const Call& call);
  // What was staged last takes the place of what requests get, or is dropped. False: nothing was.
  bool Settle(const wire::LoraRequest& lora, bool takes_place, const AdapterSlots& users);

  // By the frontend's id. False: there is none.
  bool Remove(int64_t lora_int_id);
  // It stays until it is removed. NOT_FOUND; FAILED_PRECONDITION when no place would be left for
  // others.
  Status Pin(int64_t lora_int_id);
  std::vector<int64_t> Ids() const;  // the frontend's, ascending, each once

  // What becomes of those that waited for a load.
  struct Ended {
    StatusOr<Adapter> adapter;
    std::vector<Waiter> requests;
    std::vector<Call> calls;
  };
  Ended End(const AdapterLoaded& loaded, const AdapterSlots& users);
  // Begins the loads that wait, as far as there is room. Between steps.
  void StartLoads(const AdapterSlots& users);

  // A checkpoint, without weights.
  void Save(ByteWriter* out) const;
  Status Load(ByteReader* in);

 private:
  using Key = std::string;  // name and folder
  struct Entry {
    int32_t lora_int_id = 0;
    int64_t last_use = 0;
    bool is_pinned = false;
    Adapter current;        // id 0: not loaded
    AdapterId pending = 0;  // its newest load; 0: none
    Adapter staged;         // id 0: none
    AdapterId staging = 0;  // the newest load of Stage; 0: none

    bool is_empty() const {
      return current.id == 0 && pending == 0 && staged.id == 0 && staging == 0;
    }
  };
  struct Pending {
    Key key;
    Adapter adapter;  // without weights and version
    bool has_started = false;
    bool is_staged = false;
    std::vector<Waiter> requests;
    std::vector<Call> calls;
  };

  Entry& Touch(const wire::LoraRequest& lora);
  Pending& NewLoad(const wire::LoraRequest& lora);
  void Start(Pending* pending);
  size_t num_kept() const;
  bool TryEvict(const AdapterSlots& users);
  void EvictBeyondLimit(const AdapterSlots& users);
  void Forget(const Pending& pending);
  int64_t VersionOf(const Key& key, uint64_t digest);

  size_t max_adapters_;
  AdapterLoads* loads_;
  std::map<Key, Entry> entries_;
  std::map<AdapterId, Pending> pending_;
  std::deque<AdapterId> queue_;  // of loads that wait for room
  int64_t num_uses_ = 0;
  AdapterId num_loads_ = 0;
  std::map<Key, uint64_t> first_digests_;  // of what was loaded first
};

}  // namespace tandem
