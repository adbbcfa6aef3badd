#pragma once

// What one or several engine steps add to a choice: the value between text and JSON. The output
// processor fills it, an endpoint's writer renders it. A value; any thread.

#include <optional>
#include <string>
#include <vector>

#include "common/ids.h"
#include "frontend/openai/responses.h"
#include "proto_msgpack/schema.h"

namespace tandem {

// What a first or last delta may have.
struct DeltaExtras {
  // With the first delta, when requested. Raw, because only some choices show them.
  wire::LogprobsRows prompt_logprobs;
  wire::RawValue prompt_scores;  // tensor, of prompt_logprob_token_ids
  // With the last delta, when the engine has some.
  wire::RawValue kv_transfer_params;
  wire::RawValue ec_transfer_params;
  wire::RawValue pooling_output;  // tensor, of a request that is pooled
};

struct MessageDelta : MessageParts {
  std::vector<TokenId> token_ids;
  std::vector<PositionLogprobs> logprobs;  // one for each of token_ids, or none
  bool ready = false;                      // to be shown now; else it grows with the next step
  std::optional<FinishReason> finish_reason;
  wire::StopReason stop_reason;  // the matched stop string, or what the engine reported

  const DeltaExtras& extras() const {
    static const DeltaExtras kNone;
    return extras_ ? *extras_ : kNone;
  }
  DeltaExtras& AddExtras() { return extras_ ? *extras_ : extras_.emplace(); }

  bool has_message() const { return !empty(); }
  // Empties it for the next step. Keeps the finish reason.
  void Clear();
  // Drops the generated part, for a response that shows only the prompt.
  void ClearOutput();

 private:
  wire::Rare<DeltaExtras> extras_;
};

}  // namespace tandem
