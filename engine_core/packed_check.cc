#include "engine_core/packed_check.h"

#include <sched.h>

#include <utility>

#include "common/clock.h"
#include "common/log.h"
#include "common/strings.h"
#include "engine_core/startup_log.h"

namespace tandem {

void PackedCheck::Push(PackedParts parts) {
  if (parts.empty()) {
    LOG_WARNING << parts.path()
                << " has no hashes of its bytes, so nothing would notice if they were damaged: "
                   "pack the model again";
    return;
  }
  noted_.push_back(std::move(parts));
  if (has_begun_) Begin();
}

void PackedCheck::Begin() {
  has_begun_ = true;
  if (noted_.empty()) return;
  if (!thread_) {
    thread_.emplace("packed-check", [this](const PackedParts& parts) { Check(parts); });
  }
  for (PackedParts& parts : noted_) thread_->Push(std::move(parts));
  noted_.clear();
}

void PackedCheck::Check(const PackedParts& parts) {
  const sched_param none = {};
  sched_setscheduler(0, SCHED_IDLE, &none);  // of this thread
  const SystemClock clock;
  const double begin = clock.Monotonic();
  const Status whole = parts.Check(ends_);
  if (whole.ok()) {
    LOG_INFO << "all " << WithCommas(parts.num_bytes() >> 20) << " MiB of " << parts.path()
             << " have their hashes (read in " << Fixed(clock.Monotonic() - begin, 1) << " s)";
  } else if (whole.code() == StatusCode::kDataLoss) {
    parts.MarkDamaged();
    on_damage_(whole);
  }
}

}  // namespace tandem
