#include "engine_core/scheduler/encoder_cache.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "common/check.h"

namespace tandem {
namespace {

// Calls use(image) for each image, once for each key, that has rows in [begin, end); false ends it.
template <class Use>
void ForEachRead(const RequestImages& images, int32_t begin, int32_t end, Use use) {
  if (begin == end) return;
  std::vector<std::string_view> seen;
  for (const auto& image : images) {
    if (image->end() <= begin) continue;
    if (image->begin >= end) return;
    if (!image->HasRowsIn(begin, end) || std::ranges::count(seen, image->key) > 0) continue;
    seen.push_back(image->key);
    if (!use(image)) return;
  }
}

// num_tokens, changed so that no image is cut; 0: the step has too little room for the first one.
int32_t WithoutCuts(const RequestImages& images, int32_t begin, int32_t num_tokens, int32_t most) {
  const int32_t end = begin + num_tokens;
  for (const auto& image : images) {
    if (image->end() <= begin || image->begin >= end || end >= image->end()) continue;
    if (begin < image->begin) return image->begin - begin;
    const int32_t num_whole = image->end() - begin;
    return num_whole <= most ? num_whole : 0;
  }
  return num_tokens;
}

}  // namespace

Status EncoderCache::Check(const RequestImages* images, int32_t most_tokens) const {
  if (images == nullptr || !needs_whole_) return OkStatus();
  for (const auto& image : *images) {
    if (image->num_tokens <= most_tokens) continue;
    return InvalidArgumentError("an image has " + std::to_string(image->num_tokens) +
                                " tokens, all of which one step must compute, but a step takes " +
                                std::to_string(most_tokens) +
                                ": it needs a larger --max-num-batched-tokens");
  }
  return OkStatus();
}

void EncoderCache::MakeRoomFor(const RequestImages* images) {
  if (images == nullptr) return;
  for (const auto& image : *images) capacity_ = std::max(capacity_, image->num_rows);
}

void EncoderCache::BeginStep(int32_t num_slices) {
  budget_ = capacity_;
  num_slices_ = num_slices;
  if (is_under_way()) Compute(under_way_, nullptr, &entries_.at(under_way_));
}

EncoderCache::Chunk EncoderCache::ChunkFor(const Request& request, int32_t begin,
                                           int32_t num_tokens, int32_t most) const {
  if (request.images == nullptr || num_tokens == 0) return {num_tokens, num_tokens};
  if (needs_whole_) num_tokens = WithoutCuts(*request.images, begin, num_tokens, most);
  Chunk chunk = {num_tokens, num_tokens};
  int32_t num_free = capacity_ - num_held_;  // once nothing is kept in vain
  int32_t num_computed = 0;
  int32_t num_slices = num_slices_;
  ForEachRead(*request.images, begin, begin + num_tokens, [&](const auto& image) {
    const auto entry = entries_.find(image->key);
    bool has_time = true;
    if (entry != entries_.end()) {
      if (entry->second.released != 0) num_free -= image->num_rows;
      has_time = entry->second.num_slices_left == 0;
    } else {
      num_computed += image->num_rows;
      has_time = !is_under_way() && image->num_slices <= num_slices;
      num_slices -= image->num_slices;
    }
    const bool fits = num_computed <= num_free && num_computed <= budget_;
    if (fits && has_time) return true;
    chunk.num_tokens = std::max(0, image->begin - begin);
    // The image under way has room that it may leave.
    if (!fits && !is_under_way()) chunk.num_wanted = chunk.num_tokens;
    return false;
  });
  return chunk;
}

void EncoderCache::Take(const Request& request, int32_t begin, const Chunk& chunk) {
  if (request.images == nullptr) return;
  RequestImages missing;
  // What is kept is held first, so that no room is made by dropping it.
  ForEachRead(*request.images, begin, begin + chunk.num_tokens, [&](const auto& image) {
    const auto entry = entries_.find(image->key);
    if (entry == entries_.end()) {
      missing.push_back(image);
    } else {
      Hold(&entry->second, request.order);
    }
    return true;
  });
  for (const auto& image : missing) {
    Begin(image, request);
    CHECK(!is_under_way()) << image->key << " is read before it is computed";
    Hold(&entries_.at(image->key), request.order);
  }
  if (chunk.awaits_slices()) Await(request, begin, begin + chunk.num_wanted);
}

// For the first image with rows in [begin, end) that cannot be read yet. Those before it are there.
void EncoderCache::Await(const Request& request, int32_t begin, int32_t end) {
  ForEachRead(*request.images, begin, end, [&](const auto& image) {
    auto entry = entries_.find(image->key);
    if (entry != entries_.end() && entry->second.num_slices_left == 0) return true;
    if (entry == entries_.end()) {
      if (is_under_way() || num_slices_ == 0 || !HasRoomFor(*image)) return false;
      Begin(image, request);
      return !is_under_way();
    }
    if (request.status == wire::RequestStatus::kRunning) {
      Hold(&entry->second, request.order);
    } else if (std::ranges::count(entry->second.waiters, request.order) == 0) {
      entry->second.waiters.push_back(request.order);
    }
    return false;
  });
}

void EncoderCache::Hold(Entry* entry, int64_t holder) {
  std::erase(entry->waiters, holder);
  if (std::ranges::count(entry->holders, holder) > 0) return;
  if (entry->released != 0) {
    num_held_ += entry->num_rows;
    unheld_.erase(std::exchange(entry->released, 0));
  }
  entry->holders.push_back(holder);
}

// REQUIRES: HasRoomFor, slices, and that no image is under way.
void EncoderCache::Begin(const std::shared_ptr<const ImageInput>& image, const Request& request) {
  while (num_kept_ + image->num_rows > capacity_) DropOldest();
  Entry& entry = entries_[image->key];
  entry = {.num_rows = image->num_rows, .num_slices_left = image->num_slices, .is_new = true};
  const bool runs = request.status == wire::RequestStatus::kRunning;
  (runs ? entry.holders : entry.waiters).push_back(request.order);
  num_kept_ += image->num_rows;
  num_held_ += image->num_rows;
  budget_ -= image->num_rows;
  CHECK_GE(budget_, 0) << image->key;
  Compute(image->key, image, &entry);
}

// As much of it as the step has time for.
void EncoderCache::Compute(const std::string& key, std::shared_ptr<const ImageInput> image,
                           Entry* entry) {
  const int32_t num_slices = std::min(num_slices_, entry->num_slices_left);
  if (num_slices == 0) return;
  num_slices_ -= num_slices;
  entry->num_slices_left -= num_slices;
  computed_.push_back({key, std::move(image), num_slices});
  if (entry->num_slices_left > 0) {
    under_way_ = key;
    return;
  }
  // Those that wait for it are looked at now; it is there for them if they can be admitted.
  entry->waiters.clear();
  if (entry->holders.empty()) Unhold(computed_.back().key, entry);
  under_way_.clear();
}

void EncoderCache::Unhold(const std::string& key, Entry* entry) {
  num_held_ -= entry->num_rows;
  entry->released = ++num_releases_;
  unheld_.emplace(entry->released, key);
}

void EncoderCache::DropOldest() {
  CHECK(!unheld_.empty()) << num_held_ << " of " << capacity_ << " rows are held";
  const auto entry = entries_.find(unheld_.begin()->second);
  unheld_.erase(unheld_.begin());
  Drop(entry);
}

// REQUIRES: it counts neither as held nor as unheld any more.
void EncoderCache::Drop(Entries::iterator entry) {
  const auto& [key, dropped] = *entry;
  const auto input = std::ranges::find(computed_, key, &EncoderInput::key);
  if (input != computed_.end()) {
    num_slices_ += input->num_slices;
    computed_.erase(input);
  }
  if (dropped.is_new) {
    budget_ += dropped.num_rows;
  } else {
    dropped_.push_back(key);
  }
  num_kept_ -= dropped.num_rows;
  if (under_way_ == key) under_way_.clear();
  entries_.erase(entry);
}

void EncoderCache::TakeChanges(SchedulerOutput* step) {
  for (const EncoderInput& input : computed_) entries_.at(input.key).is_new = false;
  step->encoder_inputs.swap(computed_);
  step->dropped_encoder_outputs.swap(dropped_);
}

void EncoderCache::ReleaseComputed(const Request& request) {
  if (request.images == nullptr) return;
  for (const auto& image : *request.images) {
    if (image->end() > request.num_computed_tokens) return;
    ReleaseOne(*image, request.order, /*awaits_rest=*/false);
  }
}

void EncoderCache::Release(const Request& request) {
  if (request.images == nullptr) return;
  for (const auto& image : *request.images) ReleaseOne(*image, request.order, /*awaits_rest=*/true);
}

void EncoderCache::End(const Request& request) {
  if (request.images == nullptr) return;
  for (const auto& image : *request.images) {
    ReleaseOne(*image, request.order, /*awaits_rest=*/false);
  }
}

// awaits_rest: it waits for the slices that are left.
void EncoderCache::ReleaseOne(const ImageInput& image, int64_t holder, bool awaits_rest) {
  const auto found = entries_.find(image.key);
  if (found == entries_.end()) return;
  Entry& entry = found->second;
  if (std::erase(entry.holders, holder) + std::erase(entry.waiters, holder) == 0) return;
  if (awaits_rest && entry.num_slices_left > 0) entry.waiters.push_back(holder);
  if (!entry.holders.empty() || !entry.waiters.empty()) return;
  if (!entry.is_new && entry.num_slices_left == 0) return Unhold(found->first, &entry);
  num_held_ -= entry.num_rows;
  Drop(found);
}

// Sorted: the map's order is not the same in each run.
std::vector<std::string> EncoderCache::Keys() const {
  std::vector<std::string> keys;
  keys.reserve(entries_.size());
  for (const auto& [key, entry] : entries_) keys.push_back(key);
  std::ranges::sort(keys);
  return keys;
}

void EncoderCache::Reset() {
  CHECK(computed_.empty()) << "a step is being made";
  for (std::string& key : Keys()) dropped_.push_back(std::move(key));
  entries_.clear();
  unheld_.clear();
  under_way_.clear();
  num_kept_ = num_held_ = 0;
}

void EncoderCache::Save(ByteWriter* out) const {
  CHECK(computed_.empty()) << "a step is being made";
  out->Signed(capacity_);
  out->Signed(num_releases_);
  out->Varint(entries_.size());
  for (const std::string& key : Keys()) {
    const Entry& entry = entries_.at(key);
    out->Bytes(key);
    out->Signed(entry.num_rows);
    out->Signed(entry.num_slices_left);
    out->Signed(entry.released);
    out->List(std::span<const int64_t>(entry.holders));
    out->List(std::span<const int64_t>(entry.waiters));
  }
  out->Varint(dropped_.size());
  for (const std::string& key : dropped_) out->Bytes(key);
}

Status EncoderCache::Load(ByteReader* in) {
  CHECK(entries_.empty() && dropped_.empty());
  capacity_ = static_cast<int32_t>(in->Signed());
  num_releases_ = in->Signed();
  int64_t num_kept = 0, num_held = 0;
  for (size_t left = in->Count(); left > 0 && in->ok(); --left) {
    std::string key(in->Bytes());
    Entry entry;
    entry.num_rows = static_cast<int32_t>(in->Signed());
    entry.num_slices_left = static_cast<int32_t>(in->Signed());
    entry.released = in->Signed();
    in->List(&entry.holders);
    in->List(&entry.waiters);
    num_kept += entry.num_rows;
    if (entry.released != 0) {
      unheld_.emplace(entry.released, key);
    } else {
      num_held += entry.num_rows;
    }
    bool is_whole = entry.num_rows >= 1 && num_kept <= capacity_ && entry.num_slices_left >= 0;
    if (entry.num_slices_left > 0) {
      is_whole = is_whole && under_way_.empty() && entry.released == 0;
      under_way_ = key;
    }
    if (!is_whole || !entries_.emplace(std::move(key), std::move(entry)).second) {
      return DataLossError("the encoder cache is broken");
    }
  }
  num_kept_ = static_cast<int32_t>(num_kept);
  num_held_ = static_cast<int32_t>(num_held);
  for (size_t left = in->Count(); left > 0 && in->ok(); --left) dropped_.emplace_back(in->Bytes());
  return in->ok() ? OkStatus() : DataLossError("the encoder cache is cut off");
}

}  // namespace tandem
