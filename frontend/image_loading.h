#pragma once

// What loads the images of requests, built and taken down together: the threads that fetch URLs,
// tandem-media, and the loader over them. Thread: main; image_loader.h names the threads of the
// loader.

#include <memory>
#include <optional>

#include "common/clock.h"
#include "frontend/config.h"
#include "frontend/media/image_loader.h"
#include "frontend/media/image_service.h"
#include "frontend/metrics/metrics.h"
#include "frontend/net/net.h"
#include "frontend/processing/input_processor.h"

namespace tandem {

class ImageLoading {
 public:
  // Null: the model takes no images. What is borrowed outlives this; cache_owner: any shard.
  // INVALID_ARGUMENT: a flag that cannot be followed here.
  static StatusOr<std::unique_ptr<ImageLoading>> Start(const FrontendConfig& config,
                                                       const InputProcessor& input_processor,
                                                       TextPool* text_pool, Shard* cache_owner,
                                                       EngineMetrics* metrics, const Clock* clock);
  ~ImageLoading() { Stop(); }
  ImageLoading(const ImageLoading&) = delete;

  ImageLoader* loader() { return &*loader_; }
  // Ends what the threads wait for. Before the shards are joined.
  void Stop();

 private:
  explicit ImageLoading(int num_threads);

  std::unique_ptr<MediaReader> reader_;
  TextPool media_pool_;
  std::optional<ImageLoader> loader_;
  std::optional<ImageService> service_;  // the first to end
};

}  // namespace tandem
