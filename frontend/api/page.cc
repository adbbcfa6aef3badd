#include "frontend/api/page.h"

#include <memory>
#include <mutex>
#include <utility>

namespace tandem {
namespace {

class Page {
 public:
  Page(std::string_view media_type, std::function<std::string()> make_text)
      : media_type_(media_type), make_text_(std::move(make_text)) {}

  static Awaitable<void> Send(Exchange& exchange, std::shared_ptr<Page> page) {
    std::call_once(page->made_, [&] {
      page->response_ = Response{200, page->make_text_(), page->media_type_, {}};
    });
    exchange.Respond(page->response_);
    co_return;
  }

 private:
  const std::string media_type_;
  const std::function<std::string()> make_text_;
  std::once_flag made_;
  Response response_;
};

}  // namespace

Handler SendsPage(std::string_view media_type, std::function<std::string()> make_text) {
  auto page = std::make_shared<Page>(media_type, std::move(make_text));
  return [page = std::move(page)](Exchange& exchange) { return Page::Send(exchange, page); };
}

}  // namespace tandem
