#include "engine_core/weights/loading_progress.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string_view>
#include <utility>

#include "common/strings.h"

namespace tandem {
namespace {

constexpr double kGiB = 1 << 30;
constexpr size_t kBarWidth = 30;

// Of "model.layers.12.mlp.up_proj.weight": 12; nullopt: of no layer.
std::optional<int64_t> LayerOf(std::string_view name) {
  for (const std::string_view part : Split(name, '.')) {
    if (const auto number = ParseNumber<int64_t>(part)) return number;
  }
  return std::nullopt;
}

class ReportingWeights final : public Weights {
 public:
  ReportingWeights(Weights* weights, Slice layers, const Clock* clock, ReportTimes times,
                   std::function<void(const LoadingState&)> report)
      : weights_(weights),
        layers_(layers),
        clock_(clock),
        every_s_(times.every_s),
        report_(std::move(report)),
        began_at_(clock->Monotonic()),
        next_at_(began_at_ + times.first_s) {}

  StatusOr<WeightTensor> Get(std::string_view name, int64_t rows, int64_t columns) override {
    return Noted(name, weights_->Get(name, rows, columns));
  }
  StatusOr<WeightTensor> GetFromStack(std::string_view name, int64_t index, int64_t count,
                                      int64_t rows, int64_t columns) override {
    return Noted(name, weights_->GetFromStack(name, index, count, rows, columns));
  }
  StatusOr<StoredTensor> GetStored(std::string_view name) override {
    StatusOr<StoredTensor> tensor = weights_->GetStored(name);
    if (tensor.ok()) Note(name, tensor->bytes().size());
    return tensor;
  }
  bool Has(std::string_view name) const override { return weights_->Has(name); }
  std::string PlaceOf(std::string_view name) const override { return weights_->PlaceOf(name); }
  std::vector<std::string> Unread() const override { return weights_->Unread(); }
  PackedFile* packed() override { return weights_->packed(); }
  PackedFileWriter* writer() override { return weights_->writer(); }

 private:
  StatusOr<WeightTensor> Noted(std::string_view name, StatusOr<WeightTensor> tensor) {
    if (tensor.ok()) Note(name, static_cast<size_t>(tensor->view().NumBytes()));
    return tensor;
  }

  void Note(std::string_view name, size_t num_bytes) {
    bytes_ += static_cast<double>(num_bytes);
    num_done_ = std::max(num_done_, LayerOf(name).value_or(0) - layers_.begin);
    const double now = clock_->Monotonic();
    if (now < next_at_) return;
    next_at_ = now + every_s_;
    const double part =
        static_cast<double>(num_done_) / static_cast<double>(std::max<int64_t>(1, layers_.count));
    report_({std::clamp(part, 0.0, 1.0), Text(now - began_at_)});
  }

  std::string Text(double seconds) const {
    const int64_t count = layers_.count;
    char text[128];
    std::snprintf(text, sizeof text, "layer %lld of %lld, %.1f GiB read, %.2f GiB/s",
                  static_cast<long long>(std::min(num_done_ + 1, count)),
                  static_cast<long long>(count), bytes_ / kGiB,
                  bytes_ / kGiB / std::max(seconds, 1e-3));
    if (num_done_ < 1 || num_done_ >= count) return text;
    const auto left = static_cast<int>(seconds * static_cast<double>(count - num_done_) /
                                       static_cast<double>(num_done_));
    char eta[32];
    std::snprintf(eta, sizeof eta, ", %d:%02d left", left / 60, left % 60);
    return std::string(text) + eta;
  }

  Weights* const weights_;
  const Slice layers_;
  const Clock* const clock_;
  const double every_s_;
  const std::function<void(const LoadingState&)> report_;
  const double began_at_;
  double next_at_;
  double bytes_ = 0;
  int64_t num_done_ = 0;  // layers
};

}  // namespace

std::unique_ptr<Weights> WithProgress(Weights* weights, Slice layers, const Clock* clock,
                                      ReportTimes times,
                                      std::function<void(const LoadingState&)> report) {
  return std::make_unique<ReportingWeights>(weights, layers, clock, times, std::move(report));
}

LoadingBar::~LoadingBar() {
  if (is_drawn_) std::fputs("\r\x1b[K", stderr);
}

void LoadingBar::Draw(const LoadingState& state) {
  const auto filled = static_cast<size_t>(state.part * kBarWidth);
  const std::string bar = std::string(filled, '#') + std::string(kBarWidth - filled, '.');
  std::fprintf(stderr, "\r\x1b[K[%s] %s\r", bar.c_str(), state.text.c_str());
  is_drawn_ = true;
}

}  // namespace tandem
