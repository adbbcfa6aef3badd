#include "engine_core/models/step_rope.h"

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
  StepRope rope(&context.backend.ops());
  std::vector<int> axes = AxesOfPairs(context.config.rope, pairs);
  ASSIGN_OR_RETURN(rope.axes_,
                   device.Upload(Tensor(axes.data(), DType::kI32, {pairs}), DType::kI32));
  ASSIGN_OR_RETURN(rope.cos_, device.Allocate(DType::kF32, {tokens, pairs}));
  ASSIGN_OR_RETURN(rope.sin_, device.Allocate(DType::kF32, {tokens, pairs}));
  std::vector<int32_t> rows(static_cast<size_t>(tokens));
  std::iota(rows.begin(), rows.end(), 0);
  ASSIGN_OR_RETURN(rope.rows_,
                   device.Upload(Tensor(rows.data(), DType::kI32, {tokens}), DType::kI32));
  return rope;
}

StepRope::Angles StepRope::Fill(const Tensor& cos, const Tensor& sin, const Tensor& positions) {
  const int64_t tokens = positions.shape[1];
  const Angles angles = {cos_.view().Rows(0, tokens), sin_.view().Rows(0, tokens),
                         rows_.view().Rows(0, tokens)};
  ops_->GatherAngles(angles.cos, cos, positions, axes_);
  ops_->GatherAngles(angles.sin, sin, positions, axes_);
  return angles;
}

}  // namespace tandem
