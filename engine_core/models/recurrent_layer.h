#pragma once

// The weights of a layer that keeps a state (engine_core/models/recurrent_mixer.h), and their
// loader: what a file has side by side for each head is sorted into the order that the mixer reads.
// Thread: engine loop. Owns: packed weights. Shapes: H hidden; of the rank (recurrent_share.h): C
// channels of the convolution, V numbers of the value heads. "all V" are those of all ranks.

#include <string>

#include "engine_core/models/layers.h"

namespace tandem {

struct RecurrentLayer {
  // kDelta: [C + V, H]; kChannelDelta: [C + 2 value_dim, H]; kScan: [V + C + heads, H];
  // kSelective: [2 V, H]; kShortConv: [3 C, H]
  LinearLayer in;
  LinearLayer gates;              // kDelta: [2 value heads, H], b then a; kChannelDelta: b alone
  LinearLayer decay, gate;        // kChannelDelta: [V, value_dim] each
  LinearLayer select, step;       // kSelective: [step_rank + 2 state_dim, all V], [V, step_rank]
  OwnedTensor conv, conv_bias;    // [kernel, C] f32, [C]; empty view: no bias
  OwnedTensor a_log, dt_bias, d;  // [heads], dt_bias of kChannelDelta: [V]; d: of scans
  OwnedTensor a;                  // kSelective: [state_dim, V], -exp of what is stored
  OwnedTensor dt_norm, b_norm, c_norm;  // kSelective: [step_rank], [state_dim] twice
  OwnedTensor norm;  // of deltas: [value_dim]; kScan: empty, [V] or where ranks share groups all V
  LinearLayer out;   // [own H, all V]
};

// Names below `prefix`, such as "model.layers.3.linear_attn".
StatusOr<RecurrentLayer> LoadRecurrentLayer(const LoadContext& context, const std::string& prefix);

}  // namespace tandem
