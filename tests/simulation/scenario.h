#pragma once

// The subject of a run: the engine's configuration, the requests with their right outputs, and how
// often the frontends interfere. A value, drawn from a seed; nothing runs here.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/ids.h"
#include "engine_core/engine_core.h"
#include "engine_core/executor/executor.h"
#include "engine_core/scheduler/request.h"
#include "proto_msgpack/schema.h"
#include "tests/simulation/sim_random.h"

namespace tandem {

// A request as its frontend knows it.
struct Stream {
  wire::EngineCoreRequest request;
  std::vector<TokenId> answer;  // the right outputs, whatever happens meanwhile
  wire::FinishReason reason = wire::FinishReason::kLength;
  wire::StopReason stop_reason;
  std::optional<size_t> fails_after;  // outputs after which the executor fails it
  bool refused = false;               // by the checks at ingress
  RequestNeeds needs;
  bool grammar_fails = false;
  // Its state.
  std::vector<TokenId> emitted;
  bool sent = false;
  bool may_abort = false;          // a pause ended it with "abort"
  bool sent_while_paused = false;  // and may have been refused for that
  bool has_record = false;         // from the engine that runs it now
  bool ended = false;              // a finish record, or aborted by its client
  int num_finished_ids = 0;

  // Without outputs of an earlier run.
  size_t num_prompt_tokens() const {
    return request.prompt_token_ids.size() -
           static_cast<size_t>(request.own.num_prior_output_tokens);
  }
  // The hash of an empty prefix. An adapter makes another model: the same tokens have other
  // outputs.
  uint64_t first_hash() const { return static_cast<uint64_t>(needs.adapter.id); }
};

struct Scenario {
  ExecutorLimits limits;
  EngineCoreOptions options;               // without kv_connector and needs_of
  std::optional<uint64_t> connector_seed;  // nullopt: no connector
  std::optional<uint64_t> drafter_seed;    // nullopt: no drafter
  std::map<RequestId, Stream> streams;
  std::vector<RequestId> order;  // of arrival
  // Chances between two steps.
  double arrival_chance = 0;
  double abort_chance = 0;
  double call_chance = 0;
  bool is_lossy = false;  // the first engine's executor will be lost

  // The configuration, for the report of a failure.
  std::string Describe() const;
};

// *random: made from the same seed; what it draws later is the run's own.
Scenario DrawScenario(uint64_t seed, SimRandom* random);

// Finds the right outputs of a stream's request, token by token, without a scheduler and with its
// own stop rules.
void SolveStream(const ExecutorLimits& limits, Stream* stream);

}  // namespace tandem
