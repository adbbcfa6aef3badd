#pragma once

// Names and ids of the adapters that are served, and the rules by which they change; knows no
// engines. Ids count from 1, each load takes one also if it fails, and a load in place keeps its
// own. Thread: one.
// Failure: INVALID_ARGUMENT or NOT_FOUND with vLLM's words.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/status.h"
#include "frontend/adapters/adapter_modules.h"
#include "frontend/adapters/served_adapters.h"

namespace tandem {

class AdapterTable {
 public:
  static constexpr size_t kMostAdapters = 10'000;

  // base_names: of the model itself.
  explicit AdapterTable(std::vector<std::string> base_names)
      : base_names_(std::move(base_names)), served_(std::make_shared<const ServedAdapters>()) {}

  const ServedAdaptersPtr& served() const { return served_; }

  // The adapter that would be served. Nothing changes but the next id. now: unix seconds.
  StatusOr<ServedAdapter> PlanLoad(const AdapterModule& module, bool in_place, int64_t now);
  // The engines have it: it is served from now on, in the place of one with its name.
  void Commit(ServedAdapter adapter);
  // It is served no more.
  StatusOr<ServedAdapter> Remove(const std::string& name);

  // ---- At the start of a process; REQUIRES: nothing was planned yet ----

  // Serves the modules of the flags. Returns what the engines are to have before: all of them.
  StatusOr<std::vector<wire::LoraRequest>> TakeModules(const std::vector<AdapterModule>& modules,
                                                       int64_t now);
  // Takes over the table of the process before, as ToText has written it, with what was changed
  // while that one ran. Where the modules of the flags differ from those that it was started with,
  // they are followed. Returns what the engines may not have yet.
  StatusOr<std::vector<wire::LoraRequest>> TakeOver(std::string_view text,
                                                    const std::vector<AdapterModule>& modules,
                                                    int64_t now);
  // JSON; empty: nothing was ever planned.
  std::string ToText() const;

 private:
  Status TakeText(std::string_view text);

  const std::vector<std::string> base_names_;
  std::vector<AdapterModule> modules_;  // of the flags
  int64_t next_id_ = 1;
  ServedAdaptersPtr served_;
};

}  // namespace tandem
