#pragma once

// A request inside the engine: the wire struct plus what it is doing. Owned by the Scheduler, which
// alone changes it. Thread: engine loop. Lengths and positions are in tokens.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "common/ids.h"
#include "engine_core/kv_cache/kv_cache_manager.h"
#include "engine_core/scheduler/reasoning_marks.h"
#include "engine_core/scheduler/request_images.h"
#include "proto_msgpack/pooling_params.h"
#include "proto_msgpack/request_spec_decode_metrics.h"
#include "proto_msgpack/schema.h"

namespace tandem {

// What a request needs besides blocks and a slot.
struct RequestNeeds {
  bool grammar = false;  // it may not run before Scheduler::EndGrammarWait
  Adapter adapter = {};
  // Its weights are being loaded: it may not run before Scheduler::EndAdapterWait.
  bool awaits_adapter = false;
  std::shared_ptr<const PromptEmbeddings> embeddings = {};  // of its first prompt tokens
  std::shared_ptr<const RequestImages> images = {};         // null: none
};

// Tokens whose KV a request did not compute itself: from the prefix cache, and after them from
// a KvConnector.
struct KnownTokens {
  int32_t num_local = 0;
  int32_t num_remote = 0;
  int32_t total() const { return num_local + num_remote; }
};

// An asynchronous load into a waiting request's blocks.
enum class KvLoad : uint8_t { kNone, kRunning, kEnded };

// How far a waiting request is with KV from elsewhere, for statistics.
enum class KvFetch : uint8_t { kNone, kWaitingToStart, kInProgress, kCompleted };

// Guesses of a request's next tokens. Only DraftTokens changes it.
struct RequestDrafts {
  // For its next step, while no step is in flight: the result of one brings new drafts.
  std::vector<TokenId> token_ids;
  int32_t num_in_flight = 0;  // of its placeholders; they may turn out wrong
  // What they came to; null: not counted, or none was verified.
  std::unique_ptr<wire::RequestSpecDecodeMetrics> metrics;

  void Clear() {
    token_ids.clear();
    num_in_flight = 0;
  }
};

// REQUIRES: params that are well-formed.
inline std::unique_ptr<const wire::PoolingParams> PoolingOf(const wire::EngineCoreRequest& wire) {
  if (wire.pooling_params.is_nil()) return nullptr;
  auto params = wire::UnpackPoolingParams(wire.pooling_params);
  return std::make_unique<const wire::PoolingParams>(params.ok() ? *std::move(params)
                                                                 : wire::PoolingParams());
}

struct Request {
  Request(wire::EngineCoreRequest from_wire, int64_t order_of_adding,
          const RequestNeeds& needs = {})
      : wire(std::move(from_wire)),
        token_ids(std::move(wire.prompt_token_ids)),
        num_prompt_tokens(static_cast<int32_t>(token_ids.size()) -
                          wire.own.num_prior_output_tokens),
        pooling(PoolingOf(wire)),
        needs_grammar(needs.grammar),
        awaits_adapter(needs.awaits_adapter),
        reasoning(wire, num_prompt_tokens),
        order(order_of_adding),
        extra_keys{.adapter = needs.adapter,
                   .items = ItemsOf(needs.images.get()),
                   .cache_salt = wire.cache_salt.value_or(""),
                   .embeddings = needs.embeddings},
        images(needs.images) {
    reasoning.Read(token_ids);
    if (pools()) {
      // It ends with the step of its last token, which no later step may wait for.
      wire.sampling_params.max_tokens = 1;
      wire.sampling_params.skip_reading_prefix_cache = pooling->skip_reading_prefix_cache;
    }
  }

  wire::EngineCoreRequest wire;  // prompt_token_ids has moved to token_ids

  // What every step reads or changes comes first, for the sake of the caches.
  std::vector<TokenId> token_ids;  // the prompt, then the outputs
  int32_t num_prompt_tokens;       // without outputs of an earlier run
  // Tokens that steps in flight will sample if they accept all drafts. They can be scheduled as
  // inputs: the worker knows their ids, which are not known here yet.
  int32_t num_output_placeholders = 0;
  // Tokens whose KV is in the cache when the steps in flight have ended and all their drafts are
  // accepted. Scheduling lets it catch up with num_tokens() and the placeholders.
  int32_t num_computed_tokens = 0;
  int32_t num_steps_in_flight = 0;  // scheduled with this request and not updated yet
  RequestSlot slot{-1};             // while running
  // The oldest steps in flight, from before a preemption. What they sample counts as output alone,
  // or is dropped.
  int32_t num_stale_steps = 0;
  wire::RequestStatus status = wire::RequestStatus::kWaiting;
  bool drops_stale_output = false;
  bool mid_prefill = false;  // the last step left known tokens uncomputed
  // Its first output, and prefill_stats with it, has gone to the client, in this run or an earlier
  // one.
  bool has_output = wire.own.num_prior_output_tokens > 0;
  // A load with a step in flight fills its blocks: they must not be found before it is known to
  // have succeeded.
  bool holds_back_hashes = false;
  // It is pooled, no token is sampled; null: it generates.
  std::unique_ptr<const wire::PoolingParams> pooling;
  bool needs_grammar;
  bool awaits_adapter;  // extra_keys has its id and name alone; nothing is hashed yet
  std::vector<BlockHash> block_hashes;
  std::vector<wire::EngineCoreEvent> events;  // since the last record
  RequestDrafts drafts;
  ReasoningReader reasoning;  // has read token_ids

  int64_t order;   // of adding, over the life of the scheduler
  double due = 0;  // its place in a PriorityQueue: seconds on the clock of arrival times
  int32_t num_preemptions = 0;
  // Neighbours in the FCFS queue.
  Request* next_waiting = nullptr;
  Request* prev_waiting = nullptr;
  ExtraKeys extra_keys;                         // of its blocks
  std::shared_ptr<const RequestImages> images;  // null: none
  KnownTokens known;                            // when it was admitted last, or will be
  KnownTokens first_known;                      // when it was admitted first
  KvLoad load = KvLoad::kNone;  // once part of it has failed, `known` is what is valid
  KvFetch fetch = KvFetch::kNone;
  int32_t num_failed_loads = 0;  // of which nothing was valid
  bool is_passed_over = false;   // when it was looked at last; RequestTable keeps it
  bool is_holding = false;       // it is in the queue of those that have been given blocks
  bool holds_blocks = false;     // without a slot: those of `held`
  bool enters_again = false;     // the worker has to be sent its tokens and blocks once more
  HeldBlocks held;

  const RequestId& id() const { return wire.request_id; }
  bool pools() const { return pooling != nullptr; }
  int32_t num_tokens() const { return static_cast<int32_t>(token_ids.size()); }
  int32_t num_output_tokens() const { return num_tokens() - num_prompt_tokens; }
  // Whether the mask of its next token depends on a token in flight.
  bool awaits_masked_token() const { return needs_grammar && num_output_placeholders > 0; }
  int32_t num_uncomputed_tokens() const {
    return num_tokens() + num_output_placeholders - num_computed_tokens;
  }
  // Whether the steps in flight are certain to bring the last token that max_tokens allows.
  bool will_reach_max_tokens() const {
    const int32_t num_certain = num_output_placeholders - drafts.num_in_flight;
    return num_certain > 0 && num_output_tokens() + num_certain >= wire.sampling_params.max_tokens;
  }
  // The number of its outputs before its grammar holds; INT32_MAX: the reasoning before it has not
  // ended. It may become less than the number of outputs so far: a call's mark ends the reasoning
  // and belongs to the grammar.
  int32_t grammar_begin() const {
    if (!reasoning.holds_grammar_back()) return 0;
    const std::optional<int32_t> begin = reasoning.answer_begin();
    return begin ? *begin - num_prompt_tokens : INT32_MAX;
  }
  bool has_grammar_begun() const { return needs_grammar && num_output_tokens() >= grammar_begin(); }
  // Whether it cannot run yet, regardless of room.
  bool is_blocked() const {
    return awaits_event() || load != KvLoad::kNone || awaits_stale_output();
  }
  // Whether it waits for what no step brings.
  bool awaits_event() const {
    return awaits_adapter || status == wire::RequestStatus::kWaitingForStructuredOutputGrammar;
  }
  // Whether it must not run yet: the token that it would sample is in flight and will be delivered.
  bool awaits_stale_output() const { return num_stale_steps > 0 && !drops_stale_output; }
  // Tokens that it may have computed: of a request that generates, the last one never is.
  int32_t most_computed_tokens(int32_t max_model_len) const {
    return pools() ? max_model_len : max_model_len - 1;
  }
  bool finished() const { return status > wire::RequestStatus::kPreempted; }
  AdapterId adapter_id() const { return extra_keys.adapter.id; }
  const Adapter* adapter() const {  // null: none
    return adapter_id() == 0 ? nullptr : &extra_keys.adapter;
  }
  std::span<const BlockHash> findable_hashes() const {
    return holds_back_hashes ? std::span<const BlockHash>()
                             : std::span<const BlockHash>(block_hashes);
  }
  SequenceView sequence() const {
    return {token_ids, findable_hashes(), &extra_keys, num_computed_tokens - drafts.num_in_flight};
  }
};

}  // namespace tandem
