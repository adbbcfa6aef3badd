#pragma once

// What a shard's requests are doing at this moment, for those who look (the dashboard).
// Thread: the shard's.

#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <string_view>

namespace tandem {

class Generation;

struct LiveRequest {
  std::string id;          // the engine's of its first choice
  std::string_view phase;  // waiting: for its first token; decoding: a choice has one
  int64_t num_choices = 0;
  int64_t num_prompt_tokens = 0;  // of all prompts
  int64_t num_cached_tokens = 0;  // of the prompts, as far as they are known
  int64_t num_output_tokens = 0;
  int64_t max_output_tokens = 0;
  int64_t num_preemptions = 0;
  double age_s = 0;
  std::optional<double> time_to_first_token_s;
};

// Each is in its shard's list from Start to its end, in order of their starts.
using LiveRequests = std::list<const Generation*>;

}  // namespace tandem
