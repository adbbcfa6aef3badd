#include "frontend/api/chat_images.h"

#include <algorithm>
#include <string>
#include <utility>

#include "frontend/media/image_loader.h"

namespace tandem {

bool NeedsImages(const ChatRequest& chat) {
  return std::any_of(chat.images.begin(), chat.images.end(),
                     [](const ChatImage& image) { return image.prepared == nullptr; });
}

Awaitable<Status> LoadImages(Exchange& exchange, const ApiContext* context,
                             std::optional<double> deadline, ChatRequest* chat) {
  CO_ASSIGN_OR_RETURN(const ImageSpec spec, context->input_processor->ImageSpecOf(*chat));
  std::string salt = exchange.request().client_salt + "/" + chat->cache_salt.value_or("");
  const std::shared_ptr<ImageBatch> batch =
      context->image_loader->Begin(std::move(chat->images), spec, std::move(salt));
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
  CO_ASSIGN_OR_RETURN(chat->images, batch->Take());
  co_return OkStatus();
}

}  // namespace tandem
