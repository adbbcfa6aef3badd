#pragma once

// The vision tower of a model: turns an image, cut into patches, into rows that stand in the places
// of its placeholder tokens.
// Thread: engine loop. Owns: packed weights; what an image needs is allocated while it runs.
// Promise: the bits of an image's rows depend on that image alone.
// Failure: of Check INVALID_ARGUMENT, which is the request's; else memory, or what Check says.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "common/status.h"
#include "engine_core/models/load_context.h"
#include "engine_core/models/tower_work.h"

namespace tandem {

struct ImagePatches {
  // f32, host, contiguous. Qwen: [patches, 3 * 2 * p * p], those of a merged row one after another,
  // each by colour, time, y, x. SigLIP: [1, 3, h, w].
  Tensor pixels;
  int32_t grid_t = 1, grid_h = 1, grid_w = 1;  // Qwen: in patches, before they are merged
};

class VisionTower {
 public:
  virtual ~VisionTower() = default;

  // Whether the shapes fit the model.
  virtual Status Check(const ImagePatches& image) const = 0;
  // Rows of the image, one for each placeholder.  REQUIRES: Check is OK.
  virtual int64_t NumTokens(const ImagePatches& image) const = 0;
  // Hidden size * (1 + levels): a row has its embedding, then what is added to it after the text
  // layers 0, 1, ...
  virtual int64_t num_columns() const = 0;
  // What computes the rows.  out: [tokens, num_columns] f32, in backend memory. Both are read and
  // written until the work is done.
  virtual StatusOr<TowerWork> Begin(const ImagePatches& image, const Tensor& out) = 0;
  // All of it.
  Status Encode(const ImagePatches& image, const Tensor& out) {
    ASSIGN_OR_RETURN(TowerWork work, Begin(image, out));
    return work.RunTo(1);
  }

  // Called with the numbers between its parts: "patch_embed", "vit_block0", "vit_last", "merger".
  // To compare a tower with another implementation.
  using Tap = std::function<void(const std::string& stage, const Tensor& x)>;
  void SetTap(Tap tap) { tap_ = std::move(tap); }

 protected:
  void Report(const std::string& stage, const Tensor& x) const {
    if (tap_) tap_(stage, x);
  }
  // A stage of the work that does, of what x() is by then.
  void AddReport(const std::string& stage, std::function<Tensor()> x, TowerWork* work) const {
    if (!tap_) return;
    work->AddRuns({1}, 0, [this, stage, x = std::move(x)](int64_t, int64_t) {
      Report(stage, x());
      return OkStatus();
    });
  }

 private:
  Tap tap_;
};

// Null: the architecture has none. UNIMPLEMENTED: a model in several ranks or stages.
StatusOr<std::unique_ptr<VisionTower>> LoadVisionTower(const LoadContext& context);

}  // namespace tandem
