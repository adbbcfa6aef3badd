#pragma once

// Ends the reasoning of requests that have used up their thinking_token_budget: the tokens of the
// mark that ends it are the only ones allowed, one per step. A step that might have to force a
// token is not scheduled before all tokens in front of it are known.
// Thread: engine loop. Owns the masks, which are valid until the next Begin. A step without a token
// to force allocates nothing.

#include <cstdint>
#include <vector>

#include "engine_core/scheduler/request.h"
#include "engine_core/scheduler/scheduler_output.h"

namespace tandem {

class ThinkingBudgets {
 public:
  explicit ThinkingBudgets(int32_t vocab_size) : vocab_size_(vocab_size) {}

  // Whether the next step of a running request has to wait for its tokens in flight.
  static bool MustWait(const Request& request) {
    return request.num_output_placeholders > 0 &&
           request.reasoning.MayForceAfter(request.num_output_placeholders);
  }

  // A step is built from here on; the masks of the one before are not read any more.
  void Begin() { num_masks_ = 0; }
  // Adds the mask of a request that samples in this step, if a token must be forced. REQUIRES:
  // called in the order of the step's requests.
  void Apply(const Request& request, int32_t request_idx, SchedulerOutput* output) {
    if (request.reasoning.has_budget()) ApplyBudget(request, request_idx, output);
  }

 private:
  void ApplyBudget(const Request& request, int32_t request_idx, SchedulerOutput* output);

  struct Mask {
    std::vector<int32_t> words;  // one bit is set
    TokenId token_id = 0;
  };

  int32_t vocab_size_;
  std::vector<Mask> masks_;
  size_t num_masks_ = 0;  // of this step
};

}  // namespace tandem
