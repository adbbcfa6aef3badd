#pragma once

// Prepared images by the hash of what they were made of, as many as fit; the one that was not used
// for the longest time makes room. Thread: one, its owner's (image_loader.h).

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <unordered_map>

#include "media/image_spec.h"

namespace tandem {

class ImageCache {
 public:
  // max_bytes: of pixels; 0: nothing is kept.
  explicit ImageCache(int64_t max_bytes) : max_bytes_(max_bytes) {}

  std::shared_ptr<const PreparedImage> Find(const std::string& hash);  // null: it is not there
  void Add(const std::string& hash, std::shared_ptr<const PreparedImage> image);
  void Clear();

  int64_t num_bytes() const { return num_bytes_; }
  bool keeps() const { return max_bytes_ > 0; }

 private:
  struct Entry {
    std::string hash;
    std::shared_ptr<const PreparedImage> image;
  };

  const int64_t max_bytes_;
  int64_t num_bytes_ = 0;
  std::list<Entry> entries_;  // the last used one first
  std::unordered_map<std::string, std::list<Entry>::iterator> by_hash_;
};

}  // namespace tandem
