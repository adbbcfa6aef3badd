#include "kernels/cpu/cpu_backend.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <string_view>

#include "kernels/cpu/cpu_pair.h"
#include "kernels/host_memory.h"
#include "kernels/op_checks.h"
#include "kernels/stored_blocks.h"

namespace tandem {

namespace {

// From the worst to the best. A table may only be asked for where the CPU has its instructions:
// they may be used to make it.
struct NamedIsa {
  CpuIsa isa;
  const char* name;
  const KernelTable& (*kernels)();
};
constexpr NamedIsa kIsas[] = {{CpuIsa::kScalar, "scalar", ScalarKernels},
                              {CpuIsa::kAvx2, "avx2", Avx2Kernels},
                              {CpuIsa::kAvx512Bf16, "avx512_bf16", Avx512Bf16Kernels},
                              {CpuIsa::kAmx, "amx", AmxKernels}};

// kAuto: of the best that this CPU has.
const NamedIsa& RowOf(CpuIsa isa) {
  for (size_t i = std::size(kIsas); i-- > 0;) {
    if (isa == CpuIsa::kAuto ? CpuHasIsa(kIsas[i].isa) : isa == kIsas[i].isa) return kIsas[i];
  }
  return kIsas[0];
}

// Whether the CPU has tiles and Linux, from 5.16 on, grants their state to this process. Threads
// and children have the permission too.
bool AskForTiles() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  constexpr unsigned kBf16 = 1u << 22, kTile = 1u << 24, kInt8 = 1u << 25;
  constexpr unsigned kAll = kBf16 | kTile | kInt8;
  constexpr int kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM
  return (d & kAll) == kAll && syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace

bool CpuHasIsa(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kAvx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    case CpuIsa::kAvx512Bf16:
      return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
             __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vnni");
    case CpuIsa::kAmx: {
      static const bool kHasTiles = CpuHasIsa(CpuIsa::kAvx512Bf16) && AskForTiles();
      return kHasTiles;
    }
    case CpuIsa::kAuto:
    case CpuIsa::kScalar:
      break;
  }
  return true;
}

std::optional<CpuIsa> FindCpuIsa(std::string_view name) {
  if (name == "auto") return CpuIsa::kAuto;
  for (const NamedIsa& row : kIsas) {
    if (name == row.name) return row.isa;
  }
  return std::nullopt;
}

StatusOr<std::unique_ptr<Backend>> MakeCpuBackend(const CpuBackendOptions& options) {
  if (options.dtype != DType::kBf16 && options.dtype != DType::kF32) {
    return InvalidArgumentError("the cpu backend computes in bfloat16 or float32, not " +
                                std::string(DTypeName(options.dtype)));
  }
  if (!CpuHasIsa(options.isa)) {
    return UnavailableError("this CPU lacks the instructions of " +
                            std::string(RowOf(options.isa).name));
  }
  if (options.num_threads < 0) {
    return InvalidArgumentError("num_threads is " + std::to_string(options.num_threads) +
                                ", must be 0 (all usable CPUs) or more");
  }
  const int num_threads = options.num_threads == 0 ? NumUsableCpus() : options.num_threads;
  return std::unique_ptr<Backend>(std::make_unique<CpuBackend>(
      options.dtype, RowOf(options.isa).name, RowOf(options.isa).kernels(), num_threads));
}

CpuBackend::CpuBackend(DType dtype, const char* isa_name, const KernelTable& table, int num_threads)
    : Backend({dtype, DType::kF32}),
      dtype_(dtype),
      isa_name_(isa_name),
      table_(table),
      pool_(num_threads),
      ops_(dtype, table, &pool_) {}

std::string CpuBackend::description() const {
  return std::string("cpu ") + isa_name_ + " " + std::string(DTypeName(dtype_)) + ", " +
         std::to_string(num_threads()) + (num_threads() == 1 ? " thread" : " threads");
}

StatusOr<std::unique_ptr<PackedMatrix>> CpuBackend::Pack(std::span<const MatrixSource> row_blocks,
                                                         WeightFormat format) {
  RETURN_IF_ERROR(CheckPack(row_blocks, format));
  return PackAs(row_blocks, format, /*is_gated=*/false);
}

StatusOr<std::unique_ptr<PackedMatrix>> CpuBackend::PackGated(
    std::span<const MatrixSource> row_blocks, WeightFormat format) {
  RETURN_IF_ERROR(CheckPackGated(row_blocks, format));
  return PackAs(row_blocks, format, /*is_gated=*/true);
}

StatusOr<std::unique_ptr<PackedMatrix>> CpuBackend::PackAs(std::span<const MatrixSource> row_blocks,
                                                           WeightFormat format, bool is_gated) {
  const bool is_kept = format == WeightFormat::kStored;
  format = ResolveFormat(row_blocks, format);
  if (is_kept && format == WeightFormat::kCompute) {
    ASSIGN_OR_RETURN(std::unique_ptr<PackedMatrix> coded,
                     PackCoded(row_blocks, dtype_, is_gated, &pool_));
    if (coded != nullptr) return coded;
  }
  if (format == WeightFormat::kCompute) return PackPanels(row_blocks, dtype_, is_gated, &pool_);
  if (format == WeightFormat::kStored) return PackBlocks(row_blocks, is_gated, &pool_);
  return PackQuantized(row_blocks, format, is_gated, &pool_);
}

StatusOr<std::unique_ptr<PackedPair>> CpuBackend::PackPair(std::span<const PairSource> blocks,
                                                           const MatrixForm& matrix) const {
  CheckPair(blocks, matrix.n, matrix.k);
  return CpuPair::Pack(blocks, matrix, dtype_, &adapter_memory_);
}

StatusOr<std::unique_ptr<PackedPair>> CpuBackend::PackEmbeddingPair(const PairSource& pair) const {
  CheckPair({&pair, 1}, pair.b.rows(), pair.a.shape[1]);
  return CpuPair::PackEmbedding(pair, dtype_, &adapter_memory_);
}

namespace {

int64_t TileBytes(KvFormat format, DType dtype, int64_t padded_dim) {
  switch (format) {
    case KvFormat::kCompute:
      return kTileTokens * padded_dim * SizeOf(dtype);
    case KvFormat::kInt8:
      return Int8TileBytes(padded_dim);
    case KvFormat::kFloat8:
      return Float8TileBytes(padded_dim);
    case KvFormat::kInt4:
      return Int4TileBytes(padded_dim);
  }
  return 0;
}

KeyBytes KeyBytesOf(const KvCacheSpec& spec, DType dtype) {
  return [tiles = spec.block_size / kTileTokens, format = spec.format, dtype](int num_kv_heads,
                                                                              int head_dim) {
    const int64_t tile_bytes = TileBytes(format, dtype, PaddedHeadDim(head_dim));
    return int64_t{num_kv_heads} * tiles * tile_bytes;
  };
}

}  // namespace

int64_t CpuBackend::KvBytesPerBlock(const KvCacheSpec& spec) const {
  return spec.bytes_per_block(KeyBytesOf(spec, dtype_));
}

StatusOr<std::unique_ptr<KvCache>> CpuBackend::AllocateKvCache(const KvCacheSpec& spec) {
  if (spec.block_size <= 0 || spec.block_size % kTileTokens != 0) {
    return InvalidArgumentError("block size is " + std::to_string(spec.block_size) +
                                ", the cpu backend wants a multiple of " +
                                std::to_string(kTileTokens));
  }
  for (int i = 0; i < spec.num_layers; ++i) {
    const int head_dim = spec.memory_of(i).head_dim;
    if (head_dim > 0 && head_dim <= kMaxHeadDim) continue;
    return InvalidArgumentError("head_dim is " + std::to_string(head_dim) +
                                ", the cpu backend takes up to " + std::to_string(kMaxHeadDim));
  }
  const KeyBytes key_bytes = KeyBytesOf(spec, dtype_);
  RETURN_IF_ERROR(CheckNumBlocks(spec, key_bytes));
  const int64_t units = spec.bytes_per_block(key_bytes) / SizeOf(DType::kI32) * spec.num_blocks;
  ASSIGN_OR_RETURN(OwnedTensor memory, AllocateHost(DType::kI32, {&units, 1}));
  return std::make_unique<KvCache>(spec, std::move(memory), key_bytes);
}

StatusOr<std::unique_ptr<AttentionPlan>> CpuBackend::MakeAttentionPlan(const AttentionShape& shape,
                                                                       int64_t max_tokens,
                                                                       int64_t max_requests) {
  ops_.ReserveAttentionScratch(shape);
  return std::unique_ptr<AttentionPlan>(std::make_unique<CpuPlan>(shape, max_tokens, max_requests));
}

void CpuBackend::ParallelFor(int64_t num_items, int64_t grain, RangeFunction function) {
  pool_.Run(num_items, grain, [&](int64_t begin, int64_t end, int) { function(begin, end); });
}

}  // namespace tandem
