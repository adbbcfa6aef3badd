#include "frontend/text/encoded_text_cache.h"

namespace tandem {

// One thread's turn inside; false when another one is there.
class EncodedTextCache::Visit {
 public:
  explicit Visit(std::atomic<bool>* occupied)
      : occupied_(occupied->exchange(true, std::memory_order_acquire) ? nullptr : occupied) {}
  ~Visit() {
    if (occupied_ != nullptr) occupied_->store(false, std::memory_order_release);
  }
  Visit(const Visit&) = delete;
  explicit operator bool() const { return occupied_ != nullptr; }

 private:
  std::atomic<bool>* const occupied_;
};

size_t EncodedTextCache::BytesOf(const Entry& entry) {
  constexpr size_t kOverhead = 128;  // of list, index and allocations
  return entry.text.size() + entry.ids.size() * sizeof(TokenId) + kOverhead;
}

bool EncodedTextCache::Find(std::string_view text, bool at_start, std::vector<TokenId>* ids) {
  if (text.size() < kMinTextBytes) return false;
  const Visit visit(&occupied_);
  if (!visit) return false;
  const auto found = index(at_start).find(text);
  if (found == index(at_start).end()) return false;
  const Entries::iterator entry = found->second;
  entries_.splice(entries_.begin(), entries_, entry);
  ids->insert(ids->end(), entry->ids.begin(), entry->ids.end());
  return true;
}

void EncodedTextCache::Insert(std::string_view text, bool at_start, std::span<const TokenId> ids) {
  if (text.size() < kMinTextBytes) return;
  Entry entry{std::string(text), at_start, {ids.begin(), ids.end()}};
  const size_t num_bytes = BytesOf(entry);
  if (num_bytes > max_bytes_ / 2) return;
  const Visit visit(&occupied_);
  if (!visit || index(at_start).contains(text)) return;
  EvictTo(max_bytes_ - num_bytes);
  entries_.push_front(std::move(entry));
  index(at_start).emplace(entries_.front().text, entries_.begin());
  num_bytes_ += num_bytes;
}

void EncodedTextCache::EvictTo(size_t num_bytes) {
  while (num_bytes_ > num_bytes) {
    const Entry& last = entries_.back();
    num_bytes_ -= BytesOf(last);
    index(last.at_start).erase(last.text);
    entries_.pop_back();
  }
}

}  // namespace tandem
