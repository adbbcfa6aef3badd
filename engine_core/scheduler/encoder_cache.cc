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

int32_t EncoderCache::NumTokensFor(const Request& request, int32_t begin, int32_t num_tokens,
                                   int32_t most) const {
  if (request.images == nullptr || num_tokens == 0) return num_tokens;
  if (needs_whole_) num_tokens = WithoutCuts(*request.images, begin, num_tokens, most);
  int32_t num_free = capacity_ - num_held_;  // once nothing is kept in vain
  int32_t num_computed = 0;
  ForEachRead(*request.images, begin, begin + num_tokens, [&](const auto& image) {
    const auto entry = entries_.find(image->key);
    if (entry != entries_.end()) {
      if (entry->second.holders.empty()) num_free -= image->num_rows;
    } else {
      num_computed += image->num_rows;
    }
    const bool fits = num_computed <= num_free && num_computed <= budget_;
    if (!fits) num_tokens = std::max(0, image->begin - begin);
    return fits;
  });
  return num_tokens;
}

void EncoderCache::Take(const Request& request, int32_t begin, int32_t num_tokens) {
  if (request.images == nullptr) return;
  RequestImages missing;
  // What is kept is held first, so that no room is made by dropping it.
  ForEachRead(*request.images, begin, begin + num_tokens, [&](const auto& image) {
    const auto entry = entries_.find(image->key);
    if (entry == entries_.end()) {
      missing.push_back(image);
    } else {
      Hold(&entry->second, request.order);
    }
    return true;
  });
  for (const auto& image : missing) Compute(image, request.order);
}

void EncoderCache::Hold(Entry* entry, int64_t holder) {
  if (std::ranges::count(entry->holders, holder) > 0) return;
  if (entry->holders.empty()) {
    num_held_ += entry->num_rows;
    unheld_.erase(std::exchange(entry->released, 0));
  }
  entry->holders.push_back(holder);
}

void EncoderCache::Compute(const std::shared_ptr<const ImageInput>& image, int64_t holder) {
  while (num_kept_ + image->num_rows > capacity_) DropOldest();
  entries_[image->key] = {.num_rows = image->num_rows, .holders = {holder}, .is_new = true};
  num_kept_ += image->num_rows;
  num_held_ += image->num_rows;
  budget_ -= image->num_rows;
  CHECK_GE(budget_, 0) << image->key;
  computed_.push_back(image);
}

void EncoderCache::DropOldest() {
  CHECK(!unheld_.empty()) << num_held_ << " of " << capacity_ << " rows are held";
  const auto entry = entries_.find(unheld_.begin()->second);
  unheld_.erase(unheld_.begin());
  dropped_.push_back(entry->first);
  Forget(entry);
}

void EncoderCache::Forget(Entries::iterator entry) {
  num_kept_ -= entry->second.num_rows;
  entries_.erase(entry);
}

void EncoderCache::TakeChanges(SchedulerOutput* step) {
  for (const auto& image : computed_) entries_.at(image->key).is_new = false;
  step->encoder_inputs.swap(computed_);
  step->dropped_encoder_outputs.swap(dropped_);
}

void EncoderCache::ReleaseComputed(const Request& request) {
  if (request.images == nullptr) return;
  for (const auto& image : *request.images) {
    if (image->end() > request.num_computed_tokens) return;
    ReleaseOne(*image, request.order);
  }
}

void EncoderCache::Release(const Request& request) {
  if (request.images == nullptr) return;
  for (const auto& image : *request.images) ReleaseOne(*image, request.order);
}

void EncoderCache::ReleaseOne(const ImageInput& image, int64_t holder) {
  const auto found = entries_.find(image.key);
  if (found == entries_.end()) return;
  Entry& entry = found->second;
  if (std::erase(entry.holders, holder) == 0 || !entry.holders.empty()) return;
  num_held_ -= entry.num_rows;
  if (entry.is_new) {
    budget_ += entry.num_rows;
    std::erase_if(computed_, [&](const auto& other) { return other->key == image.key; });
    Forget(found);
  } else {
    entry.released = ++num_releases_;
    unheld_.emplace(entry.released, image.key);
  }
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
    out->Signed(entry.released);
    out->List(std::span<const int64_t>(entry.holders));
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
    entry.released = in->Signed();
    in->List(&entry.holders);
    num_kept += entry.num_rows;
    if (entry.holders.empty()) {
      unheld_.emplace(entry.released, key);
    } else {
      num_held += entry.num_rows;
    }
    if (entry.num_rows < 1 || num_kept > capacity_ ||
        !entries_.emplace(std::move(key), std::move(entry)).second) {
      return DataLossError("the encoder cache is broken");
    }
  }
  num_kept_ = static_cast<int32_t>(num_kept);
  num_held_ = static_cast<int32_t>(num_held);
  for (size_t left = in->Count(); left > 0 && in->ok(); --left) dropped_.emplace_back(in->Bytes());
  return in->ok() ? OkStatus() : DataLossError("the encoder cache is cut off");
}

}  // namespace tandem
