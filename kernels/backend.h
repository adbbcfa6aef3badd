#pragma once

// Every op a model or the sampler needs, once, with its shapes. Model code is written against this
// interface; kernels/reference is the definition of each op (plain loops, float32), kernels/cpu the
// fast one. T: tokens of the step, R: requests, H: hidden size, V: vocabulary.
//
// Thread: one caller, the engine loop; an op returns when its result is there or is ordered before
// every later op. Ownership: results of Allocate, Upload, Pack, ... are the caller's and must go
// away before the backend does. Views are borrowed for the call. Scratch memory is the backend's.
// Types: `act` is activation_dtype(), `res` is residual_dtype(); accumulation is float32 always.
// Outputs must not overlap inputs unless the op says so. A row of zero tokens is a no-op.
// Failure: memory that cannot be had and files' odd shapes are a Status; a shape that does not fit
// an op is our own mistake (CHECK).
// Promise (cpu, reference): the bits of an output row depend only on that row's own inputs: not on
// which rows run with it, on chunking, on the number of threads, nor on which blocks hold its KV.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/status.h"
#include "kernels/device_sampler.h"
#include "kernels/paged_kv.h"
#include "kernels/parallel.h"
#include "kernels/tensor.h"

namespace tandem {

// How a matrix is kept. kCompute: in the backend's compute type. The others are integers with one
// float32 scale per row (kernels/quantization.h); Linear then rounds each row of x to int8 as well,
// with a scale of its own, max |x| / 127, and multiplies integers:
//   out[t, n] = (sum_k q(x)[t, k] * q(w)[n, k]) * (x_scale[t] * w_scale[n]) + bias[n].
enum class WeightFormat { kCompute, kInt8, kInt4Group32, kInt4Group128 };

// A weight matrix [n, k] as a backend packed it. The tensor it was made from is not needed any
// more.
class PackedMatrix {
 public:
  virtual ~PackedMatrix() = default;
  int64_t n() const { return n_; }  // output columns
  int64_t k() const { return k_; }  // input columns
  bool is_gated() const { return is_gated_; }
  virtual int64_t num_bytes() const = 0;

 protected:
  PackedMatrix(int64_t n, int64_t k, bool is_gated = false) : n_(n), k_(k), is_gated_(is_gated) {}

 private:
  int64_t n_;
  int64_t k_;
  bool is_gated_;
};

// One matrix of each of a layer's experts, all of one shape.
class PackedExperts {
 public:
  explicit PackedExperts(std::vector<std::unique_ptr<PackedMatrix>> experts);
  virtual ~PackedExperts() = default;
  int64_t size() const { return static_cast<int64_t>(experts_.size()); }
  const PackedMatrix& expert(int64_t e) const { return *experts_[static_cast<size_t>(e)]; }

 private:
  std::vector<std::unique_ptr<PackedMatrix>> experts_;
};

// The P = T * K pairs of a token and one of its K experts, by expert, then by token. Which pairs an
// expert has is known where the ops run, not to the host, and no shape depends on it.
struct ExpertPairs {
  Tensor begin;     // [E + 1] i32: expert e has the pairs [begin[e], begin[e + 1])
  Tensor chosen;    // [E] i32: the experts that have pairs, rising, then -1
  Tensor tokens;    // [P] i32: of each pair
  Tensor of_token;  // [T, K] i32: the pairs of each token, rising
  Tensor weights;   // [T, K] f32: of those pairs
};

// What Linear does with y = x W^T + bias.
enum class LinearEpilogue {
  kStore,        // out = y
  kAddResidual,  // out += y; out is a residual stream (res)
  kSiluAndMul,   // out[t, i] = silu(y[t, i]) * y[t, n / 2 + i]; out: [T, n / 2] act, W gated
  kGeluAndMul,   // the same with gelu, as in GeluAndMul
};

struct QkRope {
  Tensor cos;  // [max_positions, rotary_dim / 2] f32, factors of any rope scaling included
  Tensor sin;
  int rotary_dim = 0;  // even, <= head_dim; dimensions beyond it are not turned
  Tensor q_norm;       // [head_dim] f32; empty: no norm. RMS over each head, before RoPE
  Tensor k_norm;       // [head_dim] f32
  float norm_epsilon = 1e-6f;
};

struct AttentionShape {
  int num_heads = 0;  // a multiple of num_kv_heads; head h reads KV head h / (heads / kv_heads)
  int num_kv_heads = 0;
  int head_dim = 0;
  bool operator==(const AttentionShape&) const = default;
};

struct AttentionOptions {
  float scale = 0;             // of q . k, often 1 / sqrt(head_dim)
  int32_t sliding_window = 0;  // w > 0: a query at p sees keys p - w + 1 .. p; 0: all
  float soft_cap = 0;          // c > 0: scores become c tanh(score / c); 0: none
};

struct DeviceMemory {
  int64_t total_bytes = 0;
  int64_t free_bytes = 0;
};

// Ops as they were called between BeginCapture and EndCapture, for running them again as one.
class CapturedOps {
 public:
  virtual ~CapturedOps() = default;
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string description()
      const = 0;                               // for the log: "cpu avx512_bf16 bfloat16, 2 threads"
  virtual DType activation_dtype() const = 0;  // inputs and outputs of layers; the KV cache
  virtual DType residual_dtype() const = 0;    // the stream that layers add to
  virtual int num_threads() const = 0;
  // Whether the host may read and write tensors in place; otherwise CopyIn and CopyOut are the only
  // ways, and Data() is an address for ops alone.
  virtual bool memory_is_host() const { return true; }
  // Of a device that has memory of its own; nothing where memory_is_host().
  virtual DeviceMemory device_memory() const { return {}; }
  // Why an op could not be done: it needed more scratch memory than before, and there was none.
  // From then on ops yield nothing that may be used.
  virtual Status status() const { return OkStatus(); }

  // ---- memory ----
  // Zeroed, 64-byte aligned.
  virtual StatusOr<OwnedTensor> Allocate(DType dtype, std::initializer_list<int64_t> shape) = 0;
  // A copy of a host tensor of any float type, converted to `dtype`. Norm weights, biases and RoPE
  // tables are wanted as kF32.
  virtual StatusOr<OwnedTensor> Upload(const Tensor& host, DType dtype) = 0;
  // Between host and backend memory; equal shapes and types.
  virtual void CopyIn(const Tensor& out, const Tensor& host) = 0;
  virtual void CopyOut(const Tensor& host, const Tensor& x) = 0;

  // ---- beside the host ----
  // Where memory_is_host(), these are done when they return, and nothing can be captured.
  // Host memory for the two copies below.
  virtual StatusOr<OwnedTensor> AllocateStaging(DType dtype, std::initializer_list<int64_t> shape) {
    return Allocate(dtype, shape);
  }
  // CopyIn and CopyOut that take their place among the ops and return at once. `staging` is the
  // copy's until a mark that was set after it is reached.
  virtual void StartCopyIn(const Tensor& out, const Tensor& staging) { CopyIn(out, staging); }
  virtual void StartCopyOut(const Tensor& staging, const Tensor& x) { CopyOut(staging, x); }
  // A point in the order of the ops; WaitFor returns when all before it is done (and may wait for
  // some that came later when the mark is an old one).
  virtual int64_t SetMark() { return 0; }
  virtual void WaitFor(int64_t /*mark*/) {}
  // A point in the order of the ops at which the device's clock is read, and the time between two
  // of the latest eight such points, after waiting for the later one.
  virtual int64_t SetTimePoint() { return 0; }
  virtual double SecondsBetween(int64_t /*from*/, int64_t /*to*/) { return 0; }
  // Between the two, ops are noted and not run. They must not read what the host has to give
  // (CopyIn, CopyOut, PlanAttention) nor need more scratch memory than has been used before. What
  // they read through their tensors is what is there when they are replayed; all sizes, and those
  // of the attention plan, are the ones of the capture.
  virtual bool can_capture() const { return false; }
  virtual void BeginCapture() {}
  virtual StatusOr<std::unique_ptr<CapturedOps>> EndCapture() {
    return UnimplementedError("this backend captures nothing");
  }
  virtual void Replay(const CapturedOps& /*ops*/) {}

  // Stacks row blocks of equal k ([n_i, k] in host memory, bf16, f16 or f32) into one matrix
  // [sum n_i, k] and packs it in that format: q, k, v in this order for attention, gate, up for
  // SiluAndMul, one block for the rest. InvalidArgument when an integer format's rows are too long.
  virtual StatusOr<std::unique_ptr<PackedMatrix>> Pack(
      std::span<const Tensor> row_blocks, WeightFormat format = WeightFormat::kCompute) = 0;

  // The same for the epilogues kSiluAndMul and kGeluAndMul, and only for them: the first half of
  // the rows is the gate, the second what it multiplies.
  virtual StatusOr<std::unique_ptr<PackedMatrix>> PackGated(
      std::span<const Tensor> row_blocks, WeightFormat format = WeightFormat::kCompute) = 0;

  // Takes what Pack or PackGated made of each expert; one shape and gate for all.
  virtual StatusOr<std::unique_ptr<PackedExperts>> PackExperts(
      std::vector<std::unique_ptr<PackedMatrix>> experts) {
    return std::make_unique<PackedExperts>(std::move(experts));
  }

  // Bytes of all layers' K and V for one block (spec.num_blocks is ignored), for sizing the cache.
  virtual int64_t KvBytesPerBlock(const KvCacheSpec& spec) const = 0;
  virtual StatusOr<std::unique_ptr<KvCache>> AllocateKvCache(const KvCacheSpec& spec) = 0;

  // Null where memory_is_host(): there the host draws from the logits themselves.
  virtual StatusOr<std::unique_ptr<DeviceSampler>> MakeSampler(const DeviceSamplerLimits&) {
    return std::unique_ptr<DeviceSampler>();
  }

  // ---- once a step ----
  // Room for batches of up to so many tokens and requests; nothing is allocated afterwards.
  virtual StatusOr<std::unique_ptr<AttentionPlan>> MakeAttentionPlan(const AttentionShape& shape,
                                                                     int64_t max_tokens,
                                                                     int64_t max_requests) = 0;
  // Writes batch.work where that is given. A batch of one token per request makes a plan whose
  // sizes depend on the number of requests alone.
  virtual void PlanAttention(const AttentionBatch& batch, AttentionPlan* plan) = 0;
  // Numbers (i32) of batch.work for so many tokens and requests; 0: no such room is wanted.
  virtual int64_t AttentionWorkSize(const AttentionShape& /*shape*/, int64_t /*num_tokens*/,
                                    int64_t /*num_requests*/) const {
    return 0;
  }

  // ---- ops ----
  // out[t, :] = table[ids[t], :] * scale.  out: [T, H] res; ids: [T] i32 in [0, table.n());
  // table: [V, H], the same matrix that a tied lm_head multiplies with.
  virtual void Embedding(const Tensor& out, const Tensor& ids, const PackedMatrix& table,
                         float scale = 1.0f) = 0;

  // out[t, h] = x[t, h] / sqrt(mean(x[t, :]^2) + epsilon) * weight[h].
  // out: [T, H] act or f32; x: [T, H] act or f32, may be out itself; weight: [H] f32.
  virtual void RmsNorm(const Tensor& out, const Tensor& x, const Tensor& weight, float epsilon) = 0;

  // residual += x; out = RmsNorm(residual).  residual: [T, H] res; x, out: [T, H] act or f32, may
  // be the same tensor. Where nothing stands between a Linear and its sum,
  // LinearEpilogue::kAddResidual followed by RmsNorm is cheaper.
  virtual void AddRmsNorm(const Tensor& out, const Tensor& residual, const Tensor& x,
                          const Tensor& weight, float epsilon) = 0;

  // out = (x - mean(x)) / sqrt(variance(x) + epsilon) * weight + bias, row by row.
  // out, x: [T, H] act or f32; weight, bias: [H] f32.
  virtual void LayerNorm(const Tensor& out, const Tensor& x, const Tensor& weight,
                         const Tensor& bias, float epsilon) = 0;

  // residual += x.  residual: [T, H] res; x: [T, H] act or f32.
  virtual void Add(const Tensor& residual, const Tensor& x) = 0;

  // out = x in out's type.  out, x: [T, H] act or f32.
  virtual void Convert(const Tensor& out, const Tensor& x) = 0;

  // out = x W^T + bias, rounded once to out's type.  out: [T, n] act or f32 (logits: f32); x: [T,
  // k] act; bias: [n] f32, may be empty. Rows of out and x may be strided.
  virtual void Linear(const Tensor& out, const Tensor& x, const PackedMatrix& weight,
                      const Tensor& bias = {},
                      LinearEpilogue epilogue = LinearEpilogue::kStore) = 0;

  // Linear of RmsNorm(x) rounded to act: the bits of the two ops one after the other.
  // x: [T, k] act or f32; norm_weight: [k] f32.
  virtual void RmsNormLinear(const Tensor& out, const Tensor& x, const Tensor& norm_weight,
                             float epsilon, const PackedMatrix& weight, const Tensor& bias = {},
                             LinearEpilogue epilogue = LinearEpilogue::kStore) = 0;

  // out[t, i] = silu(gate_up[t, i]) * gate_up[t, I + i].  out: [T, I] act; gate_up: [T, 2 I] act or
  // f32.
  virtual void SiluAndMul(const Tensor& out, const Tensor& gate_up) = 0;

  // The same with gelu(x) = x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) for silu.
  virtual void GeluAndMul(const Tensor& out, const Tensor& gate_up) = 0;

  // out[t, i] = gelu(x[t, i]), gelu as above.  out: [T, I] act; x: [T, I] act or f32.
  virtual void Gelu(const Tensor& out, const Tensor& x) = 0;

  // For each token: RMS norm per head of q and k (when rope.q_norm, k_norm are there),
  // half-rotation RoPE as in HF llama (i pairs with i + rotary_dim / 2) at batch.positions, K and V
  // written to batch.slot_mapping, rotated q to out. out: [T, heads * head_dim] act; qkv: [T,
  // (heads + 2 kv_heads) * head_dim] act or f32, merged q, k, v.
  virtual void QkNormRopeWriteKv(const Tensor& out, const Tensor& qkv, const QkRope& rope,
                                 const LayerKv& kv, const AttentionPlan& plan) = 0;

  // Causal attention of the step's queries over their requests' cached keys and values (this step's
  // included: QkNormRopeWriteKv comes first).  out, q: [T, heads * head_dim] act.
  virtual void PagedAttention(const Tensor& out, const Tensor& q, const LayerKv& kv,
                              const AttentionOptions& options, const AttentionPlan& plan) = 0;

  // out[i, :] = x[rows[i], :].  out: [R, H]; x: [T, H], both of one type; rows: [R] i32.
  virtual void GatherRows(const Tensor& out, const Tensor& x, const Tensor& rows) = 0;

  // The experts of each token: the K largest of softmax(logits[t, :]), computed in float32 over all
  // of them, in falling order, the lowest id of equals first; divided by their sum if
  // `renormalize`. expert_ids: [T, K] i32; weights: [T, K] f32; logits: [T, E] f32; 1 <= K <= E.
  // Ids are in [0, E) even where logits are no numbers.
  virtual void RouteTopK(const Tensor& expert_ids, const Tensor& weights, const Tensor& logits,
                         bool renormalize) = 0;

  // Fills `pairs` from what RouteTopK gave: expert_ids: [T, K] i32 in [0, E), those of a token
  // differ; weights: [T, K] f32.
  virtual void GroupByExpert(const ExpertPairs& pairs, const Tensor& expert_ids,
                             const Tensor& weights) = 0;

  // Linear(out[i, :], x[i, :], expert e's matrix) for the pairs i of each expert e.
  // out: [P, n] or, gated, [P, n / 2] act; x: [P, k] act; not kAddResidual.
  virtual void ExpertLinear(const Tensor& out, const Tensor& x, const PackedExperts& experts,
                            const ExpertPairs& pairs,
                            LinearEpilogue epilogue = LinearEpilogue::kStore) = 0;

  // residual[t, :] += weights[t, k] * x[rows[t, k], :] for k = 0, 1, ... in this order.
  // residual: [T, H] res; x: [R, H] act or f32; rows: [T, K] i32 in [0, R); weights: [T, K] f32.
  virtual void AddWeightedRows(const Tensor& residual, const Tensor& x, const Tensor& rows,
                               const Tensor& weights) = 0;

  // x = cap tanh(x / cap), in place.  x: [R, V] f32; cap > 0.
  virtual void SoftCap(const Tensor& x, float cap) = 0;

  // ids[r] = the index of the largest logits[r, :], the lowest of equals.  ids: [R] i32; logits:
  // [R, V] f32.
  virtual void Argmax(const Tensor& ids, const Tensor& logits) = 0;

  // out[r] = log(sum_v exp(logits[r, v])); a logprob is logit - out.  out: [R] f32; logits: [R, V]
  // f32.
  virtual void LogSumExp(const Tensor& out, const Tensor& logits) = 0;

  // Host work over items [0, num_items) on the backend's threads, in ranges of `grain` items
  // or more claimed as threads get free; returns when all is done. Not from inside itself.
  virtual void ParallelFor(int64_t num_items, int64_t grain, RangeFunction function) = 0;
};

// The definition of every op. Slow; any block size; float32 throughout.
std::unique_ptr<Backend> MakeReferenceBackend();

enum class CpuIsa { kAuto, kScalar, kAvx2, kAvx512Bf16 };

struct CpuBackendOptions {
  DType dtype = DType::kBf16;  // compute type: kBf16 or kF32
  int num_threads = 0;         // the caller's included; 0: as many CPUs as this process may use
  CpuIsa isa = CpuIsa::kAuto;  // the best this CPU has; a forced one it lacks is an error
};

StatusOr<std::unique_ptr<Backend>> MakeCpuBackend(const CpuBackendOptions& options);

// Whose kernels compute PagedAttention on a GPU. kAuto: FlashInfer's where the build has them and
// they are made for the shape, as they are the ones that GPUs have run; else the project's own.
enum class AttentionBackend { kAuto, kTandem, kFlashInfer };

// Numbers for models of which only the shape matters: evenly spread around 0, by (seed, number of
// the matrix, place in it).
struct RandomMatrices {
  uint64_t seed = 0;
  float deviation = 0.02f;  // what transformers are initialised with

  float width() const { return deviation * 3.4641016f; }  // sqrt(12)
  // Of 32 random bits.
  static constexpr float NumberOf(uint32_t bits, float width) {
    return (static_cast<float>(bits >> 8) * 0x1p-24f - 0.5f) * width;
  }
};

struct CudaBackendOptions {
  DType dtype = DType::kBf16;  // compute type: kBf16 or kF32
  int num_threads = 0;         // of the host, for ParallelFor; 0: as many CPUs as are usable
  AttentionBackend attention = AttentionBackend::kAuto;
  // Pack draws all matrices on the device and does not read its blocks, which need no data.
  std::optional<RandomMatrices> random = {};
};

struct AttentionChoice {
  bool is_flashinfer = false;
  std::string reason;  // for the log
};

// INVALID_ARGUMENT: FlashInfer is wanted and not there, or not made for that type and head size.
StatusOr<AttentionChoice> ChooseAttention(AttentionBackend wanted, bool has_flashinfer, DType dtype,
                                          const AttentionShape& shape);

// Whether this build has CUDA, and this host a device for it.
bool HasCudaDevice();

// Whether this build has FlashInfer's attention kernels.
bool HasFlashInfer();

// UNAVAILABLE: built without CUDA, no driver, no device.
StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(const CudaBackendOptions& options);

// Whether this CPU runs the kernels of `isa` (kAuto: yes).
bool CpuHasIsa(CpuIsa isa);

}  // namespace tandem
