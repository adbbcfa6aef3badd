#include "engine_core/weights/stored_matrix.h"

#include <vector>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

// Every tensor has the number 100 matrix + 10 row + column at each place.
class CountedWeights final : public Weights {
 public:
  StatusOr<WeightTensor> Get(std::string_view name, int64_t rows, int64_t columns) override {
    names_.emplace_back(name);
    return Matrix(0, rows, columns);
  }
  StatusOr<WeightTensor> GetFromStack(std::string_view name, int64_t index, int64_t /*count*/,
                                      int64_t rows, int64_t columns) override {
    names_.emplace_back(name);
    return Matrix(index, rows, columns);
  }
  bool Has(std::string_view /*name*/) const override { return true; }
  const std::vector<std::string>& names() const { return names_; }

 private:
  static WeightTensor Matrix(int64_t index, int64_t rows, int64_t columns) {
    std::vector<std::byte> memory(static_cast<size_t>(rows * columns) * sizeof(float));
    auto* values = reinterpret_cast<float*>(memory.data());
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t column = 0; column < columns; ++column) {
        values[row * columns + column] = static_cast<float>(100 * index + 10 * row + column);
      }
    }
    return WeightTensor(Tensor(nullptr, DType::kF32, {rows, columns}), std::move(memory));
  }

  std::vector<std::string> names_;
};

using Rows = std::vector<std::vector<float>>;

Rows Load(const StoredMatrix& stored) {
  CountedWeights weights;
  const auto matrix = LoadMatrix(weights, CheckpointQuantization(), stored);
  REQUIRE(matrix.ok());
  CHECK(weights.names() ==
        std::vector<std::string>{stored.stack_size > 0 ? stored.name : stored.name + ".weight"});
  const MatrixSource& source = matrix->source();
  Rows rows;
  for (int64_t n = 0; n < source.rows(); ++n) {
    rows.emplace_back(static_cast<size_t>(source.columns()));
    source.Read(n, 0, source.columns(), DType::kF32, rows.back().data());
  }
  return rows;
}

TEST_CASE("stored matrix: the whole, its rows and its columns") {
  StoredMatrix stored = {.name = "m", .rows = 3, .columns = 4};
  CHECK(Load(stored) == Rows{{0, 1, 2, 3}, {10, 11, 12, 13}, {20, 21, 22, 23}});
  stored.row_slice = Slice{1, 2};
  CHECK(Load(stored) == Rows{{10, 11, 12, 13}, {20, 21, 22, 23}});
  stored.column_slice = Slice{2, 1};
  CHECK(Load(stored) == Rows{{12}, {22}});
}

TEST_CASE("stored matrix: one that is stored by columns, and its slices") {
  StoredMatrix stored = {.name = "m", .rows = 3, .columns = 2, .is_transposed = true};
  CHECK(Load(stored) == Rows{{0, 10}, {1, 11}, {2, 12}});
  stored.row_slice = Slice{1, 2};
  CHECK(Load(stored) == Rows{{1, 11}, {2, 12}});
  stored.column_slice = Slice{1, 1};
  CHECK(Load(stored) == Rows{{11}, {12}});
}

TEST_CASE("stored matrix: rows of one matrix of a stack") {
  CHECK(Load({.name = "s",
              .rows = 2,
              .columns = 2,
              .row_slice = Slice{1, 1},
              .stack_idx = 4,
              .stack_size = 5}) == Rows{{410, 411}});
}

TEST_CASE("stored matrix: a part keeps the memory of its tensor") {
  CountedWeights weights;
  std::vector<LoadedMatrix> matrices;
  for (int64_t i = 0; i < 5; ++i) {
    matrices.push_back(
        LoadMatrix(weights, {}, {.name = "m", .rows = 8, .columns = 8, .row_slice = Slice{i, 1}})
            .value());
  }
  for (int64_t i = 0; i < 5; ++i) {
    CHECK(matrices[static_cast<size_t>(i)].source().values.Row<float>(0)[7] ==
          static_cast<float>(10 * i + 7));
  }
}

}  // namespace
}  // namespace tandem
