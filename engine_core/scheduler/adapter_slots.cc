#include "engine_core/scheduler/adapter_slots.h"

#include <algorithm>
#include <vector>

#include "common/check.h"

namespace tandem {

void AdapterSlots::Enter(const Adapter& adapter) {
  if (adapter.id == 0) return;
  const auto [entry, is_new] = users_.try_emplace(adapter.id);
  if (is_new) entry->second = {.name = adapter.name, .order = num_entered_++};
  ++entry->second.num_waiting;
}

void AdapterSlots::Leave(AdapterId id) {
  if (id == 0) return;
  const auto entry = users_.find(id);
  CHECK(entry != users_.end() && entry->second.num_waiting > 0) << id;
  if (--entry->second.num_waiting + entry->second.num_running == 0) users_.erase(entry);
}

bool AdapterSlots::HasRoomFor(AdapterId id) const {
  if (id == 0 || num_running_ < max_adapters_) return true;
  const auto entry = users_.find(id);
  return entry != users_.end() && entry->second.num_running > 0;
}

void AdapterSlots::Add(AdapterId id) {
  if (id == 0) return;
  Users& users = users_.at(id);
  --users.num_waiting;
  if (++users.num_running == 1) ++num_running_;
}

void AdapterSlots::Remove(AdapterId id) {
  if (id == 0) return;
  Users& users = users_.at(id);
  ++users.num_waiting;
  if (--users.num_running == 0) --num_running_;
}

int32_t AdapterSlots::num_requests(AdapterId id) const {
  const auto entry = users_.find(id);
  return entry == users_.end() ? 0 : entry->second.num_running + entry->second.num_waiting;
}

wire::CountsByName AdapterSlots::CountsOf(int32_t Users::*count) const {
  if (users_.empty()) return {};
  std::vector<const Users*> in_order;
  for (const auto& [id, users] : users_) in_order.push_back(&users);
  std::ranges::sort(in_order, {}, &Users::order);
  wire::CountsByName counts;
  for (const Users* users : in_order) {
    if (users->*count == 0) continue;
    // One that was loaded again has several ids.
    const auto same =
        std::ranges::find(counts, users->name, &wire::CountsByName::value_type::first);
    if (same != counts.end()) {
      same->second += users->*count;
    } else {
      counts.emplace_back(users->name, users->*count);
    }
  }
  return counts;
}

}  // namespace tandem
