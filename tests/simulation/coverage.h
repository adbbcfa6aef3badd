#pragma once

// Counts of what happened in runs, so that a test can check that the draw covers what it is meant
// to. A value.

#include <cstdint>

namespace tandem {

struct Coverage {
  int64_t num_requests = 0;
  int64_t num_steps = 0;
  int64_t num_preemptions = 0;
  int64_t num_hit_tokens = 0;
  int64_t num_aborts = 0;
  int64_t num_request_failures = 0;
  int64_t num_restarts = 0;
  int64_t num_resets = 0;
  int64_t num_pauses = 0;
  int64_t num_kv_loads = 0;
  int64_t num_kv_load_failures = 0;
  int64_t num_kept_tables = 0;
  int64_t num_grammars = 0;
  int64_t num_adapter_steps = 0;  // with as many adapters as fit
  int64_t num_images = 0;         // of requests
  int64_t num_encoded_images = 0;
  int64_t num_continued_images = 0;  // by later steps than they were begun with
  int64_t num_drafts = 0;
  int64_t num_accepted_drafts = 0;
};

}  // namespace tandem
