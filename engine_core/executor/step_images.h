#pragma once

// Images in the steps of a model: computes the rows of images with the vision tower, as many slices
// of the work as a step asks for, keeps them until a step drops them, and gives each step the rows
// that take the places of its tokens, what is added to them in the first layers, the positions that
// turn its tokens and the last keys that tokens of an image see. A step without a request with
// images has none of these. Where a device has memory of its own the rows are there, and positions
// and last keys travel with the step's other numbers (StepInputs). Thread: engine loop. Owns: the
// tower and the kept rows. Failure: memory. An image that the tower cannot compute gets NaN as its
// rows, which ends the requests with it.

#include <span>
#include <string>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include "common/status.h"
#include "engine_core/executor/image_limits.h"
#include "engine_core/executor/input_batch.h"
#include "engine_core/executor/step_layout.h"
#include "engine_core/models/stage.h"
#include "engine_core/models/vision_tower.h"
#include "kernels/device.h"

namespace tandem {

class StepImages {
 public:
  StepImages(Device* device, std::unique_ptr<VisionTower> tower, const ImageLimits& limits,
             int64_t hidden_size)
      : device_(device), tower_(std::move(tower)), limits_(limits), hidden_size_(hidden_size) {}

  // null: released, until the next call; no step has images meanwhile.
  void SetTower(std::unique_ptr<VisionTower> tower);

  // What the step drops, and then what it computes.
  Status TakeIn(const SchedulerOutput& step);
  // Of the step with this layout, valid until the next TakeIn or Fill. Rows are appended.
  void Fill(const StepLayout& layout, const InputBatch& batch, std::vector<EmbeddedRows>* rows);
  std::span<const EmbeddedRows> deepstack() const { return deepstack_; }
  const Tensor& mrope_positions() const { return mrope_positions_; }
  const Tensor& last_seen() const { return last_seen_; }
  // Whether tokens of this step see keys after them.
  bool sees_ahead() const { return sees_ahead_; }

  int64_t num_kept_rows() const;

 private:
  struct Output {
    OwnedTensor rows;  // [rows, columns] f32
    // Until all slices have been computed.
    std::shared_ptr<const ImageInput> image;
    TowerWork work;
    int32_t num_slices = 0;  // computed
  };

  Status Begin(std::shared_ptr<const ImageInput> image);
  StatusOr<TowerWork> WorkFor(const ImageInput& image, const Tensor& rows);
  void Compute(int32_t num_slices, Output* output);
  void FillWithNaN(const Tensor& rows);
  void FillNumbers(const StepLayout& layout, const InputBatch& batch);
  void AddRows(const ImageInput& image, int32_t begin, int32_t end, int64_t first_row,
               std::vector<EmbeddedRows>* rows);

  Device* device_;
  std::unique_ptr<VisionTower> tower_;
  const ImageLimits limits_;
  const int64_t hidden_size_;
  absl::flat_hash_map<std::string, Output> outputs_;  // by key
  std::vector<EmbeddedRows> deepstack_;
  std::vector<int32_t> positions_;  // [3, T]
  std::vector<int32_t> last_;       // [T]
  Tensor mrope_positions_, last_seen_;
  bool sees_ahead_ = false;
};

}  // namespace tandem
