#pragma once

// Layers that keep a state, mostly instead of keys and values: which layers, and the sizes of their
// parts, from config.json. One kind per model.
// Thread: any; values. Failure: the Status names the key.

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "common/status.h"

namespace tandem {

// kDelta: a convolution, then the gated delta rule (Qwen3-Next, Qwen3.5). kChannelDelta: the same
// with a decay for each row of the state (Kimi Linear). kScan: a convolution, then Mamba-2's scan.
// kSelective: a convolution, then Mamba's scan (Jamba). kShortConv: a convolution between two gates
// (LFM2).
enum class RecurrentKind { kNone, kDelta, kChannelDelta, kScan, kSelective, kShortConv };

// Where layers have their states: in the place of attention, beside it in every layer (Falcon-H1),
// or alone, as each layer is one part: a state, attention, an MLP or a mixture (Nemotron-H).
enum class StatePlace { kForAttention, kBesideAttention, kAlone };

struct RecurrentConfig {
  RecurrentKind kind = RecurrentKind::kNone;
  StatePlace place = StatePlace::kForAttention;
  std::vector<bool> layers;     // [num_layers]; empty: none
  std::vector<bool> kv_layers;  // those with keys and values; empty: the ones without a state
  int64_t kernel = 0;           // taps of the convolution
  bool has_conv_bias = false;
  // kDelta: of keys and of values. kScan: num_heads and num_value_heads are the same.
  int64_t num_key_heads = 0, num_value_heads = 0;
  // kDelta: value head h has key head h modulo their number; else runs of value heads have one
  // each.
  bool key_heads_take_turns = false;
  // kScan: state_dim, head_dim; kSelective: state_dim, 1
  int64_t key_dim = 0, value_dim = 0;
  int64_t step_rank = 0;              // kSelective: of what the steps are made from
  int64_t num_groups = 1;             // kScan: heads of B and C
  double min_step = 0, max_step = 0;  // kScan: limits of dt; max 0: none
  // kScan: a norm after the recurrence, before or after its gate.
  bool has_norm = true, norms_before_gate = false;
  // kScan: of what the projection makes, z, x, B, C, dt; of what goes into the projection back.
  std::array<double, 5> in_scales = {1, 1, 1, 1, 1};
  double out_scale = 1;
  int64_t hidden_size = 0;

  bool HasState(int64_t layer) const {
    return !layers.empty() && layers[static_cast<size_t>(layer)];
  }
  bool HasKv(int64_t layer) const {
    return kv_layers.empty() ? !HasState(layer) : kv_layers[static_cast<size_t>(layer)];
  }
  bool HasMlp(int64_t layer) const {
    return place != StatePlace::kAlone || (!HasState(layer) && !HasKv(layer));
  }
  int64_t num_layers() const;
  int64_t num_turns() const { return key_heads_take_turns ? num_value_heads / num_key_heads : 1; }
  int64_t key_size() const { return num_key_heads * key_dim; }
  int64_t value_size() const { return num_value_heads * value_dim; }
  // What the convolution runs over.
  int64_t channels() const;
  // Floats of a layer's state: the convolution's inputs, then the heads'.
  int64_t conv_state_size() const { return (kernel - 1) * channels(); }
  int64_t state_size() const;
};

// As the keys of the kind have them.
Status ReadRecurrent(const nlohmann::json& json, RecurrentKind kind, StatePlace place,
                     int64_t num_layers, int64_t hidden_size, RecurrentConfig* config);

}  // namespace tandem
