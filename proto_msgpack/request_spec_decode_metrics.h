#pragma once

// What the drafts of one request came to: EngineCoreOutput::spec_decode_metrics of its last output,
// where the engine runs with --per-request-spec-decode-metrics. vLLM 0.33's form.
// Thread: values and pure functions. Failure: malformed bytes are INVALID_ARGUMENT.

#include <cstdint>
#include <vector>

#include "common/status.h"
#include "proto_msgpack/schema.h"

namespace tandem::wire {

struct RequestSpecDecodeMetrics {  // map, every key always sent
  int64_t num_spec_tokens = 0;     // most drafts of a step
  // Steps that verified drafts, by how many of these were accepted: from none to num_spec_tokens.
  std::vector<int64_t> histogram = {};
  int64_t num_draft_tokens = 0;
  // Of these steps in their order; empty unless every step was to be kept.
  std::vector<int64_t> per_step_accepted = {};
  std::vector<int64_t> per_step_drafted = {};

  int64_t num_steps() const;
  int64_t num_accepted() const;
  friend bool operator==(const RequestSpecDecodeMetrics&,
                         const RequestSpecDecodeMetrics&) = default;
};

RawValue Packed(const RequestSpecDecodeMetrics& metrics);
StatusOr<RequestSpecDecodeMetrics> UnpackSpecDecodeMetrics(const RawValue& value);

}  // namespace tandem::wire
