#include "frontend/api/background_response.h"

#include <utility>

namespace tandem {

BackgroundResponse::BackgroundResponse(ApiContext* context, std::unique_ptr<ResponseCall> call,
                                       double arrival_monotonic, AdmittedRequest request)
    : store_(context->response_store),
      call_(std::move(call)),
      id_(request.prepared.writer.head.id),
      is_stream_(request.prepared.writer.stream),
      generation_(MakeGeneration(context, *call_, arrival_monotonic, request)) {
  request.prepared.writer.out = &text_;
  writer_ = call_->MakeObjectWriter(std::move(request.prepared.writer));
}

StoredResponse BackgroundResponse::Queued() {
  return {.body = writer_->Body("queued"), .conversation = call_->conversation()};
}

Awaitable<void> BackgroundResponse::Run(std::shared_ptr<BackgroundResponse> self) {
  if (!self->generation_->aborted()) {
    self->failure_ =
        self->generation_->Start(self->writer_.get(), [raw = self.get()] { raw->OnProgress(); });
    if (self->failure_.ok()) co_await self->generation_->WaitForEnd();
  }
  self->End();
}

void BackgroundResponse::Stop(const Status& why) {
  if (generation_->done().is_set()) return;  // it ended while the wish to stop it was on its way
  failure_ = why;
  generation_->Abort();
}

void BackgroundResponse::OnProgress() {
  if (!std::exchange(has_output_, true)) store_->Update(id_, writer_->Body("in_progress"));
  Flush();
}

void BackgroundResponse::Flush() {
  if (is_stream_ && !text_.empty()) store_->Append(id_, std::exchange(text_, ""));
}

void BackgroundResponse::End() {
  if (failure_.ok()) failure_ = generation_->error();
  std::string body;
  if (!failure_.ok()) {
    body = writer_->FailedBody(failure_);
    writer_->WriteError(failure_);
  } else {
    if (generation_->aborted()) writer_->WriteCancelled(generation_->usage());
    body = writer_->EndedBody();
  }
  Flush();
  store_->End(id_, std::move(body));
}

}  // namespace tandem
