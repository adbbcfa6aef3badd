#include "frontend/api/chat_images.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "frontend/media/image_loader.h"

namespace tandem {

bool NeedsImages(const ChatRequest& chat) {
  return std::any_of(chat.images.begin(), chat.images.end(),
                     [](const ChatImage& image) { return image.prepared == nullptr; });
}

Awaitable<Status> LoadImages(Exchange& exchange, const ApiContext* context,
                             std::optional<double> deadline, std::span<ChatRequest> chats) {
  const ChatRequest& first = chats.front();
  CO_ASSIGN_OR_RETURN(const ImageSpec spec, context->input_processor->ImageSpecOf(first));
  std::string salt = exchange.request().client_salt + "/" + first.cache_salt.value_or("");
  std::vector<ChatImage> images;
  for (ChatRequest& chat : chats) std::ranges::move(chat.images, std::back_inserter(images));
  const std::shared_ptr<ImageBatch> batch =
      context->image_loader->Begin(std::move(images), spec, std::move(salt));
  exchange.OnClosed([batch] { batch->GiveUp(); });
  bool in_time = true;
  if (deadline) {
    in_time = co_await batch->done().WaitUntil(*deadline);
  } else {
    co_await batch->done().Wait();
  }
  exchange.OnClosed([] {});
  if (!in_time) {
    batch->GiveUp();
    context->metrics->frontend().requests_expired[ExpiryStage::kQueue].Increment();
    co_return Status(StatusCode::kDeadlineExceeded,
                     "the request's time was over before its first token");
  }
  CO_ASSIGN_OR_RETURN(images, batch->Take());
  auto next = images.begin();
  for (ChatRequest& chat : chats) {
    for (ChatImage& image : chat.images) image = std::move(*next++);
  }
  co_return OkStatus();
}

}  // namespace tandem
