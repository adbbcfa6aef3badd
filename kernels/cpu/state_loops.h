#pragma once

// The loops of recurrences (kernels/recurrence.h) as an instruction set has them: what a token does
// to a state and reads from it, and rows on their way in and out. Numbers of a row are apart from
// each other, and products and sums round on their own: the bits are the same on every instruction
// set. Thread: any, on disjoint states and outputs.

#include <cstdint>

namespace tandem {

// out = bias + the sum over the taps of weight * inputs.
struct ConvolveToken {
  const float* const* inputs = nullptr;  // [kernel] rows of `size` channels, the oldest first
  const float* weight = nullptr;         // [kernel][weight_stride]
  const float* bias = nullptr;           // or null
  float* out = nullptr;
  int64_t kernel = 0, size = 0, weight_stride = 0;
};

// state = kept * state + k (beta (v - k kept state)); out = q state.
struct DeltaToken {
  float* state = nullptr;                  // [key_dim, value_dim]
  const float *q = nullptr, *k = nullptr;  // [key_dim]
  const float* kept = nullptr;             // [key_dim], or of all rows: kept_stride 0
  const float* v = nullptr;                // [value_dim]
  float* out = nullptr;                    // [value_dim]
  int64_t key_dim = 0, value_dim = 0, kept_stride = 0;
  float beta = 0;
};

// state = kept * state + step * b x; out = skip * x + c state.
struct ScanToken {
  float* state = nullptr;                  // [num_states, dim]
  const float* x = nullptr;                // [dim]
  const float *b = nullptr, *c = nullptr;  // [num_states]
  float* out = nullptr;                    // [dim]
  int64_t num_states = 0, dim = 0;
  float step = 0, kept = 0, skip = 0;
};

// The same with a step and a skip of each channel, and decays `a` of each number of the state: kept
// is ExpNonPositive(a * step).
struct SelectToken {
  float* state = nullptr;                                       // [num_states, size]
  const float* a = nullptr;                                     // [num_states][a_stride]
  const float *x = nullptr, *steps = nullptr, *skip = nullptr;  // [size]
  const float *b = nullptr, *c = nullptr;                       // [num_states]
  float* out = nullptr;                                         // [size]
  int64_t num_states = 0, size = 0, a_stride = 0;
};

struct StateKernels {
  // bf16 to float32, and back as ToBf16 has it.
  void (*widen)(const uint16_t* x, int64_t size, float* out);
  void (*narrow)(const float* x, int64_t size, uint16_t* out);
  // In place, by the functions of kernels/elementary_functions.h.
  void (*silu)(int64_t size, float* x);
  void (*sigmoid)(int64_t size, float* x);
  void (*softplus)(const float* bias, int64_t size, float* x);  // of x + bias
  void (*decay)(float rate, int64_t size, float* x);            // exp(rate * x), at most 1
  void (*convolve)(const ConvolveToken& token);
  void (*delta)(const DeltaToken& token);
  void (*scan)(const ScanToken& token);
  void (*select)(const SelectToken& token);
};

}  // namespace tandem
