#pragma once

// Panels of codes (coded_panel.h) made into numbers, on the vec_*.h of the including isa_*.cc.

#include "kernels/cpu/coded_panel.h"
#include "kernels/cpu/float8_kernels.h"
#include "kernels/cpu/linear_kernels.h"

namespace tandem {
namespace {

// 16 numbers of row k of a panel, before zero and scale; codes: where the panel has the row's.
template <CodeKind kKind, int kBits>
inline Vec CodeNumbers(const uint8_t* codes, int64_t k, const float* table) {
  if constexpr (kKind == CodeKind::kFloat8) {
    return LoadFiniteFloat8s(codes);
  } else if constexpr (kBits == 8) {
    return LoadBytes(reinterpret_cast<const int8_t*>(codes));
  } else {
    const Units code = AndUnits(ShiftRight(WidenBytes(codes), k % 2 == 0 ? 0 : 4), 15);
    return kKind == CodeKind::kTable ? LookUpFloats(code, table) : FromInts(FloatsOf(code), 0);
  }
}

// What is taken from and multiplied with the numbers of 16 columns.
struct GroupScale {
  int32_t group = -1;
  Vec scale, zero;
};

template <class Type, CodeKind kKind, int kBits>
void DecodePanelAs(const CodedTask& task, uint32_t* units) {
  const CodedShape& shape = *task.shape;
  const auto* const scales = reinterpret_cast<const float*>(task.panel);
  const float* const zeros = scales + shape.num_groups * kPanelColumns;
  const uint8_t* const codes = task.panel + shape.CodesBegin();
  // Of 16 columns from c on. Neighbouring rows are mostly of one group, whose scale stays loaded.
  const auto numbers = [&](int64_t k, int c, GroupScale* current) {
    if (task.groups[k] != current->group) {
      current->group = task.groups[k];
      const int64_t at = int64_t{current->group} * kPanelColumns + c;
      current->scale = Load(scales + at);
      if (shape.has_zeros) current->zero = Load(zeros + at);
    }
    const uint8_t* const from = codes + (kBits == 4 ? k / 2 : k) * kPanelColumns + c;
    Vec number = CodeNumbers<kKind, kBits>(from, k, task.table);
    if (shape.has_zeros) number = Sub(number, current->zero);
    return Mul(number, current->scale);
  };
  for (int c = 0; c < kPanelColumns; c += kVecLanes) {
    GroupScale current = {.scale = Zero(), .zero = Zero()};
    for (int64_t k = 0; k < shape.k; k += Type::kStep) {
      uint32_t* const to = units + k / Type::kStep * kPanelColumns + c;
      const Vec first = numbers(k, c, &current);
      if constexpr (Type::kStep == 1) {
        StoreUnits(to, UnitsOf(first));
      } else {
        StoreUnits(to, Bf16Pairs(first, k + 1 < shape.k ? numbers(k + 1, c, &current) : Zero()));
      }
    }
  }
}

// units: a panel of the compute type, as LinearTask has them.
template <class Type>
void DecodePanel(const CodedTask& task, uint32_t* units) {
  using enum CodeKind;
  const bool is_half = task.shape->bits == 4;
  switch (task.shape->kind) {
    case kFloat8:
      return DecodePanelAs<Type, kFloat8, 8>(task, units);
    case kTable:
      return DecodePanelAs<Type, kTable, 4>(task, units);
    case kInteger:
      return is_half ? DecodePanelAs<Type, kInteger, 4>(task, units)
                     : DecodePanelAs<Type, kInteger, 8>(task, units);
  }
}

}  // namespace
}  // namespace tandem
