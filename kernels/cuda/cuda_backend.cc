#include "kernels/cuda/cuda_backend.h"

#include <algorithm>

#include "common/log.h"
#include "kernels/cuda/cuda_pair.h"
#include "kernels/cuda/device_memory.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/libraries/nccl.h"
#include "kernels/cuda/sampling/sampler.h"
#include "kernels/cuda_facts.h"
#include "kernels/op_checks.h"

namespace tandem {
namespace {

constexpr int64_t kRowAlignBytes = 16;

}  // namespace

int NumCudaDevices() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

std::optional<CudaFacts> ReadCudaFacts() {
  cudaDeviceProp properties;
  if (!HasCudaDevice() || cudaGetDeviceProperties(&properties, 0) != cudaSuccess) {
    return std::nullopt;
  }
  return CudaFacts{.name = properties.name,
                   .memory_bytes = static_cast<int64_t>(properties.totalGlobalMem),
                   .major = properties.major,
                   .minor = properties.minor};
}

StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(const CudaBackendOptions& options) {
  return CudaBackend::Create(options);
}

StatusOr<std::unique_ptr<Backend>> CudaBackend::Create(const CudaBackendOptions& options) {
  if (options.dtype != DType::kBf16 && options.dtype != DType::kF32) {
    return InvalidArgumentError("the cuda backend computes in bfloat16 or float32, not " +
                                std::string(DTypeName(options.dtype)));
  }
  int count = 0;
  RETURN_IF_ERROR(CudaStatus(cudaGetDeviceCount(&count), "there is no usable CUDA device"));
  if (count == 0) return UnavailableError("there is no CUDA device");
  if (options.device >= count) {
    return UnavailableError("there is no CUDA device " + std::to_string(options.device) +
                            ": there are " + std::to_string(count));
  }
  std::unique_ptr<CudaBackend> backend(new CudaBackend(options));
  RETURN_IF_ERROR(backend->Init(options.device));
  return std::unique_ptr<Backend>(std::move(backend));
}

CudaBackend::CudaBackend(const CudaBackendOptions& options)
    : Backend({options.dtype, DType::kF32}),
      dtype_(options.dtype),
      ops_(options.dtype, &device_),
      pool_(options.num_threads == 0 ? NumUsableCpus() : options.num_threads),
      nccl_library_(options.nccl_library),
      uses_peers_(options.uses_peers),
      attention_(options.attention),
      random_(options.random) {}

Status CudaBackend::Init(int device) {
  RETURN_IF_ERROR(device_.Open(device));
  const int64_t bytes = 2 * kStagingHalfBytes / SizeOf(DType::kI32);
  ASSIGN_OR_RETURN(staging_, AllocatePinned(DType::kI32, {&bytes, 1}));
  return ops_.Open();
}

std::string CudaBackend::description() const {
  return "cuda " + device_.name() + " " + std::string(DTypeName(dtype_)) +
         (ops_.has_cublaslt() ? "" : ", without cuBLASLt");
}

StatusOr<std::unique_ptr<PackedMatrix>> CudaBackend::Pack(std::span<const MatrixSource> row_blocks,
                                                          WeightFormat format) {
  RETURN_IF_ERROR(CheckPack(row_blocks, format));
  return PackRows(row_blocks, format, /*is_gated=*/false);
}

StatusOr<std::unique_ptr<PackedMatrix>> CudaBackend::PackGated(
    std::span<const MatrixSource> row_blocks, WeightFormat format) {
  RETURN_IF_ERROR(CheckPackGated(row_blocks, format));
  return PackRows(row_blocks, format, /*is_gated=*/true);
}

// One half is filled while the other is copied.
std::byte* CudaBackend::NextStagingHalf() {
  staging_half_ = 1 - staging_half_;
  device_.WaitFor(staging_sent_[staging_half_]);
  return static_cast<std::byte*>(staging_.view().data) +
         static_cast<int64_t>(staging_half_) * kStagingHalfBytes;
}

StatusOr<std::unique_ptr<PackedMatrix>> CudaBackend::PackRows(
    std::span<const MatrixSource> row_blocks, WeightFormat format, bool is_gated) {
  // In float32, for tests, all matrices are numbers.
  if (format != WeightFormat::kCompute && dtype_ == DType::kBf16) {
    ASSIGN_OR_RETURN(std::unique_ptr<PackedMatrix> coded,
                     format == WeightFormat::kStored ? PackCoded(row_blocks, is_gated)
                                                     : PackQuantized(row_blocks, format, is_gated));
    if (coded != nullptr) return coded;
  }
  const StackedRows rows(row_blocks);
  const int64_t n = rows.rows(), k = rows.columns();
  const int64_t align = kRowAlignBytes / SizeOf(dtype_);
  const int64_t shape[] = {n, (k + align - 1) / align * align};
  ASSIGN_OR_RETURN(OwnedTensor memory, AllocateDevice(dtype_, shape, device_.stream()));
  if (random_) {
    FillRandom(memory, k);
    return std::unique_ptr<PackedMatrix>(
        std::make_unique<CudaMatrix>(k, is_gated, std::move(memory)));
  }

  const int64_t row_bytes = k * SizeOf(dtype_);
  const int64_t rows_at_once = kStagingHalfBytes / row_bytes;
  if (rows_at_once == 0) {
    return InvalidArgumentError("a matrix of " + std::to_string(k) + " columns is too wide");
  }
  for (int64_t begin = 0; begin < n; begin += rows_at_once) {
    const int64_t count = std::min(rows_at_once, n - begin);
    std::byte* const bytes = NextStagingHalf();
    const Tensor staged(bytes, dtype_, {count, k});
    for (int64_t i = 0; i < count; ++i) {
      rows.Read(begin + i, 0, k, dtype_, bytes + i * row_bytes);
    }
    CopyRows(memory.view().Rows(begin, count).Columns(0, k), staged, device_.stream());
    staging_sent_[staging_half_] = device_.SetMark();
  }
  return std::unique_ptr<PackedMatrix>(
      std::make_unique<CudaMatrix>(k, is_gated, std::move(memory)));
}

StatusOr<std::unique_ptr<PackedPair>> CudaBackend::PackPair(std::span<const PairSource> blocks,
                                                            const MatrixForm& matrix) const {
  CheckPair(blocks, matrix.n, matrix.k);
  return CudaPair::Pack(blocks, matrix.n, matrix.k, dtype_);
}

StatusOr<std::unique_ptr<PackedPair>> CudaBackend::PackEmbeddingPair(const PairSource& pair) const {
  CheckPair({&pair, 1}, pair.b.rows(), pair.a.shape[1]);
  return CudaPair::PackEmbedding(pair, dtype_);
}

StatusOr<std::unique_ptr<PairTable>> CudaBackend::MakePairTable(std::span<const PairShape> sites,
                                                                int64_t num_places,
                                                                int64_t max_rank) {
  return CudaPairTable::Create(sites, num_places, max_rank, dtype_, &device_);
}

namespace {

KeyBytes KeyBytesOf(const KvCacheSpec& spec, DType dtype) {
  const int64_t size = spec.format == KvFormat::kCompute ? SizeOf(dtype) : 1;
  const int64_t scale_bytes = spec.format == KvFormat::kInt8 ? int64_t{sizeof(float)} : 0;
  return [block_size = spec.block_size, size, scale_bytes](int num_kv_heads, int head_dim) {
    return int64_t{num_kv_heads} * block_size * (head_dim * size + scale_bytes);
  };
}

}  // namespace

int64_t CudaBackend::KvBytesPerBlock(const KvCacheSpec& spec) const {
  return spec.bytes_per_block(KeyBytesOf(spec, dtype_));
}

StatusOr<std::unique_ptr<KvCache>> CudaBackend::AllocateKvCache(const KvCacheSpec& spec) {
  if (spec.format == KvFormat::kInt4) {
    return InvalidArgumentError("the cuda backend keeps KV in its compute type, int8 or float8");
  }
  if (spec.format != KvFormat::kCompute && spec.is_latent) {
    return InvalidArgumentError("the cuda backend keeps latent vectors in its compute type");
  }
  if (spec.format == KvFormat::kInt8 && spec.head_dim % sizeof(float) != 0) {
    return InvalidArgumentError("the cuda backend keeps heads of " + std::to_string(spec.head_dim) +
                                " numbers in its compute type");
  }
  if (spec.block_size <= 0 || spec.head_dim <= 0) {
    return InvalidArgumentError("block size " + std::to_string(spec.block_size) + " and head_dim " +
                                std::to_string(spec.head_dim) + " must be at least 1");
  }
  const KeyBytes key_bytes = KeyBytesOf(spec, dtype_);
  RETURN_IF_ERROR(CheckNumBlocks(spec, key_bytes));
  const DType dtype = spec.format == KvFormat::kCompute ? dtype_ : DType::kI8;
  const int64_t elements = spec.bytes_per_block(key_bytes) / SizeOf(dtype) * spec.num_blocks;
  ASSIGN_OR_RETURN(OwnedTensor memory, AllocateDevice(dtype, {&elements, 1}, device_.stream()));
  return std::make_unique<KvCache>(spec, std::move(memory), key_bytes);
}

StatusOr<std::unique_ptr<DeviceSampler>> CudaBackend::MakeSampler(
    const DeviceSamplerLimits& limits) {
  return CudaSampler::Create(limits, device_.stream());
}

StatusOr<std::string> CudaBackend::MakeMeetingPlace() {
  ASSIGN_OR_RETURN(const Nccl nccl, Nccl::Open(nccl_library_));
  ASSIGN_OR_RETURN(const NcclUniqueId id, nccl.MakeUniqueId());
  return std::string(id.bytes.data(), id.bytes.size());
}

Status CudaBackend::JoinRanks(int rank, int size, const std::string& place) {
  CHECK_LE(size, kMaxDeviceRanks);
  NcclUniqueId id;
  CHECK_EQ(place.size(), id.bytes.size());
  std::ranges::copy(place, id.bytes.begin());
  ASSIGN_OR_RETURN(const Nccl nccl, Nccl::Open(nccl_library_));
  ASSIGN_OR_RETURN(std::unique_ptr<NcclCommunicator> communicator,
                   NcclCommunicator::Init(nccl, {rank, size}, id, device_.stream()));
  std::unique_ptr<CudaPeers> peers;
  if (uses_peers_) {
    ASSIGN_OR_RETURN(peers, CudaPeers::Map(&device_, communicator.get()));
    if (rank == 0) {
      LOG_INFO << "ranks exchange few rows "
               << (peers == nullptr ? "by NCCL: a device cannot read another's memory"
                                    : "by reading each other's memory");
    }
  }
  exchange_ = std::make_unique<CudaExchange>(&device_, std::move(communicator), std::move(peers));
  return OkStatus();
}

void CudaBackend::ParallelFor(int64_t num_items, int64_t grain, RangeFunction function) {
  pool_.Run(num_items, grain, [&](int64_t begin, int64_t end, int) { function(begin, end); });
}

}  // namespace tandem
