#include "kernels/kv_rows.h"

#include <algorithm>

#include "common/check.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/reference/reference_backend.h"
#include "kernels/reference/reference_ops.h"

namespace tandem {
namespace {

Status NotBuilt(const char* what) {
  return UnimplementedError(std::string("rows of keys and values are not built for ") + what);
}

// Where the numbers of one token's head lie: number i of K at k[(i / step) * k_stride + i % step],
// of V at v[i * step].
template <class T>
struct Place {
  T* k;
  T* v;
  int64_t k_stride;
  int64_t step;
};

template <class T>
Place<T> PlaceInTile(const LayerKv& kv, int64_t slot, int head, int64_t padded_dim) {
  constexpr int64_t kStep = sizeof(T) == 2 ? 2 : 1;
  const int64_t tile = slot / kTileTokens * kv.num_kv_heads + head;
  const int64_t token = slot % kTileTokens;
  const int64_t begin = tile * kTileTokens * padded_dim;
  return {static_cast<T*>(kv.k) + begin + token * kStep,
          static_cast<T*>(kv.v) + begin + token / kStep * padded_dim * kStep + token % kStep,
          kTileTokens * kStep, kStep};
}

template <class T>
Place<T> PlaceInReference(const LayerKv& kv, int64_t slot, int head) {
  const int64_t offset = ReferenceKvOffset(kv, slot, head);
  return {static_cast<T*>(kv.k) + offset, static_cast<T*>(kv.v) + offset, 1, 1};
}

// copy(number of the cache, number of the row), for each number of the block. rows: of the first
// head that the cache has; row_size: numbers of a token.
template <class T, class Row, class Copy>
void ForEachNumber(const LayerKv& kv, bool is_tiled, BlockId block, Row* rows, int64_t row_size,
                   Copy copy) {
  const int64_t first = int64_t{Index(block)} * kv.block_size;
  const int64_t padded_dim = PaddedHeadDim(kv.head_dim);
  for (int64_t slot = first; slot < first + kv.block_size; ++slot, rows += row_size) {
    Row* row = rows;
    for (int head = 0; head < kv.num_kv_heads; ++head, row += 2 * kv.head_dim) {
      const Place<T> place = is_tiled ? PlaceInTile<T>(kv, slot, head, padded_dim)
                                      : PlaceInReference<T>(kv, slot, head);
      for (int64_t i = 0; i < kv.head_dim; ++i) {
        copy(place.k[i / place.step * place.k_stride + i % place.step], row[i]);
        copy(place.v[i * place.step], row[kv.head_dim + i]);
      }
    }
  }
}

// Numbers as their bits.
template <class T>
void ReadBlock(const LayerKv& kv, bool is_tiled, BlockId block, std::byte* rows, int64_t row_size) {
  ForEachNumber<T>(kv, is_tiled, block, reinterpret_cast<T*>(rows), row_size,
                   [](const T& in_cache, T& in_row) { in_row = in_cache; });
}

template <class T>
void WriteBlock(const LayerKv& kv, bool is_tiled, BlockId block, const std::byte* rows,
                int64_t row_size) {
  ForEachNumber<T>(kv, is_tiled, block, reinterpret_cast<const T*>(rows), row_size,
                   [](T& in_cache, const T& in_row) { in_cache = in_row; });
}

}  // namespace

StatusOr<KvRows> KvRows::Of(const Backend& backend, const KvCaches& caches) {
  KvRows rows;
  rows.is_tiled_ = dynamic_cast<const CpuBackend*>(&backend) != nullptr;
  if (!rows.is_tiled_ && dynamic_cast<const ReferenceBackend*>(&backend) == nullptr) {
    return NotBuilt("this device");
  }
  const KvCacheSpec& spec = caches.front().cache->spec();
  if (spec.format != KvFormat::kCompute) return NotBuilt("int8, int4 and fp8");
  if (spec.is_latent) return NotBuilt("latent attention");
  rows.dtype_ = backend.activation_dtype();
  rows.block_size_ = spec.block_size;
  for (const KvCachePart& part : caches) {
    const KvCacheSpec& own = part.cache->spec();
    if (own.num_with_state(own.num_layers) > 0) return NotBuilt("recurrent layers");
    rows.Add(part);
  }
  return rows;
}

void KvRows::Add(const KvCachePart& part) {
  const KvCacheSpec& spec = part.cache->spec();
  for (int layer = 0; layer < spec.num_layers; ++layer) {
    if (spec.kv_owner(layer) != layer || !spec.memory_of(layer).has_kv) continue;
    const LayerKv& kv = part.cache->layer(layer);
    const Slice heads = part.kv_heads.empty() ? Slice{0, kv.num_kv_heads}
                                              : part.kv_heads[static_cast<size_t>(layer)];
    CHECK_EQ(heads.count, kv.num_kv_heads);
    const auto found = std::ranges::lower_bound(numbers_, part.first_layer + layer);
    const auto i = found - numbers_.begin();
    if (found == numbers_.end() || *found != part.first_layer + layer) {
      numbers_.insert(found, part.first_layer + layer);
      pieces_.emplace(pieces_.begin() + i);
      num_heads_.insert(num_heads_.begin() + i, 0);
    }
    int& num_heads = num_heads_[static_cast<size_t>(i)];
    const auto end = static_cast<int>(heads.end());
    pieces_[static_cast<size_t>(i)].push_back(
        {kv, static_cast<int>(heads.begin), /*is_copy=*/end <= num_heads});
    num_heads = std::max(num_heads, end);
  }
}

void KvRows::Read(size_t i, BlockId block, std::byte* rows) const {
  const int64_t size = SizeOf(dtype_), row_size = BytesPerToken(i) / size;
  for (const Piece& piece : pieces_[i]) {
    if (piece.is_copy) continue;
    std::byte* const to = rows + 2 * size * piece.first_head * piece.kv.head_dim;
    size == 2 ? ReadBlock<uint16_t>(piece.kv, is_tiled_, block, to, row_size)
              : ReadBlock<uint32_t>(piece.kv, is_tiled_, block, to, row_size);
  }
}

void KvRows::Write(size_t i, BlockId block, const std::byte* rows) const {
  const int64_t size = SizeOf(dtype_), row_size = BytesPerToken(i) / size;
  for (const Piece& piece : pieces_[i]) {
    const std::byte* const from = rows + 2 * size * piece.first_head * piece.kv.head_dim;
    size == 2 ? WriteBlock<uint16_t>(piece.kv, is_tiled_, block, from, row_size)
              : WriteBlock<uint32_t>(piece.kv, is_tiled_, block, from, row_size);
  }
}

}  // namespace tandem
