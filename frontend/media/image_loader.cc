#include "frontend/media/image_loader.h"

#include <openssl/evp.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "common/shorten.h"
#include "common/strings.h"
#include "frontend/net/ask_shard.h"

namespace tandem {
namespace {

// More would let one request fill the pools.
constexpr size_t kMostAtOnce = 4;

struct DigestFree {
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};

// Of what an image is made of. Each field with its length, so that no two lists are alike.
std::string HashOf(std::initializer_list<std::string_view> fields) {
  const std::unique_ptr<EVP_MD_CTX, DigestFree> context(EVP_MD_CTX_new());
  EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr);
  for (const std::string_view field : fields) {
    const std::string size = std::to_string(field.size()) + ":";
    EVP_DigestUpdate(context.get(), size.data(), size.size());
    EVP_DigestUpdate(context.get(), field.data(), field.size());
  }
  char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  EVP_DigestFinal_ex(context.get(), reinterpret_cast<unsigned char*>(digest), &size);
  return HexEncode({digest, size});
}

}  // namespace

void ImageBatch::End(Status status) {
  if (is_over_->exchange(true)) return;
  status_ = std::move(status);
  done_.Set();
}

StatusOr<std::vector<ChatImage>> ImageBatch::Take() {
  if (!status_.ok()) return status_;
  return std::move(images_);
}

std::shared_ptr<ImageBatch> ImageLoader::Begin(std::vector<ChatImage> images, const ImageSpec& spec,
                                               std::string salt) {
  auto batch = std::make_shared<ImageBatch>(std::move(images), spec, std::move(salt));
  const size_t num_workers = std::min(batch->images_.size(), kMostAtOnce);
  for (size_t i = 0; i < num_workers; ++i) Shard::Current()->Spawn(Work(batch), "image");
  return batch;
}

void ImageLoader::ResetCache() {
  parts_.cache_owner->Post([this] { cache_.Clear(); });
}

Awaitable<void> ImageLoader::Work(std::shared_ptr<ImageBatch> batch) {
  while (!*batch->is_over_ && batch->next_ < batch->images_.size()) {
    const size_t index = batch->next_++;
    Status status = co_await Load(batch, index);
    if (*batch->is_over_) co_return;
    ChatImage& image = batch->images_[index];
    if (status.ok()) {
      image.url.clear();
      image.url.shrink_to_fit();
      batch->num_bytes_ += static_cast<int64_t>(image.prepared->pixels.size());
      if (batch->num_bytes_ > parts_.max_bytes) {
        status = InvalidArgumentError(
            "the images of one request may take at most " + std::to_string(parts_.max_bytes) +
            " bytes as the model takes them (--max-image-input-bytes); send fewer or smaller ones");
      }
    }
    if (!status.ok()) {
      if (status.param().empty()) status = std::move(status).WithParam("image_url");
      batch->End(std::move(status));
    } else if (++batch->num_loaded_ == batch->images_.size()) {
      batch->End(OkStatus());
    }
  }
}

Awaitable<Status> ImageLoader::Load(std::shared_ptr<ImageBatch> batch, size_t index) {
  ChatImage& image = batch->images_[index];
  const std::string spec = PackImageSpec(batch->spec_);
  if (image.uuid) {
    image.hash = HashOf({"uuid", batch->salt_, spec, *image.uuid});
    const Found found = co_await Find(image.hash);
    image.prepared = found;
    if (found) co_return OkStatus();
    if (image.url.empty()) {
      co_return InvalidArgumentError("no image is kept with the uuid " + Shorten(*image.uuid) +
                                     "; send the image with it");
    }
  }

  // Read, and hashed in the same job.
  struct Content {
    std::string bytes;
    std::string hash;
  };
  auto read = [this, batch, &image, &spec]() -> StatusOr<Content> {
    ASSIGN_OR_RETURN(std::string bytes,
                     parts_.reader->Read(image.url, [&] { return batch->is_over_->load(); }));
    std::string hash = image.uuid ? image.hash : HashOf({"bytes", batch->salt_, spec, bytes});
    return Content{std::move(bytes), std::move(hash)};
  };
  TextPool* const pool = MediaReader::IsDataUrl(image.url) ? parts_.text_pool : parts_.media_pool;
  auto content = co_await OnPool(pool, std::move(read));
  if (!content.ok()) co_return content.status();
  image.hash = std::move(content->hash);
  if (!image.uuid) {
    const Found found = co_await Find(image.hash);
    image.prepared = found;
    if (found) co_return OkStatus();
  }
  if (*batch->is_over_) co_return CancelledError("nobody waits for it any more");

  auto prepared = co_await Prepare(std::move(content->bytes), batch);
  if (!prepared.ok()) co_return prepared.status();
  CO_ASSIGN_OR_RETURN(image.prepared, Hold(*std::move(prepared)));
  if (cache_.keeps()) {
    parts_.cache_owner->Post(
        [this, hash = image.hash, made = image.prepared] { cache_.Add(hash, made); });
  }
  co_return OkStatus();
}

Awaitable<ImageLoader::Found> ImageLoader::Find(std::string hash) {
  if (!cache_.keeps()) co_return nullptr;
  std::function<void(std::function<void(Found)>)> ask =
      [this, hash = std::move(hash)](const std::function<void(Found)>& reply) {
        reply(cache_.Find(hash));
      };
  Found found = co_await AskShard<Found>(parts_.cache_owner, std::move(ask));
  if (parts_.on_look) parts_.on_look(found != nullptr);
  co_return found;
}

// A request may have many images and waits for all of them, so what each of many requests has
// already is bounded here.
StatusOr<ImageLoader::Found> ImageLoader::Hold(PreparedImage image) {
  const auto num_bytes = static_cast<int64_t>(image.pixels.size());
  if (*held_bytes_ + num_bytes > parts_.max_held_bytes) {
    return ResourceExhaustedError("the images of all requests take too much memory");
  }
  *held_bytes_ += num_bytes;
  return Found(new PreparedImage(std::move(image)),
               [held = held_bytes_, num_bytes](const PreparedImage* held_image) {
                 *held -= num_bytes;
                 delete held_image;
               });
}

Awaitable<StatusOr<PreparedImage>> ImageLoader::Prepare(std::string bytes,
                                                        std::shared_ptr<ImageBatch> batch) {
  using Prepared = StatusOr<PreparedImage>;
  std::function<void(std::function<void()>)> run_here = [](const std::function<void()>& ask) {
    ask();
  };
  std::function<void(std::function<void(Prepared)>)> ask =
      [this, bytes = std::move(bytes), batch](std::function<void(Prepared)> reply) mutable {
        parts_.prepare(std::move(bytes), batch->spec_, std::move(reply),
                       [is_over = batch->is_over_] { return !*is_over; });
      };
  Prepared prepared = co_await AskOwner<Prepared>(std::move(run_here), std::move(ask));
  co_return prepared;
}

}  // namespace tandem
