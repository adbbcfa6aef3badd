#include "kernels/packed_matrix.h"

#include "common/check.h"

namespace tandem {

PackedExperts::PackedExperts(std::vector<std::unique_ptr<PackedMatrix>> experts)
    : experts_(std::move(experts)) {
  CHECK(!experts_.empty());
  for (const auto& matrix : experts_) {
    CHECK_EQ(matrix->n(), expert(0).n());
    CHECK_EQ(matrix->k(), expert(0).k());
    CHECK_EQ(matrix->is_gated(), expert(0).is_gated());
  }
}

}  // namespace tandem
