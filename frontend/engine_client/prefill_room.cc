#include "frontend/engine_client/prefill_room.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "common/check.h"

namespace tandem {

PrefillRoom::PrefillRoom(int num_engines, int num_clients)
    : num_clients_(num_clients), engines_(2 * static_cast<size_t>(num_engines)) {}

void PrefillRoom::Reset(int engine_index, int64_t num_blocks, int64_t block_size) {
  Engine& engine = engines_[static_cast<size_t>(engine_index)];
  engine.block_size = block_size;
  engine.capacity =
      block_size > 0 ? num_blocks / 2 / num_clients_ : std::numeric_limits<int64_t>::max();
}

int64_t PrefillRoom::NumBlocks(const Engine& engine, size_t num_prompt_tokens) const {
  if (engine.block_size <= 0 || num_prompt_tokens == 0) return 0;
  return (static_cast<int64_t>(num_prompt_tokens) - 1) / engine.block_size;
}

bool PrefillRoom::Fits(int engine_index, size_t num_prompt_tokens) const {
  const Engine& engine = engines_[static_cast<size_t>(engine_index)];
  return engine.num_used == 0 ||
         engine.num_used + NumBlocks(engine, num_prompt_tokens) <= engine.capacity;
}

void PrefillRoom::Begin(const RequestId& prefill_id, int engine_index, size_t num_prompt_tokens) {
  Engine& engine = engines_[static_cast<size_t>(engine_index)];
  const int64_t num_blocks = NumBlocks(engine, num_prompt_tokens);
  const bool is_new = holdings_.emplace(prefill_id, Holding{engine_index, num_blocks}).second;
  CHECK(is_new) << prefill_id;
  engine.num_used += num_blocks;
}

void PrefillRoom::Erase(Holdings::iterator holding) {
  const Holding& held = holding->second;
  engines_[static_cast<size_t>(held.engine_index)].num_used -= held.num_blocks;
  holdings_.erase(holding);
}

int PrefillRoom::End(const RequestId& prefill_id) {
  const auto holding = holdings_.find(prefill_id);
  if (holding == holdings_.end()) return kNoEngine;
  const int engine_index = holding->second.engine_index;
  Erase(holding);
  return engine_index;
}

void PrefillRoom::AwaitReaders(const RequestId& prefill_id, const KvReaders& readers) {
  const auto holding = holdings_.find(prefill_id);
  if (holding == holdings_.end()) return;
  holding->second.reader_index = readers.engine_index;
  holding->second.num_readers = readers.sent_ids.size();
  for (const RequestId& id : readers.sent_ids) unread_[id] = prefill_id;
}

void PrefillRoom::OnRead(const RequestId& sent_id) {
  if (unread_.empty()) return;
  const auto unread = unread_.find(sent_id);
  if (unread == unread_.end()) return;
  const auto holding = holdings_.find(unread->second);
  unread_.erase(unread);
  if (holding != holdings_.end() && --holding->second.num_readers == 0) Erase(holding);
}

void PrefillRoom::MakePredecessor(int engine_index) {
  const int num_engines = static_cast<int>(engines_.size() / 2);
  const int predecessor = Predecessor(engine_index, num_engines);
  for (auto& [id, holding] : holdings_) {
    if (holding.engine_index == engine_index) holding.engine_index = predecessor;
    if (holding.reader_index == engine_index) holding.reader_index = predecessor;
  }
  const auto from = static_cast<size_t>(engine_index), to = static_cast<size_t>(predecessor);
  engines_[to].num_used += std::exchange(engines_[from].num_used, 0);
}

std::vector<PrefillRoom::GivenUp> PrefillRoom::OnLost(int engine_index) {
  std::vector<GivenUp> given_up;
  for (auto each = holdings_.begin(); each != holdings_.end();) {
    const auto holding = each++;
    const bool is_read_there = holding->second.reader_index == engine_index;
    const bool is_there = holding->second.engine_index == engine_index;
    if (!is_there && !is_read_there) continue;
    if (!is_there) given_up.push_back({holding->first, holding->second.engine_index});
    Erase(holding);
  }
  std::erase_if(unread_, [this](const auto& one) { return !holdings_.contains(one.second); });
  return given_up;
}

}  // namespace tandem
