#include "kernels/cpu/cpu_pair.h"

#include <algorithm>
#include <cstring>

namespace tandem {
namespace {

// The rows of a matrix in one strip of its panels; -1: none.
using StripRows = std::array<int64_t, kStripColumns>;

StripRows RowsOfStrip(int64_t strip, int64_t n, bool is_gated) {
  constexpr int64_t kStripsOfPanel = kPanelColumns / kStripColumns;
  StripRows rows;
  for (int64_t i = 0; i < kStripColumns; ++i) {
    rows[static_cast<size_t>(i)] = RowOfColumn(
        strip / kStripsOfPanel, strip % kStripsOfPanel * kStripColumns + i, n, is_gated);
  }
  return rows;
}

// Where a block's numbers stand among those of all blocks.
struct Block {
  const PairSource* source;
  int32_t first = 0;  // rank
  int32_t rank() const { return static_cast<int32_t>(source->b.shape[1]); }
  bool Has(int64_t row) const {
    return row >= source->begin && row < source->begin + source->b.rows();
  }
};

std::vector<Block> Place(std::span<const PairSource> sources) {
  std::vector<Block> blocks;
  int32_t first = 0;
  for (const PairSource& source : sources) {
    blocks.push_back({&source, first});
    first += blocks.back().rank();
  }
  return blocks;
}

// The ranks that some row of the strip uses.
AdapterStrip ShapeOf(const StripRows& rows, std::span<const Block> blocks) {
  int32_t begin = INT32_MAX, end = 0;
  for (const Block& block : blocks) {
    if (std::ranges::none_of(rows, [&](int64_t row) { return block.Has(row); })) continue;
    begin = std::min(begin, block.first);
    end = std::max(end, block.first + block.rank());
  }
  return begin < end ? AdapterStrip{.first = begin, .count = end - begin} : AdapterStrip{};
}

void Put(float value, DType dtype, int64_t i, void* out) {
  if (dtype == DType::kBf16) {
    static_cast<Bf16*>(out)[i] = ToBf16(value);
  } else {
    static_cast<float*>(out)[i] = value;
  }
}

}  // namespace

StatusOr<std::unique_ptr<PackedPair>> CpuPair::Pack(std::span<const PairSource> blocks,
                                                    const MatrixForm& matrix, DType dtype,
                                                    HostArena* arena) {
  int64_t rank = 0;
  for (const PairSource& block : blocks) rank += block.a.rows();
  std::unique_ptr<CpuPair> pair(new CpuPair(matrix.n, matrix.k, rank));
  const int64_t shape[] = {rank, PaddedColumns(matrix.k)};
  ASSIGN_OR_RETURN(pair->a_, arena->Allocate(dtype, shape));
  pair->PackA(blocks);
  const int64_t num_panels = CpuMatrix::NumPanels(matrix.n, matrix.pairs_rows);
  RETURN_IF_ERROR(pair->PackB(blocks, num_panels, matrix.pairs_rows, dtype, arena));
  return std::unique_ptr<PackedPair>(std::move(pair));
}

StatusOr<std::unique_ptr<PackedPair>> CpuPair::PackEmbedding(const PairSource& source, DType dtype,
                                                             HostArena* arena) {
  const int64_t rank = source.a.rows(), num_ids = source.a.shape[1], hidden = source.b.rows();
  std::unique_ptr<CpuPair> pair(new CpuPair(hidden, num_ids, rank));
  const int64_t shape[] = {num_ids, rank};
  ASSIGN_OR_RETURN(pair->a_, arena->Allocate(dtype, shape));
  std::vector<float> row(static_cast<size_t>(num_ids));
  for (int64_t r = 0; r < rank; ++r) {
    ConvertTensor(Tensor(row.data(), DType::kF32, {1, num_ids}), source.a.Rows(r, 1));
    for (int64_t id = 0; id < num_ids; ++id) {
      Put(row[static_cast<size_t>(id)], dtype, id * rank + r, pair->a_.view().data);
    }
  }
  RETURN_IF_ERROR(
      pair->PackB({&source, 1}, CpuMatrix::NumPanels(hidden, false), false, dtype, arena));
  return std::unique_ptr<PackedPair>(std::move(pair));
}

void CpuPair::PackA(std::span<const PairSource> blocks) {
  const DType dtype = a_.view().dtype;
  const int64_t size = SizeOf(dtype), padded = PaddedColumns(k());
  std::vector<std::byte> row(static_cast<size_t>(padded * size));
  auto* out = static_cast<std::byte*>(a_.view().data);
  int64_t rank = 0;
  for (const PairSource& block : blocks) {
    for (int64_t r = 0; r < block.a.rows(); ++r, ++rank) {
      ConvertTensor(Tensor(row.data(), dtype, {1, k()}), block.a.Rows(r, 1));
      const int64_t first = rank / kRanksTogether * kRanksTogether;
      const bool is_alone = first + kRanksTogether > rank_;
      const int64_t count = is_alone ? 1 : kRanksTogether;
      std::byte* to =
          out + (is_alone ? rank * padded : first * padded + (rank - first) * kStripColumns) * size;
      for (int64_t at = 0; at < padded; at += kStripColumns) {
        std::memcpy(to + at * count * size, row.data() + at * size,
                    static_cast<size_t>(kStripColumns * size));
      }
    }
  }
}

Status CpuPair::PackB(std::span<const PairSource> sources, int64_t num_panels, bool is_gated,
                      DType dtype, HostArena* arena) {
  const std::vector<Block> blocks = Place(sources);
  const int64_t num_strips = num_panels * (kPanelColumns / kStripColumns);
  int64_t size = 0;
  for (int64_t s = 0; s < num_strips; ++s) {
    strips_.push_back(ShapeOf(RowsOfStrip(s, n(), is_gated), blocks));
    size += strips_.back().count * kStripColumns;
  }
  ASSIGN_OR_RETURN(b_, arena->Allocate(dtype, {&size, 1}));
  std::vector<float> values(static_cast<size_t>(rank_));
  auto* weights = static_cast<std::byte*>(b_.view().data);
  for (int64_t s = 0; s < num_strips; ++s) {
    AdapterStrip& strip = strips_[static_cast<size_t>(s)];
    strip.weights = weights;
    const StripRows rows = RowsOfStrip(s, n(), is_gated);
    for (const Block& block : blocks) {
      for (size_t lane = 0; lane < rows.size(); ++lane) {
        if (!block.Has(rows[lane])) continue;
        ConvertTensor(Tensor(values.data(), DType::kF32, {1, block.rank()}),
                      block.source->b.Rows(rows[lane] - block.source->begin, 1));
        for (int32_t r = 0; r < block.rank(); ++r) {
          const int64_t at = int64_t{block.first - strip.first + r} * kStripColumns;
          Put(values[static_cast<size_t>(r)] * block.source->scale, dtype,
              at + static_cast<int64_t>(lane), weights);
        }
      }
    }
    weights += strip.count * kStripColumns * SizeOf(dtype);
  }
  return OkStatus();
}

}  // namespace tandem
