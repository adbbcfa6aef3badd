// The ops with adapters: the rows of each adapter are multiplied with its A together, and what B
// makes of these sums is added where the sums of the matrix itself are stored.

#include <algorithm>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/cpu_pair.h"

namespace tandem {
namespace {

// The slot of a row whose adapter changes the matrix; -1: there is none.
int32_t SlotOf(const AdapterRows& adapters, int64_t row) {
  const int32_t token =
      adapters.rows.empty() ? static_cast<int32_t>(row) : adapters.rows.Data<int32_t>()[row];
  CHECK(token >= 0 && token < adapters.slots.rows()) << token << adapters.slots;
  const int32_t slot = adapters.slots.Data<int32_t>()[token];
  CHECK_LT(slot, static_cast<int32_t>(adapters.pairs.size()));
  return slot >= 0 && adapters.pairs[static_cast<size_t>(slot)] != nullptr ? slot : -1;
}

const CpuPair& PairAt(const AdapterRows& adapters, size_t slot) {
  return static_cast<const CpuPair&>(*adapters.pairs[slot]);
}

}  // namespace

// Rows by slot, and in each slot in their order.
void CpuOps::AdapterBatch::Sort(const AdapterRows& adapters, int64_t num_rows) {
  begin.assign(adapters.pairs.size() + 1, 0);
  slots.resize(static_cast<size_t>(num_rows));
  for (int64_t row = 0; row < num_rows; ++row) {
    const int32_t slot = slots[static_cast<size_t>(row)] = SlotOf(adapters, row);
    if (slot >= 0) ++begin[static_cast<size_t>(slot) + 1];
  }
  for (size_t slot = 1; slot < begin.size(); ++slot) begin[slot] += begin[slot - 1];
  order.resize(begin.back());
  next = begin;
  for (int64_t row = 0; row < num_rows; ++row) {
    const int32_t slot = slots[static_cast<size_t>(row)];
    if (slot >= 0) order[next[static_cast<size_t>(slot)]++] = row;
  }
}

const AdapterTerm* CpuOps::AdapterTerms(const Tensor& x, const AdapterRows& adapters) {
  constexpr size_t kRowsOfPiece = 32;
  constexpr int64_t kRanksOfPiece = 8;
  AdapterBatch& batch = adapter_batch_;
  batch.Sort(adapters, x.rows());
  int64_t num_sums = 0;
  for (size_t slot = 0; slot + 1 < batch.begin.size(); ++slot) {
    const auto count = static_cast<int64_t>(batch.begin[slot + 1] - batch.begin[slot]);
    if (count > 0) num_sums += count * PairAt(adapters, slot).rank();
  }
  if (num_sums == 0) return nullptr;
  if (batch.memory.view().NumElements() < num_sums) {
    batch.memory = AllocateScratch(DType::kF32, num_sums);
  }
  auto* sums = batch.memory.view().Data<float>();
  batch.terms.assign(static_cast<size_t>(x.rows()), {});
  batch.rows.resize(batch.order.size());
  batch.sums.resize(batch.order.size());
  batch.pieces.clear();
  for (size_t slot = 0; slot + 1 < batch.begin.size(); ++slot) {
    const size_t begin = batch.begin[slot], end = batch.begin[slot + 1];
    if (begin == end) continue;
    const CpuPair& pair = PairAt(adapters, slot);
    for (size_t i = begin; i < end; ++i, sums += pair.rank()) {
      const int64_t row = batch.order[i];
      batch.rows[i] = x.Rows(row, 1).data;
      batch.sums[i] = sums;
      batch.terms[static_cast<size_t>(row)] = {pair.strips(), sums};
    }
    for (size_t row = begin; row < end; row += kRowsOfPiece) {
      for (int64_t rank = 0; rank < pair.rank(); rank += kRanksOfPiece) {
        batch.pieces.push_back(
            {.a = pair.a().data,
             .k = pair.k(),
             .begin = rank,
             .end = std::min(rank + kRanksOfPiece, pair.rank()),
             .rows = batch.rows.data() + row,
             .sums = batch.sums.data() + row,
             .num_rows = static_cast<int64_t>(std::min(kRowsOfPiece, end - row))});
      }
    }
  }
  const int64_t rows_of_piece = batch.pieces.front().num_rows;
  // 16 bytes of A per ns, or 32 multiplications.
  const int64_t piece_ns = kRanksOfPiece * x.shape[1] / 32 * (3 + rows_of_piece) / 2;
  ForEach(static_cast<int64_t>(batch.pieces.size()), piece_ns,
          [&](int64_t begin, int64_t end, int) {
            for (int64_t i = begin; i < end; ++i) {
              kernels().adapter_inputs(batch.pieces[static_cast<size_t>(i)]);
            }
          });
  return batch.terms.data();
}

void CpuOps::DoAdaptedLinear(const Tensor& out, const Tensor& x, const PackedMatrix& weight,
                             const Tensor& bias, LinearEpilogue epilogue,
                             const AdapterRows& adapters) {
  RunAnyLinear(out, x, weight, bias, epilogue, AdapterTerms(x, adapters));
}

void CpuOps::DoAdaptedExpertLinear(const Tensor& out, const Tensor& x, const PackedExperts& experts,
                                   const ExpertPairs& pairs, LinearEpilogue epilogue,
                                   const AdapterRows& adapters) {
  const auto* begin = pairs.begin.Data<int32_t>();
  const size_t num_slots = adapters.pairs.size() / static_cast<size_t>(experts.size());
  for (int64_t e = 0; e < experts.size(); ++e) {
    const int64_t count = begin[e + 1] - begin[e];
    if (count == 0) continue;
    AdapterRows own = adapters;
    own.rows = adapters.rows.Rows(begin[e], count);
    own.pairs = adapters.pairs.subspan(static_cast<size_t>(e) * num_slots, num_slots);
    AdaptedLinear(out.Rows(begin[e], count), x.Rows(begin[e], count), experts.expert(e), {},
                  epilogue, own);
  }
}

void CpuOps::DoAddAdaptedEmbedding(const Tensor& out, const Tensor& ids,
                                   const AdapterRows& adapters, float scale) {
  ForEach(ids.rows(), out.shape[1], [&](int64_t begin, int64_t end, int thread) {
    for (int64_t t = begin; t < end; ++t) {
      const int32_t slot = SlotOf(adapters, t);
      if (slot < 0) continue;
      const CpuPair& pair = PairAt(adapters, static_cast<size_t>(slot));
      const int32_t id = ids.Data<int32_t>()[t];
      CHECK(id >= 0 && id < pair.k()) << id << " of " << pair.k();
      float* inputs = Scratch(thread, pair.rank());
      ConvertTensor(Tensor(inputs, DType::kF32, {1, pair.rank()}), pair.a().Rows(id, 1));
      kernels().add_adapter_term(out.Row<float>(t), {pair.strips(), inputs}, scale, out.shape[1]);
    }
  });
}

}  // namespace tandem
