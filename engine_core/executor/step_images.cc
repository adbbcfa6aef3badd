#include "engine_core/executor/step_images.h"

#include <algorithm>
#include <limits>

#include "common/check.h"
#include "common/log.h"
#include "engine_core/executor/last_seen.h"
#include "engine_core/executor/mrope_positions.h"

namespace tandem {
namespace {

// A view that is only read.
ImagePatches PatchesOf(const ImageInput& image) {
  auto* numbers = const_cast<float*>(image.pixels.data());
  const std::vector<int64_t>& shape = image.shape;
  CHECK(shape.size() == 2 || shape.size() == 4) << image.key;
  return {.pixels = shape.size() == 2
                        ? Tensor(numbers, DType::kF32, {shape[0], shape[1]})
                        : Tensor(numbers, DType::kF32, {shape[0], shape[1], shape[2], shape[3]}),
          .grid_t = image.grid_t,
          .grid_h = image.grid_h,
          .grid_w = image.grid_w};
}

}  // namespace

void StepImages::SetTower(std::unique_ptr<VisionTower> tower) {
  // The scheduler goes on with none of them.
  absl::erase_if(outputs_, [](const auto& output) { return output.second.image != nullptr; });
  tower_ = std::move(tower);
}

Status StepImages::TakeIn(const SchedulerOutput& step) {
  for (const std::string& key : step.dropped_encoder_outputs) outputs_.erase(key);
  for (const EncoderInput& input : step.encoder_inputs) {
    if (input.image != nullptr) RETURN_IF_ERROR(Begin(input.image));
    const auto output = outputs_.find(input.key);
    CHECK(output != outputs_.end() && output->second.image != nullptr)
        << input.key << " is not under way";
    Compute(input.num_slices, &output->second);
  }
  return OkStatus();
}

Status StepImages::Begin(std::shared_ptr<const ImageInput> image) {
  CHECK(tower_ != nullptr) << "the tower is released";
  Output& output = outputs_[image->key];
  ASSIGN_OR_RETURN(output.rows,
                   device_->Allocate(DType::kF32, {image->num_rows, tower_->num_columns()}));
  output.image = std::move(image);
  output.num_slices = 0;
  StatusOr<TowerWork> work = WorkFor(*output.image, output.rows);
  if (!work.ok()) work = TowerWork(work.status());
  output.work = *std::move(work);
  return OkStatus();
}

StatusOr<TowerWork> StepImages::WorkFor(const ImageInput& image, const Tensor& rows) {
  const ImagePatches patches = PatchesOf(image);
  RETURN_IF_ERROR(tower_->Check(patches));
  if (tower_->NumTokens(patches) != image.num_rows) {
    return InternalError("it has another number of rows");
  }
  return tower_->Begin(patches, rows);
}

void StepImages::Compute(int32_t num_slices, Output* output) {
  const ImageInput& image = *output->image;
  output->num_slices += num_slices;
  const bool is_last = output->num_slices >= image.num_slices;
  const Status done = output->work.RunTo(is_last ? 1
                                                 : static_cast<double>(output->num_slices) /
                                                       static_cast<double>(image.num_slices));
  if (!is_last) return;
  if (!done.ok()) {
    LOG_ERROR << "image " << image.key << " cannot be computed: " << done.ToString();
    FillWithNaN(output->rows);
  }
  output->work = {};
  output->image.reset();
}

void StepImages::FillWithNaN(const Tensor& rows) {
  std::vector<float> numbers(static_cast<size_t>(rows.RowSize()),
                             std::numeric_limits<float>::quiet_NaN());
  const Tensor row(numbers.data(), rows.dtype, {1, rows.RowSize()});
  for (int64_t i = 0; i < rows.rows(); ++i) device_->CopyIn(rows.Rows(i, 1), row);
}

void StepImages::Fill(const StepLayout& layout, const InputBatch& batch,
                      std::vector<EmbeddedRows>* rows) {
  deepstack_.clear();
  mrope_positions_ = last_seen_ = {};
  sees_ahead_ = false;
  bool has_images = false;
  for (size_t r = 0; r < layout.requests.size(); ++r) {
    const ScheduledRequest& request = layout.requests[r];
    const RequestImages* images = batch.row(request.slot).images.get();
    if (images == nullptr) continue;
    has_images = true;
    const int32_t begin = request.num_computed_tokens;
    const int32_t end = begin + request.num_scheduled_tokens;
    for (const auto& image : *images) {
      if (!image->HasRowsIn(begin, end)) continue;
      AddRows(*image, begin, end, layout.query_start[r], rows);
      sees_ahead_ = limits_.are_whole;
    }
  }
  if (has_images && device_->memory_is_host()) FillNumbers(layout, batch);
}

void StepImages::FillNumbers(const StepLayout& layout, const InputBatch& batch) {
  const auto num_tokens = static_cast<size_t>(layout.num_tokens());
  if (limits_.have_positions) positions_.resize(3 * num_tokens);
  if (limits_.are_whole) last_.resize(num_tokens);
  const std::span<int32_t> all(positions_), last(last_);
  for (size_t r = 0; r < layout.requests.size(); ++r) {
    const ScheduledRequest& request = layout.requests[r];
    const RequestImages* images = batch.row(request.slot).images.get();
    const int32_t begin = request.num_computed_tokens;
    const auto first = static_cast<size_t>(layout.query_start[r]);
    const auto count = static_cast<size_t>(request.num_scheduled_tokens);
    if (limits_.have_positions) {
      FillMropePositions(images, limits_.merge_size, begin,
                         {all.subspan(first, count), all.subspan(num_tokens + first, count),
                          all.subspan(2 * num_tokens + first, count)});
    }
    if (limits_.are_whole) FillLastSeen(images, begin, last.subspan(first, count));
  }
  const auto columns = static_cast<int64_t>(num_tokens);
  if (limits_.have_positions) {
    mrope_positions_ = Tensor(positions_.data(), DType::kI32, {3, columns});
  }
  if (limits_.are_whole) last_seen_ = Tensor(last_.data(), DType::kI32, {columns});
}

// Those of its rows that stand at places in [begin, end); the first of these places is first_row of
// the step.
void StepImages::AddRows(const ImageInput& image, int32_t begin, int32_t end, int64_t first_row,
                         std::vector<EmbeddedRows>* rows) {
  const auto output = outputs_.find(image.key);
  CHECK(output != outputs_.end() && output->second.image == nullptr)
      << image.key << " was not computed";
  const Tensor& values = output->second.rows;
  const int64_t num_deep = values.shape[1] - hidden_size_;
  int64_t row = 0;  // of the image, at the begin of the run
  for (const ImageInput::Run& run : image.runs) {
    const int32_t from = std::max(begin, run.begin), to = std::min(end, run.end());
    if (from < to) {
      const Tensor part = values.Rows(row + from - run.begin, to - from);
      const int64_t first = first_row + from - begin;
      rows->push_back({.first = first, .values = part.Columns(0, hidden_size_)});
      if (num_deep > 0) {
        deepstack_.push_back({.first = first, .values = part.Columns(hidden_size_, num_deep)});
      }
    }
    row += run.num_rows;
  }
}

int64_t StepImages::num_kept_rows() const {
  int64_t sum = 0;
  for (const auto& [key, output] : outputs_) sum += output.rows.view().rows();
  return sum;
}

}  // namespace tandem
