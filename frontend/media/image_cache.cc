#include "frontend/media/image_cache.h"

#include <utility>

namespace tandem {
namespace {

int64_t BytesOf(const PreparedImage& image) { return static_cast<int64_t>(image.pixels.size()); }

}  // namespace

std::shared_ptr<const PreparedImage> ImageCache::Find(const std::string& hash) {
  const auto found = by_hash_.find(hash);
  if (found == by_hash_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return entries_.front().image;
}

void ImageCache::Add(const std::string& hash, std::shared_ptr<const PreparedImage> image) {
  if (BytesOf(*image) > max_bytes_ || by_hash_.contains(hash)) return;
  num_bytes_ += BytesOf(*image);
  entries_.push_front({hash, std::move(image)});
  by_hash_[hash] = entries_.begin();
  while (num_bytes_ > max_bytes_) {
    num_bytes_ -= BytesOf(*entries_.back().image);
    by_hash_.erase(entries_.back().hash);
    entries_.pop_back();
  }
}

void ImageCache::Clear() {
  entries_.clear();
  by_hash_.clear();
  num_bytes_ = 0;
}

}  // namespace tandem
