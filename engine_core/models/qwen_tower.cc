#include "engine_core/models/qwen_tower.h"

#include <algorithm>
#include <cmath>

#include "engine_core/models/rotation.h"

namespace tandem {
namespace {

constexpr int64_t kMaxGrid = 1 << 15;

}  // namespace

std::vector<PatchPlace> PlacesOfPatches(int32_t grid_h, int32_t grid_w, int64_t merge_size) {
  const auto side = static_cast<int32_t>(merge_size);
  std::vector<PatchPlace> places;
  places.reserve(static_cast<size_t>(grid_h) * static_cast<size_t>(grid_w));
  for (int32_t top = 0; top < grid_h; top += side) {
    for (int32_t left = 0; left < grid_w; left += side) {
      for (int32_t row = top; row < top + side; ++row) {
        for (int32_t column = left; column < left + side; ++column) {
          places.push_back({row, column});
        }
      }
    }
  }
  return places;
}

PatchAngles AnglesOf(const std::vector<PatchPlace>& places, int64_t head_dim) {
  const int64_t of_row = head_dim / 4;
  std::vector<float> frequencies;
  for (int64_t i = 0; i < of_row; ++i) {
    const double part = static_cast<double>(i) / static_cast<double>(of_row);
    frequencies.push_back(static_cast<float>(std::pow(10000.0, -part)));
  }
  int32_t most = -1;
  for (const PatchPlace& place : places) most = std::max({most, place.row, place.column});
  PatchAngles by_position;
  for (int32_t position = 0; position <= most; ++position) {
    for (const float frequency : frequencies) {
      const Rotation rotation = RotationBy(static_cast<float>(position) * frequency);
      by_position.cos.push_back(rotation.cos);
      by_position.sin.push_back(rotation.sin);
    }
  }
  PatchAngles angles;
  const auto append = [&](const std::vector<float>& from, int32_t position,
                          std::vector<float>* to) {
    const auto first = from.begin() + position * of_row;
    to->insert(to->end(), first, first + of_row);
  };
  for (const PatchPlace& place : places) {
    for (const int32_t position : {place.row, place.column}) {
      append(by_position.cos, position, &angles.cos);
      append(by_position.sin, position, &angles.sin);
    }
  }
  return angles;
}

std::string QwenTowerPrefix(const Weights& weights) {
  return weights.Has("visual.patch_embed.proj.weight") ? "visual" : "model.visual";
}

Status CheckQwenImage(const VisionConfig& config, const ImagePatches& image) {
  const auto is_side = [&](int32_t size) {
    return size > 0 && size <= kMaxGrid && size % config.merge_size == 0;
  };
  if (image.grid_t != 1 || !is_side(image.grid_h) || !is_side(image.grid_w)) {
    return InvalidArgumentError("an image's grid is [" + std::to_string(image.grid_t) + ", " +
                                std::to_string(image.grid_h) + ", " + std::to_string(image.grid_w) +
                                "], must be 1 and two multiples of " +
                                std::to_string(config.merge_size) + " up to " +
                                std::to_string(kMaxGrid));
  }
  const Tensor& pixels = image.pixels;
  const int64_t patches = int64_t{image.grid_h} * image.grid_w;
  if (pixels.dtype == DType::kF32 && pixels.rank == 2 && pixels.shape[0] == patches &&
      pixels.shape[1] == config.patch_numbers() && pixels.IsContiguous()) {
    return OkStatus();
  }
  return InvalidArgumentError("an image's pixel_values must be float32[" + std::to_string(patches) +
                              ", " + std::to_string(config.patch_numbers()) + "]");
}

StatusOr<PatchMerger> LoadPatchMerger(const LoadContext& context, const VisionConfig& config,
                                      const std::string& norm, const std::string& up,
                                      const std::string& down, bool norms_merged,
                                      bool has_rms_norm) {
  const int64_t merged = config.hidden_size * config.merge_size * config.merge_size;
  PatchMerger merger;
  merger.norms_merged = norms_merged;
  ASSIGN_OR_RETURN(
      merger.norm,
      LoadTowerNorm(context, norm, norms_merged ? merged : config.hidden_size, has_rms_norm));
  ASSIGN_OR_RETURN(merger.up, LoadTowerLinear(context, {up}, merged, merged));
  ASSIGN_OR_RETURN(merger.down, LoadTowerLinear(context, {down}, config.out_size, merged));
  return merger;
}

Status RunPatchMerger(Backend* backend, const PatchMerger& merger, const Tensor& x, float epsilon,
                      const Tensor& out) {
  Device& device = backend->device();
  Ops& ops = backend->ops();
  const DType act = backend->activation_dtype();
  const int64_t tokens = out.rows(), merged = merger.up.weight->k();
  ASSIGN_OR_RETURN(const OwnedTensor normed, device.Allocate(act, {tokens, merged}));
  ASSIGN_OR_RETURN(const OwnedTensor inner, device.Allocate(act, {tokens, merged}));
  // The rows of a merged one follow each other.
  const int64_t of_norm = merger.norms_merged ? merged : x.shape[1];
  const int64_t num_norms = tokens * merged / of_norm;
  TowerNorm(&ops, Tensor(normed.view().data, act, {num_norms, of_norm}),
            Tensor(x.data, x.dtype, {num_norms, of_norm}), merger.norm, epsilon);
  ops.Linear(inner, normed, *merger.up.weight, merger.up.bias);
  ops.Activate(inner, inner, Nonlinearity::kErfGelu);
  ops.Linear(out, inner, *merger.down.weight, merger.down.bias);
  return OkStatus();
}

void AddPatchMerger(Backend* backend, const PatchMerger& merger,
                    const std::shared_ptr<TowerRun>& run, float epsilon, const Tensor& out,
                    TowerWork* work) {
  const int64_t of_cell = run->residual().rows() / out.rows();
  const auto row_work = static_cast<double>(merger.up.weight->k()) *
                        static_cast<double>(merger.up.weight->n() + merger.down.weight->n());
  work->Add(out.rows(), row_work, [=, &merger](int64_t begin, int64_t count) {
    const Tensor x = run->residual().Rows(begin * of_cell, count * of_cell);
    return RunPatchMerger(backend, merger, x, epsilon, out.Rows(begin, count));
  });
}

}  // namespace tandem
