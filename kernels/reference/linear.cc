#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/quantization.h"
#include "kernels/reference/reference_ops.h"
#include "kernels/stored_blocks.h"

namespace tandem {

namespace {

// Fills a row with the integers of row n in place of its weights, and returns their scale.
float QuantizeWeights(const StackedRows& rows, int64_t n, WeightFormat format,
                      std::span<float> row) {
  if (format == WeightFormat::kInt8) {
    std::vector<int8_t> integers(row.size());
    const float scale = ReadInt8(rows, n, row, integers.data());
    std::copy(integers.begin(), integers.end(), row.begin());
    return scale;
  }
  const auto group_size = static_cast<size_t>(GroupSize(format));
  std::vector<uint8_t> codes(row.size());
  std::vector<Int4Group> groups((row.size() + group_size - 1) / group_size);
  rows.Read(n, 0, rows.columns(), DType::kF32, row.data());
  const float scale = QuantizeInt4(row, GroupSize(format), codes.data(), groups.data());
  for (size_t i = 0; i < row.size(); ++i) {
    const Int4Group group = groups[i / group_size];
    row[i] = static_cast<float>((codes[i] - group.zero()) * group.factor());
  }
  return scale;
}

// The same for a row of activations. If one of them is not finite the scale is NaN, and so are the
// row's products.
float QuantizeActivations(const float* x, std::vector<int32_t>* integers) {
  float max = 0;
  bool is_finite = true;
  for (size_t i = 0; i < integers->size(); ++i) {
    is_finite = is_finite && std::isfinite(x[i]);
    max = std::max(max, std::abs(x[i]));
  }
  const float inverse = 127 / max;  // infinite when there is nothing to scale
  if (!is_finite || !std::isfinite(inverse)) {
    std::fill(integers->begin(), integers->end(), 0);
    return is_finite ? 0 : NAN;
  }
  for (size_t i = 0; i < integers->size(); ++i) {
    (*integers)[i] = static_cast<int32_t>(std::nearbyint(x[i] * inverse));
  }
  return max / 127;
}

// y = x W^T + bias
void Multiply(const Tensor& y, const Tensor& x, const ReferenceMatrix& w, const Tensor& bias) {
  if (w.blocks() != nullptr) return w.blocks()->Multiply(y, x, bias);
  std::vector<int32_t> integers(w.is_quantized() ? w.k() : 0);
  for (int64_t t = 0; t < x.rows(); ++t) {
    const float* x_row = x.Row<float>(t);
    const float x_scale = w.is_quantized() ? QuantizeActivations(x_row, &integers) : 1;
    for (int64_t n = 0; n < w.n(); ++n) {
      const float* w_row = w.Row(n);
      float sum = 0;
      if (w.is_quantized()) {
        int32_t products = 0;
        for (int64_t k = 0; k < w.k(); ++k) products += integers[k] * static_cast<int>(w_row[k]);
        sum = static_cast<float>(products) * (x_scale * w.scale(n));
      } else {
        for (int64_t k = 0; k < w.k(); ++k) sum += x_row[k] * w_row[k];
      }
      y.Row<float>(t)[n] = bias.empty() ? sum : sum + bias.Data<float>()[n];
    }
  }
}

const ReferencePair* PairOf(const AdapterRows& adapters, int64_t row) {
  const int32_t token =
      adapters.rows.empty() ? static_cast<int32_t>(row) : adapters.rows.Data<int32_t>()[row];
  const int32_t slot = adapters.slots.Data<int32_t>()[token];
  if (slot < 0) return nullptr;
  return static_cast<const ReferencePair*>(adapters.pairs[static_cast<size_t>(slot)]);
}

void AddPair(float* y, const float* x, const ReferencePair& pair) {
  for (const ReferencePair::Block& block : pair.blocks()) {
    std::vector<float> inner(static_cast<size_t>(block.rank));
    for (int64_t r = 0; r < block.rank; ++r) {
      for (int64_t k = 0; k < pair.k(); ++k) inner[r] += block.a[r * pair.k() + k] * x[k];
    }
    const auto rows = static_cast<int64_t>(block.b.size()) / block.rank;
    for (int64_t n = 0; n < rows; ++n) {
      float sum = 0;
      for (int64_t r = 0; r < block.rank; ++r) sum += block.b[n * block.rank + r] * inner[r];
      y[block.begin + n] += sum;
    }
  }
}

std::vector<float> Floats(const Tensor& x) {
  std::vector<float> values(static_cast<size_t>(x.NumElements()));
  ConvertTensor(Tensor(values.data(), DType::kF32, {x.shape[0], x.shape[1]}), x);
  return values;
}

}  // namespace

ReferencePair::ReferencePair(std::span<const PairSource> blocks, int64_t n, int64_t k)
    : PackedPair(n, k) {
  for (const PairSource& source : blocks) {
    Block& block = blocks_.emplace_back();
    block.begin = source.begin;
    block.rank = source.a.rows();
    block.a = Floats(source.a);
    block.b = Floats(source.b);
    for (float& value : block.b) value *= source.scale;
  }
}

int64_t ReferencePair::num_bytes() const {
  size_t count = 0;
  for (const Block& block : blocks_) count += block.a.size() + block.b.size();
  return static_cast<int64_t>(count * sizeof(float));
}

ReferenceMatrix::ReferenceMatrix(std::span<const MatrixSource> sources, WeightFormat format,
                                 bool is_gated)
    : PackedMatrix(StackedRows(sources).rows(), sources[0].columns(), is_gated) {
  format = ResolveFormat(sources, format);
  if (format == WeightFormat::kStored) {
    blocks_.emplace(sources);
    return;
  }
  const StackedRows rows(sources);
  values_.resize(static_cast<size_t>(n() * k()));
  for (int64_t i = 0; i < n(); ++i) {
    const std::span<float> row(values_.data() + i * k(), static_cast<size_t>(k()));
    if (format == WeightFormat::kCompute) {
      rows.Read(i, 0, k(), DType::kF32, row.data());
    } else {
      scales_.push_back(QuantizeWeights(rows, i, format, row));
    }
  }
}

void ReferenceOps::DoLinear(const Tensor& out, const Tensor& x, const PackedMatrix& weight,
                            const Tensor& bias, LinearEpilogue epilogue) {
  const auto& w = static_cast<const ReferenceMatrix&>(weight);
  std::vector<float> product(x.rows() * w.n());
  const Tensor y(product.data(), DType::kF32, {x.rows(), w.n()});
  Multiply(y, x, w, bias);
  StoreProduct(out, y, epilogue);
}

void ReferenceOps::StoreProduct(const Tensor& out, const Tensor& y, LinearEpilogue epilogue) {
  switch (epilogue) {
    case LinearEpilogue::kStore:
      return ConvertTensor(out, y);
    case LinearEpilogue::kAddResidual:
      return Add(out, y);
    case LinearEpilogue::kSiluAndMul:
      return SiluAndMul(out, y);
    case LinearEpilogue::kGeluAndMul:
      return GeluAndMul(out, y);
  }
}

void ReferenceOps::DoAdaptedLinear(const Tensor& out, const Tensor& x, const PackedMatrix& weight,
                                   const Tensor& bias, LinearEpilogue epilogue,
                                   const AdapterRows& adapters) {
  const auto& w = static_cast<const ReferenceMatrix&>(weight);
  std::vector<float> product(x.rows() * w.n());
  const Tensor y(product.data(), DType::kF32, {x.rows(), w.n()});
  Multiply(y, x, w, bias);
  for (int64_t t = 0; t < x.rows(); ++t) {
    const ReferencePair* pair = PairOf(adapters, t);
    if (pair != nullptr) AddPair(y.Row<float>(t), x.Row<float>(t), *pair);
  }
  StoreProduct(out, y, epilogue);
}

void ReferenceOps::DoRmsNormLinear(const Tensor& out, const Tensor& x, const Tensor& norm_weight,
                                   float epsilon, const PackedMatrix& weight, const Tensor& bias,
                                   LinearEpilogue epilogue) {
  std::vector<float> values(x.rows() * weight.k());
  const Tensor normed(values.data(), DType::kF32, {x.rows(), weight.k()});
  RmsNorm(normed, x, norm_weight, epsilon);
  Linear(out, normed, weight, bias, epilogue);
}

void ReferenceOps::DoEmbedding(const Tensor& out, const Tensor& ids, const PackedMatrix& table,
                               float scale) {
  const auto& w = static_cast<const ReferenceMatrix&>(table);
  for (int64_t t = 0; t < ids.rows(); ++t) {
    const int32_t id = ids.Data<int32_t>()[t];
    CHECK(id >= 0 && id < table.n()) << id << " of " << table.n();
    for (int64_t h = 0; h < w.k(); ++h) {
      const float weight =
          w.blocks() != nullptr ? w.blocks()->Weight(id, h) : w.Row(id)[h] * w.scale(id);
      out.Row<float>(t)[h] = weight * scale;
    }
  }
}

void ReferenceOps::DoAddAdaptedEmbedding(const Tensor& out, const Tensor& ids,
                                         const AdapterRows& adapters, float scale) {
  for (int64_t t = 0; t < ids.rows(); ++t) {
    const ReferencePair* pair = PairOf(adapters, t);
    if (pair == nullptr) continue;
    const int32_t id = ids.Data<int32_t>()[t];
    CHECK(id >= 0 && id < pair->k()) << id << " of " << pair->k();
    for (const ReferencePair::Block& block : pair->blocks()) {
      for (int64_t h = 0; h < out.shape[1]; ++h) {
        float sum = 0;
        for (int64_t r = 0; r < block.rank; ++r) {
          sum += block.b[h * block.rank + r] * block.a[r * pair->k() + id];
        }
        out.Row<float>(t)[h] += scale * sum;
      }
    }
  }
}

void ReferenceOps::DoGatherRows(const Tensor& out, const Tensor& x, const Tensor& rows) {
  for (int64_t i = 0; i < rows.rows(); ++i) {
    ConvertTensor(out.Rows(i, 1), x.Rows(rows.Data<int32_t>()[i], 1));
  }
}

}  // namespace tandem
