#include "frontend/image_loading.h"

#include <utility>

#include "common/log.h"

namespace tandem {
namespace {

// Of what is prepared for requests that have not been sent to an engine yet.
constexpr int64_t kMaxRequestsBytes = int64_t{4} << 30;

}  // namespace

ImageLoading::ImageLoading(int num_threads)
    : media_pool_(num_threads, [](double) { SetThreadName("media"); }) {}

StatusOr<std::unique_ptr<ImageLoading>> ImageLoading::Start(const FrontendConfig& config,
                                                            const InputProcessor& input_processor,
                                                            TextPool* text_pool, Shard* cache_owner,
                                                            EngineMetrics* metrics,
                                                            const Clock* clock) {
  const std::optional<ImageInputs>& images = input_processor.config().images;
  if (!images || images->max_images == 0) {
    for (const std::string_view flag : IdleMediaFlags(config.media)) {
      LOG_WARNING << "--" << flag << " has no effect: this server takes no images";
    }
    return std::unique_ptr<ImageLoading>();
  }
  const MediaFlags& flags = config.media;
  std::unique_ptr<ImageLoading> loading(
      new ImageLoading(static_cast<int>(flags.media_loading_thread_count)));
  ASSIGN_OR_RETURN(loading->reader_, MediaReader::Make(flags.access));
  loading->service_.emplace(ImageServiceOptions(), clock);
  ImageLoaderParts parts;
  parts.reader = loading->reader_.get();
  parts.text_pool = text_pool;
  parts.media_pool = &loading->media_pool_;
  parts.cache_owner = cache_owner;
  parts.cache_bytes = static_cast<int64_t>(flags.mm_processor_cache_gb * (1 << 30));
  parts.max_bytes = images->max_bytes;
  parts.max_held_bytes = parts.cache_bytes + kMaxRequestsBytes;
  parts.prepare = [service = &*loading->service_](std::string bytes, const ImageSpec& spec,
                                                  std::function<void(StatusOr<PreparedImage>)> done,
                                                  std::function<bool()> is_wanted) {
    service->Prepare(std::move(bytes), spec, std::move(done), std::move(is_wanted));
  };
  parts.on_look = [metrics](bool is_hit) {
    metrics->mm_cache_queries.Increment();
    if (is_hit) metrics->mm_cache_hits.Increment();
  };
  loading->loader_.emplace(std::move(parts));
  LOG_INFO << "images: at most " << images->max_images << " in a prompt, URLs of "
           << flags.access.domains.size() << " domains, "
           << (flags.access.local_path.empty() ? "no files"
                                               : "files of " + flags.access.local_path);
  return loading;
}

void ImageLoading::Stop() {
  if (reader_) reader_->Stop();
  media_pool_.Stop();
  service_.reset();
}

}  // namespace tandem
