#pragma once

// For requests whose answer is how likely tokens are, not what is drawn. Thread: any.

#include "frontend/openai/generation_request.h"

namespace tandem {

// The model's own distribution at this temperature, whatever the server's defaults for draws are.
inline void UseOwnDistribution(double temperature, GenerationRequest* request) {
  request->temperature = temperature;
  request->top_p = 1;
  request->top_k = 0;
  request->min_p = 0;
  request->repetition_penalty = 1;
  request->watermarking = false;
}

}  // namespace tandem
