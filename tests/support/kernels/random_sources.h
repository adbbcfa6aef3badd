#pragma once

// Matrices of random numbers in the forms that checkpoints have: GGML's blocks, codes with scales
// by groups, and codes of other kinds. Thread: the test's. Each owns the memory of its sources.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/float8.h"
#include "kernels/matrix_source.h"
#include "tests/support/kernels/kernel_cases.h"

namespace tandem {

struct Layout {
  const char* name;
  std::vector<int> halves;  // where a block has numbers in f16
};
inline const std::vector<Layout> kLayouts = {
    {"Q4_0", {0}},      {"Q4_1", {0, 2}}, {"Q5_0", {0}},    {"Q5_1", {0, 2}}, {"Q8_0", {0}},
    {"Q2_K", {80, 82}}, {"Q3_K", {108}},  {"Q4_K", {0, 2}}, {"Q5_K", {0, 2}}, {"Q6_K", {208}},
    {"IQ4_NL", {0}},    {"IQ4_XS", {0}},  {"MXFP4", {}}};

// A matrix of random bits. `is_hostile`: scales are random bits too, so also infinite, NaN or tiny.
class RandomBlocks {
 public:
  RandomBlocks(Draw& draw, const Layout& layout, int64_t n, int64_t k, bool is_hostile = false)
      : format_(FindBlockFormat(layout.name)),
        n_(n),
        row_bytes_(k / format_->size * format_->num_bytes) {
    for (int64_t i = 0; i < n * row_bytes_; ++i) {
      bytes_.push_back(static_cast<uint8_t>(draw.Int(0, 255)));
    }
    if (is_hostile) return;
    for (int64_t block = 0; block < n * k / format_->size; ++block) {
      uint8_t* const at = bytes_.data() + block * format_->num_bytes;
      for (const int half : layout.halves) {
        const int bits = draw.Int(0, 1) << 15 | draw.Int(3, 14) << 10 | draw.Int(0, 1023);
        at[half] = static_cast<uint8_t>(bits);
        at[half + 1] = static_cast<uint8_t>(bits >> 8);
      }
      if (format_->scales == GroupScales::kPower) at[0] = static_cast<uint8_t>(draw.Int(120, 128));
    }
  }

  MatrixSource source() { return {Tensor(bytes_.data(), DType::kI8, {n_, row_bytes_}), *format_}; }

 private:
  const BlockFormat* format_;
  int64_t n_;
  int64_t row_bytes_;
  std::vector<uint8_t> bytes_;
};

// Codes with scales by groups of columns, as GPTQ, AWQ and compressed-tensors have them.
class RandomCodes {
 public:
  RandomCodes(Draw& draw, int64_t n, int64_t k, int low, int high, int64_t group, bool has_zeros)
      : n_(n), k_(k), group_(group) {
    for (int64_t i = 0; i < n * k; ++i) codes_.push_back(static_cast<int8_t>(draw.Int(low, high)));
    for (int64_t i = 0; i < n * num_groups(); ++i) {
      scales_.push_back(draw.Normal() * 0.1f);
      if (has_zeros) zeros_.push_back(static_cast<float>(draw.Int(low, high)));
    }
  }
  int64_t num_groups() const { return group_ == 0 ? 1 : (k_ + group_ - 1) / group_; }
  MatrixSource source() {
    MatrixSource source(Tensor(codes_.data(), DType::kI8, {n_, k_}));
    source.scales = View(scales_, {n_, num_groups()});
    if (!zeros_.empty()) source.zeros = View(zeros_, {n_, num_groups()});
    source.group_size = group_;
    return source;
  }

 private:
  int64_t n_, k_, group_;
  std::vector<int8_t> codes_;
  std::vector<float> scales_, zeros_;
};

struct CodedCase {
  const char* name;
  CodeKind kind;
  int low, high;  // of integers
  int64_t group;  // 0: rows, -1: the columns' groups in any order
  bool has_zeros;
  double most_bits;  // at 256 columns
};
inline constexpr CodedCase kCodedCases[] = {
    {"FP8 rows", CodeKind::kFloat8, 0, 0, 0, false, 8.4},
    {"FP8 blocks", CodeKind::kFloat8, 0, 0, 128, false, 8.5},
    {"nf4", CodeKind::kTable, 0, 15, 64, false, 4.8},
    {"4 bits in activation order", CodeKind::kInteger, 0, 15, -1, true, 6.3},
    {"8 bits in activation order", CodeKind::kInteger, -128, 127, -1, true, 10.3},
    {"NVFP4", CodeKind::kInteger, -12, 12, 16, false, 6.3},
};
inline const std::vector<int8_t> kE2m1 = {0, 1, 2, 3, 4, 6, 8, 12, -1, -2, -3, -4, -6, -8, -12};

// Codes that integer products cannot take.
class RandomMatrix {
 public:
  RandomMatrix(Draw& draw, const CodedCase& kind, int64_t n, int64_t k) : n_(n), k_(k) {
    source_.group_size = std::max<int64_t>(0, kind.group);
    const int64_t num_groups = kind.group < 0    ? 4
                               : kind.group == 0 ? 1
                                                 : (k + kind.group - 1) / kind.group;
    for (int64_t i = 0; i < n * k; ++i) codes_.push_back(Code(draw, kind));
    for (int64_t i = 0; i < n * num_groups; ++i) {
      scales_.push_back(draw.Normal() * 0.1f);
      if (kind.has_zeros) zeros_.push_back(static_cast<float>(draw.Int(kind.low, kind.high)));
    }
    source_.code_kind = kind.kind;
    if (kind.group < 0) {
      for (int64_t i = 0; i < k; ++i) groups_.push_back(draw.Int(0, 3));
    }
    for (int i = 0; i < 16; ++i) table_.push_back(draw.Normal());
  }
  // The second half of the rows is another source.
  std::vector<MatrixSource> sources() {
    source_.values = Tensor(codes_.data(), DType::kI8, {n_, k_});
    const auto num_groups = static_cast<int64_t>(scales_.size()) / n_;
    source_.scales = View(scales_, {n_, num_groups});
    if (!zeros_.empty()) source_.zeros = View(zeros_, {n_, num_groups});
    if (!groups_.empty()) source_.column_groups = View(groups_, {k_});
    source_.table = source_.code_kind == CodeKind::kTable ? table_.data() : nullptr;
    return {source_.Rows(0, n_ / 2), source_.Rows(n_ / 2, n_ - n_ / 2)};
  }

 private:
  static int8_t Code(Draw& draw, const CodedCase& kind) {
    if (kind.kind == CodeKind::kFloat8) {
      const int code = draw.Int(0, 255);
      return static_cast<int8_t>(IsFloat8Nan(static_cast<uint8_t>(code)) ? 0 : code);
    }
    if (kind.group == 16) {
      return kE2m1[static_cast<size_t>(draw.Int(0, static_cast<int>(kE2m1.size()) - 1))];
    }
    return static_cast<int8_t>(draw.Int(kind.low, kind.high));
  }

  int64_t n_, k_;
  MatrixSource source_;
  std::vector<int8_t> codes_;
  std::vector<float> scales_, zeros_, table_;
  std::vector<int32_t> groups_;
};

}  // namespace tandem
