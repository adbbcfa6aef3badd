#include "frontend/metrics/adapter_info.h"

#include <prometheus/gauge.h>
#include <prometheus/registry.h>

#include <algorithm>

namespace tandem {
namespace {

// In the order of their arrival.
bool SetNames(const wire::CountsByName& counts, std::vector<std::string>* names) {
  const bool is_same =
      std::equal(counts.begin(), counts.end(), names->begin(), names->end(),
                 [](const auto& count, const auto& name) { return count.first == name; });
  if (is_same) return false;
  names->clear();
  for (const auto& [name, count] : counts) names->push_back(name);
  return true;
}

// Each name once.
std::string Joined(const std::vector<const std::vector<std::string>*>& lists) {
  std::vector<std::string> all;
  for (const auto* list : lists) {
    for (const std::string& name : *list) {
      if (std::find(all.begin(), all.end(), name) == all.end()) all.push_back(name);
    }
  }
  std::string text;
  for (const std::string& name : all) text += (text.empty() ? "" : ",") + name;
  return text;
}

}  // namespace

void AdapterInfo::ShowAlways(double unix_now) {
  is_always_shown_ = true;
  Show(unix_now);
}

void AdapterInfo::SetMaxLoras(int engine_index, int max_loras, double unix_now) {
  Engine& engine = engines_[static_cast<size_t>(engine_index)];
  is_changed_ |= engine.max_loras != max_loras;
  engine.max_loras = max_loras;
  Show(unix_now);
}

void AdapterInfo::Record(int engine_index, const wire::SchedulerStats& stats, double unix_now) {
  Engine& engine = engines_[static_cast<size_t>(engine_index)];
  is_changed_ |= SetNames(stats.running_lora_adapters, &engine.running);
  is_changed_ |= SetNames(stats.waiting_lora_adapters, &engine.waiting);
  Show(unix_now);
}

void AdapterInfo::Show(double unix_now) {
  int max_loras = 0;
  for (const Engine& engine : engines_) max_loras = std::max(max_loras, engine.max_loras);
  if (max_loras == 0 && shown_ == nullptr && !is_always_shown_) return;
  if (is_changed_ || shown_ == nullptr) {
    std::vector<const std::vector<std::string>*> running, waiting;
    for (const Engine& engine : engines_) {
      running.push_back(&engine.running);
      waiting.push_back(&engine.waiting);
    }
    auto& family = prometheus::BuildGauge()
                       .Name("vllm:lora_requests_info")
                       .Help(
                           "Adapters with running and with waiting requests, as labels; the "
                           "unix time of the last report.")
                       .Register(*registry_);
    prometheus::Gauge* const gauge = &family.Add({{"max_lora", std::to_string(max_loras)},
                                                  {"running_lora_adapters", Joined(running)},
                                                  {"waiting_lora_adapters", Joined(waiting)}});
    if (shown_ != nullptr && shown_ != gauge) family.Remove(shown_);
    shown_ = gauge;
    is_changed_ = false;
  }
  shown_->Set(unix_now);
}

}  // namespace tandem
