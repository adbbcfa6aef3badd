// GPTQ: qweight I32 [K bits / 32, N] holds the codes of an output along the inputs, qzeros I32
// [G, N bits / 32] and scales [G, N] those of a group, g_idx I32 [K] the group of each input.

#include <algorithm>
#include <optional>

#include "engine_core/weights/quantized/code_words.h"
#include "engine_core/weights/quantized/layouts.h"

namespace tandem {
namespace {

constexpr std::string_view kCodes = ".qweight", kZeros = ".qzeros", kScales = ".scales",
                           kGroups = ".g_idx";
constexpr int kSizes[] = {2, 3, 4, 8};

// Both the codes of an output and the zeros of a group fill their words.
std::vector<int64_t> WordsShape(MatrixShape matrix, int bits) {
  if (matrix.columns * bits % 32 != 0 || matrix.rows * bits % 32 != 0) return {};
  return {NumWords(matrix.columns, bits), matrix.rows};
}

// The size of groups of neighbours, of which the last one may have fewer: the config's, unless a
// rule of its `dynamic` has another one for this module. nullopt: none gives as many groups.
std::optional<int64_t> SizeByConfig(int64_t num_inputs, int64_t num_groups, int64_t size) {
  // No sum with the config's size, which may be any number.
  if (size > 0 && num_groups == num_inputs / size + (num_inputs % size != 0 ? 1 : 0)) return size;
  if (num_inputs % num_groups != 0) return std::nullopt;
  return num_inputs / num_groups;
}

// The group of each input.
StatusOr<std::vector<int32_t>> GroupsOf(const ModuleTensors& tensors, int64_t num_inputs,
                                        int64_t num_groups,
                                        const CheckpointQuantization& quantization) {
  std::vector<int32_t> groups(static_cast<size_t>(num_inputs));
  if (tensors.Has(kGroups)) {
    ASSIGN_OR_RETURN(const std::vector<uint32_t> stored, tensors.Words(kGroups, {num_inputs}));
    for (size_t k = 0; k < groups.size(); ++k) {
      if (stored[k] >= static_cast<uint64_t>(num_groups)) {
        return tensors.Error(kGroups, "has the group " +
                                          std::to_string(static_cast<int32_t>(stored[k])) + " of " +
                                          std::to_string(num_groups));
      }
      groups[k] = static_cast<int32_t>(stored[k]);
    }
    return groups;
  }
  if (quantization.has_activation_order && num_groups > 1) {
    return tensors.Error(kGroups, "is missing: with desc_act it lists the group of each input");
  }
  const std::optional<int64_t> size = SizeByConfig(num_inputs, num_groups, quantization.group_size);
  if (!size) {
    return tensors.Error(kScales, "has " + std::to_string(num_groups) + " groups for " +
                                      std::to_string(num_inputs) + " inputs, and no g_idx");
  }
  for (int64_t k = 0; k < num_inputs; ++k) {
    groups[static_cast<size_t>(k)] = static_cast<int32_t>(k / *size);
  }
  return groups;
}

// The size of groups that lie side by side in order; nullopt: they do not (activation order).
std::optional<int64_t> SizeOfGroups(const std::vector<int32_t>& groups, int64_t num_groups) {
  const auto num_inputs = static_cast<int64_t>(groups.size());
  const auto second = std::find_if(groups.begin(), groups.end(), [](int32_t g) { return g != 0; });
  const int64_t size = second - groups.begin();
  if (size == 0 || (num_inputs + size - 1) / size > num_groups) return std::nullopt;
  for (int64_t k = 0; k < num_inputs; ++k) {
    if (groups[static_cast<size_t>(k)] != k / size) return std::nullopt;
  }
  return size;
}

struct GroupTable {
  std::vector<float> scales;  // [G, N]
  std::vector<float> zeros;   // [G, N]
};

StatusOr<GroupTable> ReadGroups(const ModuleTensors& tensors, int64_t num_groups, int64_t rows,
                                int bits, bool zeros_are_less_one) {
  GroupTable table;
  ASSIGN_OR_RETURN(table.scales, tensors.Floats(kScales, {num_groups, rows}));
  const int64_t words_per_group = NumWords(rows, bits);
  ASSIGN_OR_RETURN(const std::vector<uint32_t> words,
                   tensors.Words(kZeros, {num_groups, words_per_group}));
  const uint32_t mask = (1u << bits) - 1;
  for (int64_t g = 0; g < num_groups; ++g) {
    for (int64_t n = 0; n < rows; ++n) {
      uint32_t zero = CodeAt(words.data() + g * words_per_group, n, bits);
      if (zeros_are_less_one) zero = (zero + 1) & mask;
      table.zeros.push_back(static_cast<float>(SignedCode(zero, bits)));
    }
  }
  return table;
}

}  // namespace

StatusOr<DecodedMatrix> DecodeGptq(const ModuleTensors& tensors, MatrixShape shape,
                                   const CheckpointQuantization& quantization) {
  const int64_t rows = shape.rows, columns = shape.columns;
  ASSIGN_OR_RETURN(const StoredTensor stored, tensors.Get(kCodes, "I32"));
  ASSIGN_OR_RETURN(const int bits, BitsOf(tensors, kCodes, stored, shape, kSizes, WordsShape));
  const std::vector<uint32_t> words = WordsOf(stored);
  // Each input has its group's scale, so their number is that of the table's rows.
  ASSIGN_OR_RETURN(const StoredTensor zeros, tensors.Get(kZeros, "I32"));
  const int64_t num_groups = zeros.shape().empty() ? 0 : zeros.shape()[0];
  if (num_groups < 1 || num_groups > columns) {
    return tensors.Error(kZeros, "has " + std::to_string(num_groups) + " groups for " +
                                     std::to_string(columns) + " inputs");
  }
  ASSIGN_OR_RETURN(const GroupTable table,
                   ReadGroups(tensors, num_groups, rows, bits, quantization.zeros_are_less_one));
  ASSIGN_OR_RETURN(const std::vector<int32_t> groups,
                   GroupsOf(tensors, columns, num_groups, quantization));
  const std::optional<int64_t> group_size = SizeOfGroups(groups, num_groups);

  const auto code_at = [&](int64_t n, int64_t k) {
    return SignedCode(CodeAt(words.data() + n, k, bits, rows), bits);
  };
  DecodedMatrix codes(DType::kI8, rows, columns);
  if (!group_size) {
    codes.column_groups = groups;
  } else if (*group_size != columns) {
    codes.group_size = *group_size;
  }
  // In tiles of outputs, because the words of neighbouring outputs are neighbours.
  constexpr int64_t kTile = 64;
  for (int64_t begin = 0; begin < rows; begin += kTile) {
    for (int64_t k = 0; k < columns; ++k) {
      for (int64_t n = begin; n < std::min(rows, begin + kTile); ++n) {
        codes.Row<int8_t>(n)[k] = static_cast<int8_t>(code_at(n, k));
      }
    }
  }
  const int64_t used_groups = group_size ? codes.num_groups() : num_groups;
  for (int64_t n = 0; n < rows; ++n) {
    for (int64_t g = 0; g < used_groups; ++g) {
      codes.scales.push_back(table.scales[static_cast<size_t>(g * rows + n)]);
      codes.zeros.push_back(table.zeros[static_cast<size_t>(g * rows + n)]);
    }
  }
  return codes;
}

}  // namespace tandem
