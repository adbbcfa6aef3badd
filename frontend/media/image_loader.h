#pragma once

// Loads the images of a request: reads what its URLs stand for, has them prepared for the model,
// and keeps what was prepared, by content.
// Thread: Begin on any shard; what blocks runs on pools, so a shard only waits. The cache belongs
// to one shard, its owner, and others ask it. Lives until the shards have ended.

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/status.h"
#include "frontend/media/image_cache.h"
#include "frontend/media/media_reader.h"
#include "frontend/net/net.h"
#include "frontend/openai/chat_image.h"
#include "media/image_spec.h"

namespace tandem {

// The images of one request on their way. Thread: the shard's that began it.
class ImageBatch {
 public:
  ImageBatch(std::vector<ChatImage> images, const ImageSpec& spec, std::string salt)
      : images_(std::move(images)), spec_(spec), salt_(std::move(salt)) {}

  // Set once all images are loaded, one has failed, or the batch was given up.
  Event& done() { return done_; }
  // Nobody waits any more: what has not begun does not begin, and waits for servers end.
  void GiveUp() { End(CancelledError("the request is gone")); }
  // After done: the images with their hashes and what was prepared. INVALID_ARGUMENT and DATA_LOSS
  // as of MediaReader::Read, and of what prepares them; RESOURCE_EXHAUSTED: all requests together
  // hold too many.
  StatusOr<std::vector<ChatImage>> Take();

 private:
  friend class ImageLoader;
  void End(Status status);

  std::vector<ChatImage> images_;
  const ImageSpec spec_;
  const std::string salt_;
  size_t next_ = 0;  // that no coroutine has taken
  size_t num_loaded_ = 0;
  int64_t num_bytes_ = 0;  // of pixels
  Status status_;
  // Pools look at it, and the jobs of images, which may outlive this.
  const std::shared_ptr<std::atomic<bool>> is_over_ = std::make_shared<std::atomic<bool>>(false);
  Event done_;
};

// Calls back on the calling shard, or from any thread; once. is_wanted: for any thread, whether
// somebody still waits.
using ImagePreparer = std::function<void(std::string bytes, const ImageSpec& spec,
                                         std::function<void(StatusOr<PreparedImage>)> done,
                                         std::function<bool()> is_wanted)>;

struct ImageLoaderParts {
  const MediaReader* reader = nullptr;
  TextPool* text_pool = nullptr;   // for data: URLs
  TextPool* media_pool = nullptr;  // for URLs and files, whose jobs block
  Shard* cache_owner = nullptr;
  int64_t cache_bytes = 0;
  int64_t max_bytes = 0;                     // of one request's pixels
  int64_t max_held_bytes = 0;                // of pixels, in all requests and in the cache
  ImagePreparer prepare;                     // called on shards
  std::function<void(bool is_hit)> on_look;  // into the cache, if there is one; on shards
};

class ImageLoader {
 public:
  explicit ImageLoader(ImageLoaderParts parts)
      : parts_(std::move(parts)), cache_(parts_.cache_bytes) {}
  ImageLoader(const ImageLoader&) = delete;

  // salt: requests with different ones share nothing. REQUIRES: images are not empty.
  std::shared_ptr<ImageBatch> Begin(std::vector<ChatImage> images, const ImageSpec& spec,
                                    std::string salt);
  // Forgets what was prepared. Any thread.
  void ResetCache();

 private:
  using Found = std::shared_ptr<const PreparedImage>;

  Awaitable<void> Work(std::shared_ptr<ImageBatch> batch);
  Awaitable<Status> Load(std::shared_ptr<ImageBatch> batch, size_t index);
  Awaitable<Found> Find(std::string hash);
  Awaitable<StatusOr<PreparedImage>> Prepare(std::string bytes, std::shared_ptr<ImageBatch> batch);
  StatusOr<Found> Hold(PreparedImage image);

  const ImageLoaderParts parts_;
  // Of images that are held anywhere; these may outlive the loader.
  const std::shared_ptr<std::atomic<int64_t>> held_bytes_ =
      std::make_shared<std::atomic<int64_t>>(0);
  ImageCache cache_;  // touched by its owner's thread only
};

}  // namespace tandem
