// Checkpoints of the engine, taken between two turns of the loop: the scheduler with all requests
// and blocks, and what a pause or a shutdown waits for.

#include "common/check.h"
#include "engine_core/engine_core.h"

namespace tandem {

bool EngineCore::CanSave() const {
  return in_flight_.empty() && outputs_.empty() && messages_.empty() &&
         options_.kv_connector == nullptr;
}

void EngineCore::Save(ByteWriter* out) const {
  CHECK(CanSave() && collected_ == nullptr);
  out->Fixed(refuses_new_);
  out->Fixed(stats_due_);
  out->Fixed(shutdown_deadline_.has_value());
  out->Fixed(shutdown_deadline_.value_or(0));
  out->Fixed(pending_pause_.has_value());
  const PendingPause pause = pending_pause_.value_or(PendingPause{});
  out->Signed(pause.client_index);
  out->Fixed(pause.call_id);
  out->Fixed(pause.clear_cache);
  out->Signed(pause.sleep_level);
  out->Fixed(released_.weights);
  out->Fixed(released_.kv_cache);
  out->Signed(sleep_level_);
  out->Fixed(weight_version_.has_value());
  out->Bytes(weight_version_.value_or(""));
  adapters_.Save(out);
  scheduler_.Save(out);
}

Status EngineCore::Load(ByteReader* in) {
  const auto flag = [in] { return in->Fixed<uint8_t>() != 0; };
  refuses_new_ = flag();
  stats_due_ = flag();
  const bool is_shutting_down = flag();
  const auto deadline = in->Fixed<double>();
  if (is_shutting_down) shutdown_deadline_ = deadline;
  const bool is_pausing = flag();
  PendingPause pause{};
  pause.client_index = static_cast<int32_t>(in->Signed());
  pause.call_id = in->Fixed<uint64_t>();
  pause.clear_cache = flag();
  pause.sleep_level = in->Signed();
  released_.weights = flag();
  released_.kv_cache = flag();
  sleep_level_ = in->Signed();
  if (is_pausing) pending_pause_ = pause;
  const bool has_version = flag();
  std::string version(in->Bytes());
  if (has_version) weight_version_ = std::move(version);
  RETURN_IF_ERROR(adapters_.Load(in));
  return scheduler_.Load(in);
}

}  // namespace tandem
