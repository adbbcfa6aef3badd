#include "engine_core/executor/decode_graphs.h"

#include "common/log_event.h"
#include "engine_core/executor/graph_sizes.h"

namespace tandem {

DecodeGraphs::DecodeGraphs(Device* device, std::span<const int64_t> sizes, int64_t max_size)
    : device_(device) {
  if (!device->can_capture()) return;
  for (const int64_t size : sizes) {
    if (size <= max_size) sizes_.push_back(size);
  }
}

// The largest first, so that smaller ones find the memory that it has needed.
Status DecodeGraphs::Capture(const std::function<void(int64_t)>& prepare,
                             const std::function<void()>& run) {
  graphs_.resize(sizes_.size());
  for (size_t i = sizes_.size(); i-- > 0;) {
    prepare(sizes_[i]);
    run();  // what the backend chooses when it first meets a size is chosen now
    device_->BeginCapture();
    run();
    graphs_[i].size = sizes_[i];
    ASSIGN_OR_RETURN(graphs_[i].ops, device_->EndCapture());
    LOG_EVENT(LogLevel::kDebug, "graph captured").Add("requests", sizes_[i]);
  }
  device_->WaitFor(device_->SetMark());
  return OkStatus();
}

const DecodeGraphs::Graph* DecodeGraphs::Find(const StepLayout& layout) const {
  if (graphs_.empty() || !layout.is_uniform_decode()) return nullptr;
  const std::optional<size_t> found = GraphSizeFor(sizes_, layout.num_requests());
  return found ? &graphs_[*found] : nullptr;
}

void DecodeGraphs::Replay(const Graph& graph) {
  device_->Replay(*graph.ops);
  ++num_replays_;
}

}  // namespace tandem
