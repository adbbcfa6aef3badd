#pragma once

// The ops that models are made of: functions on tensors, listed with their shapes in
// kernels/ops.def. kernels/reference is the definition of each op (plain loops, float32),
// kernels/cpu and kernels/cuda the fast implementations.
//
// A public function checks its arguments (ops.cc) and calls the virtual function of the same name
// with Do in front, which a backend implements. So a new op is an entry in ops.def, its checks in
// ops.cc, its implementations and its test.
//
// Thread: engine loop; the result is there when the op returns, or ordered before every later op.
// Ownership: views are borrowed for the call; scratch memory is the implementation's.
// Types: accumulation is float32 always. Outputs must not overlap inputs unless the op says so. A
// row of zero tokens is a no-op.
// Failure: a shape that does not fit is our own mistake (CHECK).
// Promise (cpu, reference): the bits of an output row depend on that row's own inputs alone: not on
// the rows that run with it, on chunking, on the number of threads, nor on the blocks its KV is in.

#include <cmath>
#include <cstdint>

#include "kernels/adapter_pair.h"
#include "kernels/packed_matrix.h"
#include "kernels/paged_kv.h"
#include "kernels/tensor.h"

namespace tandem {

// The types a backend computes in.
struct OpTypes {
  DType activation = DType::kF32;  // inputs and outputs of layers; the KV cache
  DType residual = DType::kF32;    // the stream that layers add to
};

// What Linear does with y = x W^T + bias.
enum class LinearEpilogue {
  kStore,        // out = y
  kAddResidual,  // out += y; out is a residual stream (res)
  kSiluAndMul,   // out[t, i] = silu(y[t, i]) * y[t, n / 2 + i]; out: [T, n / 2] act, W gated
  kGeluAndMul,   // the same with gelu, as in GeluAndMul
};

// The P = T * K pairs of a token and one of its K experts, by expert, then by token. The device
// alone knows which pairs an expert has, and no shape depends on it.
struct ExpertPairs {
  Tensor begin;     // [E + 1] i32: expert e has the pairs [begin[e], begin[e + 1])
  Tensor chosen;    // [E] i32: the experts that have pairs, rising, then -1
  Tensor tokens;    // [P] i32: of each pair
  Tensor of_token;  // [T, K] i32: the pairs of each token, rising
  Tensor weights;   // [T, K] f32: of those pairs
};

// What Activate computes of each number.
enum class Nonlinearity { kSilu, kTanhGelu, kErfGelu, kRelu, kSquaredRelu };

// kSparseMixer: two experts, one after the other; the weight of each is its softmax among those
// logits of the rest that are at most 2 jitter below its own, relative to the larger of its and
// their own size (Phi-3.5-MoE).
enum class RouterScore { kSoftmax, kSigmoid, kSparseMixer };

// Of RouteTopK. Groups are equal runs of experts; a group's score is the sum of its best ones.
struct RouteOptions {
  RouterScore score = RouterScore::kSoftmax;
  bool renormalize = false;
  float scale = 1;
  Tensor bias = {};          // [E] f32; empty: none
  int num_groups = 1;        // divides E
  int top_groups = 1;        // how many of them are chosen from
  int group_best = 1;        // 1 or 2: how many scores of a group are added up; at most its size
  float jitter = 0;          // kSparseMixer, which has no other option
  Tensor expert_scale = {};  // [E] f32; empty: 1. Multiplies the weight of each expert
};

struct QkRope {
  Tensor cos;  // [max_positions, rotary_dim / 2] f32, factors of any rope scaling included
  Tensor sin;
  int rotary_dim = 0;  // even, <= head_dim; dimensions beyond it are not turned
  Tensor q_norm;       // [head_dim] f32; empty: no norm. RMS over each head, before RoPE
  Tensor k_norm;       // [head_dim] f32
  float norm_epsilon = 1e-6f;
  bool norms_after_rope = false;  // then cos^2 + sin^2 must be 1
  bool is_interleaved = false;    // dimension 2 i pairs with 2 i + 1, not i with i + rotary_dim / 2
  Tensor q_scale = {};  // [max_positions] f32; empty: 1. Multiplies q by the number of its position
  bool is_of_q_alone = false;  // there are no k and v; nothing is written
  Tensor rows = {};            // [T] i32: each token's row of cos and sin; empty: batch.positions
};

// Of LatentRopeWriteKv.
struct LatentRope {
  Tensor cos;      // [max_positions, pe_dim / 2] f32; empty: pe stays as it is
  Tensor sin;      // the same
  int pe_dim = 0;  // even
  Tensor norm;     // [c] f32
  float norm_epsilon = 1e-6f;
  bool is_interleaved = true;  // pairs (0, 1), (2, 3), ...; else i with i + pe_dim / 2
  Tensor index_key = {};       // [T, n] act; empty: n = 0. Kept as it is, after pe
};

// Of SelectKeys.
struct IndexOptions {
  int64_t num_heads = 0, dim = 0;  // of the index: its keys are the last numbers of the latent's
  float scale = 0;                 // of q . k
};

// Of AttendSelected.
struct SelectedOptions {
  int64_t num_heads = 0;
  float scale = 0;  // of q . k
};

// ---- of layers with a state ----

// A state's part begins at `offset` floats into the layer's state.
struct StatePart {
  LayerKv kv;
  int64_t offset = 0;
};

// Of Convolve. State: [kernel - 1, C], the last inputs, oldest first.
struct ConvOptions {
  Tensor weight;  // [kernel, C] f32, the tap of the oldest input first; kernel <= 8
  Tensor bias;    // [C] f32; empty: none
  bool has_silu = false;
};

// Of DeltaRule. State: [value heads, key_dim, value_dim].
struct DeltaOptions {
  int64_t num_key_heads = 0, num_value_heads = 0;  // the former divides the latter
  int64_t key_dim = 0, value_dim = 0;
  Tensor a_log;    // [value heads] f32
  Tensor dt_bias;  // [value heads] f32, or of each row of the state, [value heads * key_dim]
};

// Of StateScan. State: [heads, state_dim, head_dim].
struct ScanOptions {
  int64_t num_heads = 0, head_dim = 0, num_groups = 1, state_dim = 0;
  Tensor a_log, dt_bias, d;             // [heads] f32
  float dt_min = 0, dt_max = INFINITY;  // of the step
};

// Of SelectiveScan. State: [state_dim, C].
struct SelectiveOptions {
  Tensor a;           // [state_dim, C] f32, <= 0: how fast each number of the state decays
  Tensor dt_bias, d;  // [C] f32
};

// Of GatedNorm.
struct GatedNormOptions {
  Tensor weight;  // f32, one for each number of a group, or of the row
  int64_t group_size = 0;
  float epsilon = 1e-6f;
  bool gates_first = false;  // else the norm comes first
  bool has_sigmoid = false;  // the gate is sigmoid(gate), else silu(gate)
};

struct AttentionOptions {
  float scale = 0;             // of q . k, often 1 / sqrt(head_dim)
  int32_t sliding_window = 0;  // w > 0: a query at p sees keys p - w + 1 .. p; 0: all
  float soft_cap = 0;          // c > 0: scores become c tanh(score / c); 0: none
  int32_t chunk = 0;           // c > 0: a query at p sees keys p / c * c .. p; 0: all
  Tensor sinks = {};           // [heads] f32: a score with its share of the softmax and no value
  Tensor slopes = {};  // [heads] f32, ALiBi: a score gets slope * (key's position - query's)
  // A query sees the keys after it, too: all of them, or with a window p - w / 2 .. p + w / 2.
  bool is_bidirectional = false;
  // [T] i32: of each token the last key that it sees, where that comes after its own position (the
  // tokens of an image see each other); empty: none does. Along a request's tokens, the larger of
  // it and their positions rises. Not with windows that are bidirectional.
  Tensor last_seen = {};
};

// Row e of a bias [E, n]; empty if there is none.
inline Tensor BiasOfExpert(const Tensor& bias, int64_t e) {
  return bias.empty() ? Tensor() : Tensor(bias.Row<float>(e), DType::kF32, {bias.shape[1]});
}

class Ops {
 public:
  explicit Ops(OpTypes types) : types_(types) {}
  virtual ~Ops() = default;
  Ops(const Ops&) = delete;
  Ops& operator=(const Ops&) = delete;

  OpTypes types() const { return types_; }

#define TANDEM_OP(name, parameters, arguments) void name parameters;
#include "kernels/ops.def"

 protected:
#define TANDEM_OP(name, parameters, arguments) virtual void Do##name parameters = 0;
#include "kernels/ops.def"

 private:
  OpTypes types_;
};

}  // namespace tandem
