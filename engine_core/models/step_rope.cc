#include "engine_core/models/step_rope.h"

#include <array>
#include <numeric>

namespace tandem {

std::vector<int> AxesOfPairs(const RopeConfig& rope, int64_t num_pairs) {
  std::vector<int> axes(static_cast<size_t>(num_pairs), 0);
  if (rope.has_interleaved_sections) {
    for (const int axis : {1, 2}) {
      const int64_t end = 3 * rope.sections[static_cast<size_t>(axis)];
      for (int64_t pair = axis; pair < end && pair < num_pairs; pair += 3) {
        axes[static_cast<size_t>(pair)] = axis;
      }
    }
    return axes;
  }
  const int64_t height = rope.sections[0], width = height + rope.sections[1];
  for (int64_t pair = 0; pair < num_pairs; ++pair) {
    axes[static_cast<size_t>(pair)] = pair < height ? 0 : pair < width ? 1 : 2;
  }
  return axes;
}

StatusOr<StepRope> StepRope::Create(const LoadContext& context) {
  const int64_t tokens = context.limits.max_tokens, pairs = context.config.rotary_dim / 2;
  Device& device = context.backend.device();
  StepRope rope;
  rope.axes_ = AxesOfPairs(context.config.rope, pairs);
  if (!device.memory_is_host()) return rope;  // where towers are not built
  ASSIGN_OR_RETURN(rope.cos_, device.Allocate(DType::kF32, {tokens, pairs}));
  ASSIGN_OR_RETURN(rope.sin_, device.Allocate(DType::kF32, {tokens, pairs}));
  ASSIGN_OR_RETURN(rope.rows_, device.Allocate(DType::kI32, {tokens}));
  auto* rows = rope.rows_.view().Data<int32_t>();
  std::iota(rows, rows + tokens, 0);
  return rope;
}

StepRope::Angles StepRope::Fill(const Tensor& cos, const Tensor& sin, const Tensor& positions) {
  const int64_t tokens = positions.shape[1];
  const Angles angles = {cos_.view().Rows(0, tokens), sin_.view().Rows(0, tokens),
                         rows_.view().Rows(0, tokens)};
  for (int64_t t = 0; t < tokens; ++t) {
    std::array<int64_t, 3> at;
    for (int64_t axis = 0; axis < 3; ++axis) {
      const int32_t position = positions.Row<int32_t>(axis)[t];
      CHECK(position >= 0 && position < cos.rows()) << position << " of " << cos.rows();
      at[static_cast<size_t>(axis)] = position;
    }
    for (size_t pair = 0; pair < axes_.size(); ++pair) {
      const int64_t row = at[static_cast<size_t>(axes_[pair])];
      angles.cos.Row<float>(t)[pair] = cos.Row<float>(row)[pair];
      angles.sin.Row<float>(t)[pair] = sin.Row<float>(row)[pair];
    }
  }
  return angles;
}

}  // namespace tandem
