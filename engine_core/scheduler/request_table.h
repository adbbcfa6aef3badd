#pragma once

// The requests of a scheduler and what each is doing: waiting in a queue, running in a slot, or
// gone. Two queues: requests that were given blocks for a load, and all others. Every change of a
// request's status is a call here; the passes and the update decide when.
// Thread: engine loop. Owns: the requests from Add until no step in flight names them, the slots,
// the queues; the blocks of a request are freed here, and the rows of its images released, when it
// loses its slot or ends.

#include <memory>
#include <string>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include "common/ids.h"
#include "common/packed_bytes.h"
#include "common/status.h"
#include "engine_core/kv_cache/kv_cache_manager.h"
#include "engine_core/scheduler/adapter_slots.h"
#include "engine_core/scheduler/encoder_cache.h"
#include "engine_core/scheduler/kv_transfers.h"
#include "engine_core/scheduler/request.h"
#include "engine_core/scheduler/request_queue.h"
#include "engine_core/scheduler/scheduler_config.h"

namespace tandem {

// A request that has ended, and the client to inform.
struct FinishedRequest {
  RequestId id;
  int32_t client_index = 0;
};

// What becomes of tokens in flight when their request is preempted. Delivering wastes nothing, but
// the request cannot resume before they arrive.
enum class StaleOutput { kDeliver, kDrop };

class RequestTable {
 public:
  // They must outlive it.
  RequestTable(const SchedulerConfig& config, KvCacheManager* kv_cache, KvTransfers* transfers,
               EncoderCache* encoder_cache);

  // Adds a request to the end of the waiting queue. REQUIRES: its id is not in use.
  Request* Add(wire::EngineCoreRequest from_wire, const RequestNeeds& needs, double now);
  Request* Find(const RequestId& id) const;
  // Appends the hashes of blocks that have become full.
  void ExtendHashes(Request* request) const;
  std::vector<Request*> InOrderOfAdding() const;

  // Whether a request's adapter fits beside those of the running requests.
  bool HasRoomForAdapter(const Request& request) const {
    return adapters_.HasRoomFor(request.adapter_id());
  }
  // The grammar or load that it waited for is there: it may be admitted in its turn.
  void EndWait(Request* request);
  // The same for its adapter, whose id it has already.
  void EndAdapterWait(Request* request, const Adapter& adapter);
  // The slot that the next Admit gives. REQUIRES: fewer running requests than slots.
  RequestSlot next_slot() const { return free_slots_.back(); }
  // From a queue into next_slot(), to which the cache manager has given its blocks.
  void Admit(Request* request, const KnownTokens& known, double now);
  // From its queue to holding(), with the blocks that the cache manager has given to next_slot():
  // it waits for a load into them.
  void HoldForLoad(Request* request, const KnownTokens& known);
  // Only its first num_valid_tokens are loaded, or will be.
  void CutLoad(Request* request, int32_t num_valid_tokens);
  // Its load has ended: it may be admitted, with what is valid of its blocks. Those that are full
  // can be found. Without any it has to be asked about again.
  void EndLoad(Request* request);
  // From holding() to the begin of waiting(), without blocks.
  void MoveToWaiting(Request* request);
  // From its slot back to the waiting queue, without blocks.
  void Preempt(Request* request, StaleOutput stale_output, double now);
  // A running request has only its first num_computed_tokens: the others are computed again, and
  // what steps in flight sample is dropped.
  void RollBack(Request* request, int32_t num_computed_tokens);
  // It has lost its grammar: it waits for it as it did at first, and what steps in flight sample is
  // dropped.
  void AwaitGrammar(Request* request, double now);
  // Ends a request in any state. It stays in running() and can be found until RemoveFinished.
  // Returns the kv_transfer_params of its last output.
  wire::RawValue Finish(Request* request, wire::RequestStatus status);
  void RemoveFinished();
  // Finish as aborted and RemoveFinished for one request, which must not be finished.
  void Abort(Request* request);

  const std::vector<Request*>& running() const { return running_; }  // in the order of admission
  const RequestQueue& waiting() const { return *waiting_; }
  const RequestQueue& holding() const { return *holding_; }  // before waiting()
  size_t num_waiting() const { return waiting_->size() + holding_->size(); }
  // Waiting requests that could not be admitted, regardless of room, when they were looked at last.
  void SetPassedOver(Request* request, bool is_passed_over);
  size_t num_passed_over() const { return num_passed_over_; }
  // Waiting requests that cannot run before Scheduler::EndGrammarWait or EndAdapterWait.
  size_t num_awaiting_events() const { return num_awaiting_events_; }
  const AdapterSlots& adapters() const { return adapters_; }
  size_t size() const { return requests_.size(); }
  // Of the images of all requests, each once; those of `but` are left out.
  int64_t NumImageBytes(const RequestImages* but) const;

  // Slots released since the last step was built.
  std::vector<RequestSlot>& freed_slots() { return freed_slots_; }
  const std::vector<RequestSlot>& freed_slots() const { return freed_slots_; }
  // Finished since the last Update.
  std::vector<FinishedRequest>& finished() { return finished_; }
  const std::vector<FinishedRequest>& finished() const { return finished_; }

  // Requests and queues as text.
  std::string DebugString() const;

  // For a checkpoint; see Scheduler.
  void Save(ByteWriter* out) const;
  Status Load(ByteReader* in);

 private:
  static constexpr auto kAwaitsGrammar = wire::RequestStatus::kWaitingForStructuredOutputGrammar;

  // After a change of a request that awaited an event before it, or did not.
  void NoteWait(const Request& request, bool awaited_event);
  void LeaveQueue(Request* request);
  void NoteFirstKnown(Request* request);
  // What a failed load has left wrong could be found until it had been computed again.
  void ForgetUncomputed(Request* request);
  void ReleaseSlot(Request* request);
  void Remove(const RequestId& id);
  std::string DebugLine(const Request& request) const;

  int32_t max_model_len_;
  int32_t num_speculative_tokens_;
  KvCacheManager* kv_cache_;
  KvTransfers* transfers_;
  EncoderCache* encoder_cache_;
  absl::flat_hash_map<RequestId, std::unique_ptr<Request>> requests_;
  std::vector<Request*> running_;
  std::unique_ptr<RequestQueue> waiting_;
  std::unique_ptr<RequestQueue> holding_;
  size_t num_awaiting_events_ = 0;
  size_t num_passed_over_ = 0;
  AdapterSlots adapters_;
  std::vector<RequestSlot> free_slots_;  // taken from the back
  std::vector<RequestSlot> freed_slots_;
  std::vector<FinishedRequest> finished_;
  // Finished, but still named by a step in flight.
  std::vector<std::unique_ptr<Request>> departed_;
  int64_t num_added_ = 0;
};

}  // namespace tandem
