#include "kernels/cuda/cuda_pair.h"

#include <algorithm>

#include "kernels/cuda/device_memory.h"
#include "kernels/host_memory.h"

namespace tandem {
namespace {

constexpr int64_t kRowAlignBytes = 16, kPartAlignBytes = 256;
constexpr int64_t kEntryWords = sizeof(CudaPairEntry) / sizeof(int32_t);

int64_t RoundUp(int64_t size, int64_t unit) { return (size + unit - 1) / unit * unit; }

int64_t PaddedRow(int64_t count, DType dtype) {
  return RoundUp(count, kRowAlignBytes / SizeOf(dtype));
}

int64_t RankOf(std::span<const PairSource> blocks) {
  int64_t rank = 0;
  for (const PairSource& block : blocks) rank += block.a.rows();
  return rank;
}

// Ranks that a row of B may use.
struct Ranks {
  int64_t begin = 0, end = 0;
};

std::vector<Ranks> RanksOfRows(std::span<const PairSource> blocks, int64_t n) {
  std::vector<Ranks> of_rows(static_cast<size_t>(n));
  int64_t begin = 0;
  for (const PairSource& block : blocks) {
    const int64_t end = begin + block.a.rows();
    for (int64_t row = block.begin; row < block.begin + block.b.rows(); ++row) {
      Ranks& ranks = of_rows[static_cast<size_t>(row)];
      ranks = {.begin = ranks.end == 0 ? begin : ranks.begin, .end = end};
    }
    begin = end;
  }
  return of_rows;
}

int64_t WidestOf(const std::vector<Ranks>& of_rows) {
  int64_t widest = 1;
  for (const Ranks& ranks : of_rows) widest = std::max(widest, ranks.end - ranks.begin);
  return widest;
}

void Put(float value, DType dtype, int64_t i, std::byte* out) {
  if (dtype == DType::kBf16) {
    reinterpret_cast<Bf16*>(out)[i] = ToBf16(value);
  } else {
    reinterpret_cast<float*>(out)[i] = value;
  }
}

StatusOr<OwnedTensor> AllocateBytes(int64_t size) { return AllocateHost(DType::kI8, {&size, 1}); }

}  // namespace

CudaPairLayout CudaPairLayout::Of(const PairShape& shape, int64_t rank, int64_t max_rank,
                                  DType dtype) {
  CudaPairLayout layout = {.rank = rank, .width = PaddedRow(max_rank, dtype)};
  layout.a_rows = shape.is_embedding ? shape.k : rank;
  layout.a_stride = PaddedRow(shape.is_embedding ? rank : shape.k, dtype);
  const auto end_of = [](int64_t begin, int64_t bytes) {
    return RoundUp(begin + bytes, kPartAlignBytes);
  };
  layout.b_begin = end_of(0, layout.a_rows * layout.a_stride * SizeOf(dtype));
  layout.first_begin = end_of(layout.b_begin, shape.n * layout.width * SizeOf(dtype));
  layout.num_bytes = end_of(layout.first_begin, shape.n * SizeOf(DType::kI32));
  return layout;
}

// ---- CudaPair ----

StatusOr<std::unique_ptr<PackedPair>> CudaPair::Pack(std::span<const PairSource> blocks, int64_t n,
                                                     int64_t k, DType dtype) {
  const CudaPairLayout layout =
      CudaPairLayout::Of({.n = n, .k = k}, RankOf(blocks), WidestOf(RanksOfRows(blocks, n)), dtype);
  ASSIGN_OR_RETURN(OwnedTensor memory, AllocateBytes(layout.num_bytes));
  std::unique_ptr<CudaPair> pair(new CudaPair(n, k, layout, std::move(memory)));
  Tensor a(pair->At(0), dtype, {layout.rank, layout.a_stride});
  int64_t rank = 0;
  for (const PairSource& block : blocks) {
    const int64_t count = block.a.rows();
    ConvertTensor(a.Rows(rank, count).Columns(0, k), block.a);
    rank += count;
  }
  pair->PackB(blocks, dtype);
  return std::unique_ptr<PackedPair>(std::move(pair));
}

StatusOr<std::unique_ptr<PackedPair>> CudaPair::PackEmbedding(const PairSource& source,
                                                              DType dtype) {
  const int64_t rank = source.a.rows(), num_ids = source.a.shape[1], hidden = source.b.rows();
  const CudaPairLayout layout =
      CudaPairLayout::Of({.n = hidden, .k = num_ids, .is_embedding = true}, rank, rank, dtype);
  ASSIGN_OR_RETURN(OwnedTensor memory, AllocateBytes(layout.num_bytes));
  std::unique_ptr<CudaPair> pair(new CudaPair(hidden, num_ids, layout, std::move(memory)));
  std::vector<float> row(static_cast<size_t>(num_ids));
  for (int64_t r = 0; r < rank; ++r) {
    ConvertTensor(Tensor(row.data(), DType::kF32, {1, num_ids}), source.a.Rows(r, 1));
    for (int64_t id = 0; id < num_ids; ++id) {
      Put(row[static_cast<size_t>(id)], dtype, id * layout.a_stride + r, pair->At(0));
    }
  }
  pair->PackB({&source, 1}, dtype);
  return std::unique_ptr<PackedPair>(std::move(pair));
}

void CudaPair::PackB(std::span<const PairSource> blocks, DType dtype) {
  const std::vector<Ranks> of_rows = RanksOfRows(blocks, n());
  auto* first = reinterpret_cast<int32_t*>(At(layout_.first_begin));
  for (int64_t row = 0; row < n(); ++row) {
    first[row] = static_cast<int32_t>(of_rows[static_cast<size_t>(row)].begin);
  }
  std::vector<float> values;
  int64_t rank = 0;
  for (const PairSource& block : blocks) {
    const int64_t count = block.a.rows();
    values.resize(static_cast<size_t>(count));
    for (int64_t i = 0; i < block.b.rows(); ++i) {
      ConvertTensor(Tensor(values.data(), DType::kF32, {1, count}), block.b.Rows(i, 1));
      const int64_t row = block.begin + i;
      const int64_t begin = row * layout_.width + rank - first[row];
      for (int64_t r = 0; r < count; ++r) {
        Put(values[static_cast<size_t>(r)] * block.scale, dtype, begin + r, At(layout_.b_begin));
      }
    }
    rank += count;
  }
}

// ---- CudaPairTable ----

StatusOr<std::unique_ptr<PairTable>> CudaPairTable::Create(std::span<const PairShape> sites,
                                                           int64_t num_places, int64_t max_rank,
                                                           DType dtype, CudaDevice* device) {
  std::unique_ptr<CudaPairTable> table(new CudaPairTable(device));
  int64_t place_bytes = 0;
  for (const PairShape& site : sites) {
    const int64_t rank = site.num_blocks * max_rank;
    const int64_t bytes = CudaPairLayout::Of(site, rank, max_rank, dtype).num_bytes;
    table->rooms_.push_back(
        {.begin = place_bytes, .num_bytes = bytes, .rank = rank, .num_ids = site.k});
    place_bytes += bytes;
  }
  const int64_t shape[] = {num_places, place_bytes};
  ASSIGN_OR_RETURN(table->memory_, AllocateDevice(DType::kI8, shape, device->stream()));
  // Zeros: no adapter is anywhere.
  const int64_t entries[] = {num_places, table->num_sites() * kEntryWords};
  ASSIGN_OR_RETURN(table->entries_, AllocateDevice(DType::kI32, entries, device->stream()));
  return std::unique_ptr<PairTable>(std::move(table));
}

void CudaPairTable::Load(int64_t place, std::span<const PackedPair* const> pairs) {
  CHECK_EQ(pairs.size(), rooms_.size());
  std::vector<CudaPairEntry> entries(pairs.size());
  for (size_t site = 0; site < pairs.size(); ++site) {
    if (pairs[site] == nullptr) continue;
    entries[site] = Copy(place, rooms_[site], static_cast<const CudaPair&>(*pairs[site]));
  }
  device_->CopyIn(entries_.view().Rows(place, 1),
                  Tensor(entries.data(), DType::kI32, {1, num_sites() * kEntryWords}));
}

CudaPairEntry CudaPairTable::Copy(int64_t place, const Room& room, const CudaPair& pair) {
  const CudaPairLayout& layout = pair.layout();
  CHECK(layout.num_bytes <= room.num_bytes && layout.rank <= room.rank)
      << "a pair of rank " << layout.rank << " in a place for " << room.rank;
  const Tensor to = memory_.view().Rows(place, 1).Columns(room.begin, layout.num_bytes);
  device_->CopyIn(to, Tensor(pair.bytes().data, DType::kI8, {1, layout.num_bytes}));
  auto* bytes = static_cast<std::byte*>(to.data);
  return {.a = bytes,
          .b = bytes + layout.b_begin,
          .first = reinterpret_cast<const int32_t*>(bytes + layout.first_begin),
          .a_stride = layout.a_stride,
          .rank = static_cast<int32_t>(layout.rank),
          .width = static_cast<int32_t>(layout.width)};
}

}  // namespace tandem
