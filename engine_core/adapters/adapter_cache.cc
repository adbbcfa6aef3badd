#include "engine_core/adapters/adapter_cache.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "common/check.h"
#include "engine_core/scheduler/packed_request.h"

namespace tandem {
namespace {

// Beyond it blocks of an adapter are found again only under its digest.
constexpr size_t kMaxFirstDigests = 1 << 16;
constexpr size_t kMaxTextBytes = 4096;

std::string KeyOf(const wire::LoraRequest& lora) { return lora.name + '\0' + lora.path; }

// What a request whose adapter cannot be loaded ends with.
Status ForClient(const Status& status) {
  if (status.code() == StatusCode::kResourceExhausted) return status;
  return InvalidArgumentError(status.message());
}

}  // namespace

Status AdapterCache::Check(const wire::LoraRequest& lora) const {
  if (loads_ == nullptr) {
    return UnimplementedError("LoRA adapters are off in this engine: --enable-lora turns them on");
  }
  if (lora.name.empty() || lora.path.empty()) {
    return InvalidArgumentError("a LoRA adapter needs a name and a path");
  }
  if (lora.name.size() > kMaxTextBytes || lora.path.size() > kMaxTextBytes ||
      (lora.name + lora.path).find('\0') != std::string::npos) {
    return InvalidArgumentError("the name or path of a LoRA adapter is longer than " +
                                std::to_string(kMaxTextBytes) + " bytes, or holds a zero");
  }
  if (lora.id < 1 || lora.id > std::numeric_limits<int32_t>::max()) {
    return InvalidArgumentError("lora_int_id is " + std::to_string(lora.id) +
                                ", must be between 1 and 2147483647");
  }
  return OkStatus();
}

AdapterCache::Entry& AdapterCache::Touch(const wire::LoraRequest& lora) {
  Entry& entry = entries_[KeyOf(lora)];
  entry.lora_int_id = static_cast<int32_t>(lora.id);
  entry.last_use = ++num_uses_;
  return entry;
}

AdapterCache::Pending& AdapterCache::NewLoad(const wire::LoraRequest& lora) {
  const AdapterId id = ++num_loads_;
  Pending& pending = pending_[id];
  pending.key = KeyOf(lora);
  pending.adapter.id = id;
  pending.adapter.name = lora.name;
  pending.adapter.path = lora.path;
  return pending;
}

AdapterCache::Place AdapterCache::Find(const wire::LoraRequest& lora) {
  Entry& entry = Touch(lora);
  Place place;
  place.is_there = entry.current.id != 0;
  if (place.is_there) {
    place.adapter = entry.current;
  } else if (entry.pending != 0) {
    place.adapter = pending_.at(entry.pending).adapter;
  } else {
    place.adapter = NewLoad(lora).adapter;
    entry.pending = place.adapter.id;
    queue_.push_back(place.adapter.id);
  }
  place.adapter.lora_int_id = entry.lora_int_id;
  return place;
}

bool AdapterCache::Add(const wire::LoraRequest& lora, const Call& call) {
  Entry& entry = Touch(lora);
  if (entry.current.id != 0 && !lora.load_inplace) return true;
  // A load under way may have read the files before they changed.
  const bool joins = entry.pending != 0 && !lora.load_inplace;
  Pending& pending = joins ? pending_.at(entry.pending) : NewLoad(lora);
  entry.pending = pending.adapter.id;
  pending.calls.push_back(call);
  if (!pending.has_started) Start(&pending);
  return false;
}

void AdapterCache::Stage(const wire::LoraRequest& lora, const Call& call) {
  Pending& pending = NewLoad(lora);
  pending.is_staged = true;
  pending.calls.push_back(call);
  Touch(lora).staging = pending.adapter.id;
  Start(&pending);
}

bool AdapterCache::Settle(const wire::LoraRequest& lora, bool takes_place,
                          const AdapterSlots& users) {
  const auto found = entries_.find(KeyOf(lora));
  if (found == entries_.end()) return false;
  Entry& entry = found->second;
  const Adapter staged = std::exchange(entry.staged, {});
  entry.staging = 0;
  if (takes_place && entry.current.id < staged.id) entry.current = staged;
  if (entry.is_empty()) entries_.erase(found);
  EvictBeyondLimit(users);
  return staged.id != 0;
}

void AdapterCache::Start(Pending* pending) {
  pending->has_started = true;
  std::erase(queue_, pending->adapter.id);
  loads_->Start({pending->adapter.id, pending->adapter.name, pending->adapter.path});
}

bool AdapterCache::Remove(int64_t lora_int_id) {
  return std::erase_if(entries_, [=](const auto& item) {
           return item.second.lora_int_id == lora_int_id;
         }) > 0;
}

Status AdapterCache::Pin(int64_t lora_int_id) {
  size_t num_pinned = 0;
  Entry* found = nullptr;
  for (auto& [key, entry] : entries_) {
    num_pinned += entry.is_pinned ? 1 : 0;
    if (entry.lora_int_id == lora_int_id && entry.current.id != 0) found = &entry;
  }
  if (found == nullptr) {
    return NotFoundError("Pinning failed. LoRA " + std::to_string(lora_int_id) +
                         " is not registered.");
  }
  if (!found->is_pinned && num_pinned + 1 >= max_adapters_) {
    return FailedPreconditionError("Pinning failed. " + std::to_string(num_pinned) + " of " +
                                   std::to_string(max_adapters_) +
                                   " adapters (--max-cpu-loras) are pinned, and one place must be "
                                   "left for others.");
  }
  found->is_pinned = true;
  return OkStatus();
}

std::vector<int64_t> AdapterCache::Ids() const {
  std::vector<int64_t> ids;
  for (const auto& [key, entry] : entries_) {
    if (entry.current.id != 0) ids.push_back(entry.lora_int_id);
  }
  // After a reload from another folder the one of the first stays while there is room.
  std::ranges::sort(ids);
  ids.erase(std::ranges::unique(ids).begin(), ids.end());
  return ids;
}

// ---- loads ----

// Also those that are being loaded for requests.
size_t AdapterCache::num_kept() const {
  size_t count = 0;
  for (const auto& [key, entry] : entries_) {
    const bool is_loading = entry.pending != 0 && pending_.at(entry.pending).has_started;
    if (entry.current.id != 0 || is_loading) ++count;
  }
  return count;
}

// The one that was used longest ago, of those that no request has.
bool AdapterCache::TryEvict(const AdapterSlots& users) {
  auto oldest = entries_.end();
  for (auto item = entries_.begin(); item != entries_.end(); ++item) {
    const Entry& entry = item->second;
    const bool can_go = entry.current.id != 0 && entry.pending == 0 && !entry.is_pinned &&
                        users.num_requests(entry.current.id) == 0;
    if (!can_go) continue;
    if (oldest == entries_.end() || entry.last_use < oldest->second.last_use) oldest = item;
  }
  if (oldest == entries_.end()) return false;
  entries_.erase(oldest);
  return true;
}

void AdapterCache::StartLoads(const AdapterSlots& users) {
  while (!queue_.empty()) {
    Pending& pending = pending_.at(queue_.front());
    if (users.num_requests(pending.adapter.id) == 0) {  // they have ended
      Forget(pending);
      pending_.erase(queue_.front());
      queue_.pop_front();
      continue;
    }
    while (num_kept() >= max_adapters_) {
      if (!TryEvict(users)) return;
    }
    Start(&pending);
  }
}

void AdapterCache::EvictBeyondLimit(const AdapterSlots& users) {
  while (num_kept() > max_adapters_ && TryEvict(users)) {
  }
}

// A load that leaves nothing.
void AdapterCache::Forget(const Pending& pending) {
  const auto found = entries_.find(pending.key);
  if (found == entries_.end()) return;
  Entry& entry = found->second;
  if (entry.pending == pending.adapter.id) entry.pending = 0;
  if (entry.staging == pending.adapter.id) entry.staging = 0;
  if (entry.is_empty()) entries_.erase(found);
}

AdapterCache::Ended AdapterCache::End(const AdapterLoaded& loaded, const AdapterSlots& users) {
  const auto found = pending_.find(loaded.id);
  if (found == pending_.end()) return {NotFoundError("no such load"), {}, {}};
  Pending pending = std::move(found->second);
  pending_.erase(found);
  Ended ended = {InternalError(""), std::move(pending.requests), std::move(pending.calls)};
  if (!loaded.status.ok()) {
    Forget(pending);
    ended.adapter = ForClient(loaded.status);
    return ended;
  }
  Adapter adapter = pending.adapter;
  adapter.digest = loaded.digest;
  adapter.version = VersionOf(pending.key, loaded.digest);
  adapter.weights = loaded.weights;
  // It may have been removed, or a later load may have come first.
  const auto entry = entries_.find(pending.key);
  if (entry != entries_.end()) {
    adapter.lora_int_id = entry->second.lora_int_id;
    if (entry->second.pending == adapter.id) entry->second.pending = 0;
    if (pending.is_staged) {
      if (entry->second.staging == adapter.id) entry->second.staged = adapter;
    } else if (entry->second.current.id < adapter.id) {
      entry->second.current = adapter;
    }
  }
  ended.adapter = std::move(adapter);
  EvictBeyondLimit(users);
  return ended;
}

int64_t AdapterCache::VersionOf(const Key& key, uint64_t digest) {
  const auto found = first_digests_.find(key);
  if (found != first_digests_.end() && found->second == digest) return 0;
  if (found == first_digests_.end() && first_digests_.size() < kMaxFirstDigests) {
    first_digests_.emplace(key, digest);
    return 0;
  }
  return digest == 0 ? 1 : static_cast<int64_t>(digest);
}

// ---- checkpoints ----

void AdapterCache::Save(ByteWriter* out) const {
  out->Signed(num_uses_);
  out->Signed(num_loads_);
  out->Varint(entries_.size());
  for (const auto& [key, entry] : entries_) {
    out->Bytes(key);
    out->Signed(entry.lora_int_id);
    out->Signed(entry.last_use);
    out->Fixed(entry.is_pinned);
    PackAdapter(entry.current, out);
    out->Signed(entry.pending);
    PackAdapter(entry.staged, out);
    out->Signed(entry.staging);
  }
  out->Varint(pending_.size());
  for (const auto& [id, pending] : pending_) {
    out->Bytes(pending.key);
    PackAdapter(pending.adapter, out);
    out->Fixed(pending.has_started);
    out->Fixed(pending.is_staged);
    out->Varint(pending.requests.size());
    for (const Waiter& waiter : pending.requests) {
      out->Bytes(waiter.id);
      out->Signed(waiter.order);
    }
    out->Varint(pending.calls.size());
    for (const Call& call : pending.calls) {
      out->Signed(call.client_index);
      out->Fixed(call.call_id);
    }
  }
  out->Varint(queue_.size());
  for (const AdapterId id : queue_) out->Signed(id);
  out->Varint(first_digests_.size());
  for (const auto& [key, digest] : first_digests_) {
    out->Bytes(key);
    out->Fixed(digest);
  }
}

Status AdapterCache::Load(ByteReader* in) {
  const auto flag = [in] { return in->Fixed<uint8_t>() != 0; };
  const auto id = [in] { return static_cast<AdapterId>(in->Signed()); };
  num_uses_ = in->Signed();
  num_loads_ = id();
  for (size_t left = in->Count(); left > 0; --left) {
    Entry& entry = entries_[Key(in->Bytes())];
    entry.lora_int_id = static_cast<int32_t>(in->Signed());
    entry.last_use = in->Signed();
    entry.is_pinned = flag();
    entry.current = UnpackAdapter(in);
    entry.pending = id();
    entry.staged = UnpackAdapter(in);
    entry.staging = id();
  }
  for (size_t left = in->Count(); left > 0; --left) {
    Pending pending;
    pending.key = Key(in->Bytes());
    pending.adapter = UnpackAdapter(in);
    pending.has_started = flag();
    pending.is_staged = flag();
    for (size_t requests = in->Count(); requests > 0; --requests) {
      RequestId request(in->Bytes());
      pending.requests.push_back({std::move(request), in->Signed()});
    }
    for (size_t calls = in->Count(); calls > 0; --calls) {
      const auto client_index = static_cast<int32_t>(in->Signed());
      pending.calls.push_back({client_index, in->Fixed<uint64_t>()});
    }
    pending_[pending.adapter.id] = std::move(pending);
  }
  for (size_t left = in->Count(); left > 0; --left) queue_.push_back(id());
  for (size_t left = in->Count(); left > 0; --left) {
    Key key(in->Bytes());
    first_digests_[std::move(key)] = in->Fixed<uint64_t>();
  }
  const bool fits = std::ranges::all_of(entries_, [this](const auto& item) {
    return item.second.pending == 0 || pending_.contains(item.second.pending);
  });
  const bool queue_fits =
      std::ranges::all_of(queue_, [this](AdapterId queued) { return pending_.contains(queued); });
  return in->ok() && fits && queue_fits ? OkStatus() : DataLossError("the adapters are broken");
}

}  // namespace tandem
