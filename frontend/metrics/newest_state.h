#pragma once

// The newest state of one engine's scheduler. Steps are reported to whichever shard has a request
// in them, so a report may be read after that of a later step; it must not undo what that one
// reported. Thread: one; the first shard's.

#include <limits>

#include "proto_msgpack/kv_connector_stats.h"
#include "proto_msgpack/schema.h"

namespace tandem {

class NewestState {
 public:
  // An engine is there; its clock may be another host's.
  void Begin() { *this = NewestState(); }
  // It is gone: it runs nothing, and late reports of its steps change that no more.
  void End() {
    Begin();
    engine_time_ = std::numeric_limits<double>::infinity();
  }

  // Leaves the counts of a report as they are, and of the state what is newer.
  void Apply(double engine_time, wire::SchedulerStats* report) {
    if (engine_time >= engine_time_) {
      engine_time_ = engine_time;
      num_running_ = report->num_running_reqs;
      num_waiting_ = report->num_waiting_reqs;
      num_skipped_ = report->num_skipped_waiting_reqs;
      num_kv_fetch_by_stage_ = report->num_kv_fetch_reqs_by_stage;
      kv_cache_usage_ = report->kv_cache_usage;
      running_adapters_ = report->running_lora_adapters;
      waiting_adapters_ = report->waiting_lora_adapters;
      return;
    }
    report->num_running_reqs = num_running_;
    report->num_waiting_reqs = num_waiting_;
    report->num_skipped_waiting_reqs = num_skipped_;
    report->num_kv_fetch_reqs_by_stage = num_kv_fetch_by_stage_;
    report->kv_cache_usage = kv_cache_usage_;
    report->running_lora_adapters = running_adapters_;
    report->waiting_lora_adapters = waiting_adapters_;
    report->kv_connector_stats = wire::WithoutGauges(report->kv_connector_stats);
  }

 private:
  double engine_time_ = 0;
  int64_t num_running_ = 0;
  int64_t num_waiting_ = 0;
  int64_t num_skipped_ = 0;
  wire::CountsByName num_kv_fetch_by_stage_;
  double kv_cache_usage_ = 0;
  wire::CountsByName running_adapters_;
  wire::CountsByName waiting_adapters_;
};

}  // namespace tandem
