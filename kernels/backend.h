#pragma once

// What the model runs on: a Device, its Ops, the exchange with the model's ranks on other devices,
// and the factories of everything whose layout is the backend's own: packed weights, the KV cache,
// attention plans, samplers. Model code is written once against it; kernels/reference defines the
// results, kernels/cpu and kernels/cuda are fast.
// Thread: one caller, the engine loop. Ownership: results of the factories are the caller's and
// must go away before the backend does.
// Failure: memory that cannot be had and files' odd shapes are a Status; a shape that does not fit
// is our own mistake (CHECK).

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"
#include "kernels/adapter_pair.h"
#include "kernels/device.h"
#include "kernels/device_sampler.h"
#include "kernels/matrix_source.h"
#include "kernels/ops.h"
#include "kernels/packed_matrix.h"
#include "kernels/paged_kv.h"
#include "kernels/parallel.h"
#include "kernels/rank_exchange.h"
#include "kernels/tensor.h"

namespace tandem {

class Backend {
 public:
  virtual ~Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  virtual Device& device() = 0;
  virtual const Device& device() const = 0;
  virtual Ops& ops() = 0;
  DType activation_dtype() const { return types_.activation; }
  DType residual_dtype() const { return types_.residual; }

  // For the log: "cpu amx bfloat16, 2 threads".
  virtual std::string description() const = 0;
  virtual int num_threads() const = 0;
  // Host work over items [0, num_items) on the backend's threads, in ranges of `grain` items
  // or more claimed as threads get free; returns when all is done. Not from inside itself.
  virtual void ParallelFor(int64_t num_items, int64_t grain, RangeFunction function) = 0;

  // Stacks row blocks [n_i, k] of equal k into one matrix [sum n_i, k] and packs it in that format:
  // q, k, v in this order for attention, gate, up for SiluAndMul, one block for the rest.
  // InvalidArgument when an integer format's rows are too long.
  virtual StatusOr<std::unique_ptr<PackedMatrix>> Pack(
      std::span<const MatrixSource> row_blocks, WeightFormat format = WeightFormat::kCompute) = 0;
  // The same for the epilogues kSiluAndMul and kGeluAndMul, and only for them: the first half of
  // the rows is the gate, the second what it multiplies.
  virtual StatusOr<std::unique_ptr<PackedMatrix>> PackGated(
      std::span<const MatrixSource> row_blocks, WeightFormat format = WeightFormat::kCompute) = 0;
  // Takes what Pack or PackGated made of each expert; one shape and gate for all.
  virtual StatusOr<std::unique_ptr<PackedExperts>> PackExperts(
      std::vector<std::unique_ptr<PackedMatrix>> experts) {
    return std::make_unique<PackedExperts>(std::move(experts));
  }

  // What an adapter adds to a matrix that Pack or PackGated made; and to an embedding [V, H]. Any
  // thread; the memory is the host's.
  virtual StatusOr<std::unique_ptr<PackedPair>> PackPair(std::span<const PairSource> blocks,
                                                         const MatrixForm& matrix) const = 0;
  virtual StatusOr<std::unique_ptr<PackedPair>> PackEmbeddingPair(const PairSource& pair) const = 0;

  // Where such pairs lie for ops: of num_places adapters whose ranks are at most max_rank, over
  // matrices of these shapes. Null where ops read them in place.
  virtual StatusOr<std::unique_ptr<PairTable>> MakePairTable(std::span<const PairShape> /*sites*/,
                                                             int64_t /*num_places*/,
                                                             int64_t /*max_rank*/) {
    return std::unique_ptr<PairTable>();
  }

  // Bytes of all layers' K and V for one block (spec.num_blocks is ignored), for sizing the cache.
  virtual int64_t KvBytesPerBlock(const KvCacheSpec& spec) const = 0;
  virtual StatusOr<std::unique_ptr<KvCache>> AllocateKvCache(const KvCacheSpec& spec) = 0;

  // Room for batches of up to max_tokens and max_requests.
  virtual StatusOr<std::unique_ptr<AttentionPlan>> MakeAttentionPlan(const AttentionShape& shape,
                                                                     int64_t max_tokens,
                                                                     int64_t max_requests) = 0;

  // ---- of a model whose ranks have a device each ----
  // Names a place where they meet. One rank makes it and gives its bytes to the others.
  virtual StatusOr<std::string> MakeMeetingPlace() {
    return UnimplementedError("ranks with devices of their own are not built for this backend");
  }
  // Waits for all ranks; afterwards there is an exchange.
  virtual Status JoinRanks(int /*rank*/, int /*size*/, const std::string& /*place*/) {
    return UnimplementedError("ranks with devices of their own are not built for this backend");
  }
  virtual RankExchange* exchange() { return nullptr; }

  // Null where the device's memory is the host's: there the host draws from the logits themselves.
  virtual StatusOr<std::unique_ptr<DeviceSampler>> MakeSampler(const DeviceSamplerLimits&) {
    return std::unique_ptr<DeviceSampler>();
  }

 protected:
  explicit Backend(OpTypes types) : types_(types) {}

 private:
  OpTypes types_;
};

// The definition of every op. Slow; any block size; float32 throughout.
std::unique_ptr<Backend> MakeReferenceBackend();

enum class CpuIsa { kAuto, kScalar, kAvx2, kAvx512Bf16, kAmx };

struct CpuBackendOptions {
  DType dtype = DType::kBf16;  // compute type: kBf16 or kF32
  int num_threads = 0;         // the caller's included; 0: one per CPU that this process may use
  CpuIsa isa = CpuIsa::kAuto;  // kAuto: the best of this CPU; an error if it lacks the given one
};

StatusOr<std::unique_ptr<Backend>> MakeCpuBackend(const CpuBackendOptions& options);

// The kernels that compute PagedAttention on a GPU. kAuto: FlashInfer's if the build has them and
// they support the shape, since those have run on GPUs; else this project's own.
enum class AttentionBackend { kAuto, kTandem, kFlashInfer };

// Numbers for models of which only the shape matters: uniform around 0, a function of (seed, number
// of the matrix, place in it).
struct RandomMatrices {
  uint64_t seed = 0;
  float deviation = 0.02f;  // usual for initialising transformers

  float width() const { return deviation * 3.4641016f; }  // sqrt(12)
  // The number of 32 random bits.
  static constexpr float NumberOf(uint32_t bits, float width) {
    return (static_cast<float>(bits >> 8) * 0x1p-24f - 0.5f) * width;
  }
};

struct CudaBackendOptions {
  DType dtype = DType::kBf16;  // compute type: kBf16 or kF32
  int num_threads = 0;         // of the host, for ParallelFor; 0: one per usable CPU
  AttentionBackend attention = AttentionBackend::kAuto;
  int device = 0;                             // of those that CUDA_VISIBLE_DEVICES leaves
  std::string nccl_library = "libnccl.so.2";  // opened where several ranks run a model
  bool uses_peers = true;  // few rows go through memory that ranks read at each other, if they can
  // Pack draws all matrices on the device and does not read its blocks, which need no data.
  std::optional<RandomMatrices> random = {};
};

struct AttentionChoice {
  bool is_flashinfer = false;
  std::string reason;  // for the log
};

// INVALID_ARGUMENT: FlashInfer is wanted but not in this build, or has no kernel for that type and
// head size.
StatusOr<AttentionChoice> ChooseAttention(AttentionBackend wanted, bool has_flashinfer, DType dtype,
                                          const AttentionShape& shape);

// Rows of a matrix of a layer's state (key_dim, state_dim) for which there are cuda kernels.
inline constexpr int64_t kMaxCudaStateRows = 256;

// The devices that CUDA_VISIBLE_DEVICES leaves; 0 in a build without CUDA.
int NumCudaDevices();
inline bool HasCudaDevice() { return NumCudaDevices() > 0; }

// Whether this build has FlashInfer's attention kernels.
bool HasFlashInfer();

// UNAVAILABLE: built without CUDA, no driver, no device.
StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(const CudaBackendOptions& options);

// Whether this CPU runs the kernels of `isa` (kAuto: yes). kAmx asks Linux for the use of
// tiles, which holds for the whole process.
bool CpuHasIsa(CpuIsa isa);
// Of "auto", "amx", "avx512_bf16", "avx2", "scalar".
std::optional<CpuIsa> FindCpuIsa(std::string_view name);

}  // namespace tandem
