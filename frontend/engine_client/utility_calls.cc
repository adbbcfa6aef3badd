#include "frontend/engine_client/utility_calls.h"

#include <utility>
#include <vector>

namespace tandem {

uint64_t UtilityCalls::Add(int engine_index, Callback callback) {
  const uint64_t id = next_id_++;
  calls_.emplace(id, Call{engine_index, std::move(callback)});
  return id;
}

void UtilityCalls::HandleReply(const wire::UtilityOutput& reply) {
  auto call = calls_.extract(reply.call_id);
  if (call.empty()) return;
  if (reply.failure_message) {
    call.mapped().callback(InternalError(*reply.failure_message));
  } else {
    call.mapped().callback(reply.result);
  }
}

void UtilityCalls::Rename(int from, int to) {
  for (auto& [id, call] : calls_) {
    if (call.engine_index == from) call.engine_index = to;
  }
}

void UtilityCalls::FailAllOf(int engine_index, const Status& why) {
  // A callback may make a new call, so all are taken out first.
  std::vector<Callback> callbacks;
  for (auto call = calls_.begin(); call != calls_.end();) {
    if (call->second.engine_index != engine_index) {
      ++call;
      continue;
    }
    callbacks.push_back(std::move(call->second.callback));
    call = calls_.erase(call);
  }
  for (const Callback& callback : callbacks) callback(why);
}

}  // namespace tandem
