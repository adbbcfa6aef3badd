#include "frontend/web/http_response.h"

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>

#include "common/strings.h"

namespace tandem {
namespace {

namespace http = boost::beast::http;
using boost::system::error_code;
using View = boost::beast::string_view;

constexpr uint32_t kMaxHeadBytes = 64 << 10;
constexpr size_t kLastChunkBytes = 5;  // "0\r\n\r\n": a chunked body ends with as many at least

}  // namespace

class HttpResponse::Parser final : public http::basic_parser<false> {
 public:
  explicit Parser(std::function<Status(std::string_view piece)> on_body)
      : on_body_(std::move(on_body)) {
    eager(true);
    body_limit(boost::none);
    header_limit(kMaxHeadBytes);
  }

  int status_code = 0;
  std::string reason;
  std::vector<std::pair<std::string, std::string>> headers;
  Status body_status;

 private:
  void on_request_impl(http::verb, View, View, int, error_code&) override {}
  void on_response_impl(int code, View text, int, error_code&) override {
    status_code = code;
    reason.assign(text.data(), text.size());
  }
  void on_field_impl(http::field, View name, View value, error_code&) override {
    headers.emplace_back(ToLower(std::string_view(name.data(), name.size())),
                         std::string(value.data(), value.size()));
  }
  void on_header_impl(error_code&) override {}
  void on_body_init_impl(const boost::optional<uint64_t>&, error_code&) override {}
  size_t on_body_impl(View piece, error_code& error) override { return Take(piece, error); }
  void on_chunk_header_impl(uint64_t, View, error_code&) override {}
  size_t on_chunk_body_impl(uint64_t, View piece, error_code& error) override {
    return Take(piece, error);
  }
  void on_finish_impl(error_code&) override {}

  size_t Take(View piece, error_code& error) {
    if (piece.empty()) return 0;
    body_status = on_body_(std::string_view(piece.data(), piece.size()));
    if (!body_status.ok()) error = http::error::end_of_stream;  // any error ends the parsing
    return piece.size();
  }

  std::function<Status(std::string_view piece)> on_body_;
};

HttpResponse::HttpResponse(std::function<Status(std::string_view piece)> on_body)
    : parser_(std::make_unique<Parser>(std::move(on_body))) {}
HttpResponse::~HttpResponse() = default;

Status HttpResponse::Feed(std::string_view bytes) {
  if (!unread_.empty()) bytes = unread_ += bytes;
  while (!bytes.empty() && !parser_->is_done()) {
    // Beast asserts that it is given the last chunk of an empty body in no less than its 5 bytes.
    if (has_head() && parser_->chunked() && bytes.size() < kLastChunkBytes) break;
    error_code error;
    const size_t used = parser_->put(boost::asio::const_buffer(bytes.data(), bytes.size()), error);
    RETURN_IF_ERROR(parser_->body_status);
    bytes.remove_prefix(used);
    if (error == http::error::need_more) break;
    if (error) return DataLossError("the response is not HTTP: " + error.message());
  }
  // `bytes` may be a part of unread_.
  if (bytes.empty()) {
    unread_.clear();
  } else {
    unread_ = std::string(bytes);
  }
  return OkStatus();
}

Status HttpResponse::End() {
  if (parser_->is_done()) return OkStatus();
  if (!parser_->got_some())
    return DataLossError("the server closed the connection without a response");
  error_code error;
  if (parser_->is_header_done()) parser_->put_eof(error);
  if (!parser_->is_header_done() || error) {
    return DataLossError("the server closed the connection in the middle of the response");
  }
  return OkStatus();
}

bool HttpResponse::has_head() const { return parser_->is_header_done(); }
bool HttpResponse::done() const { return parser_->is_done(); }
int HttpResponse::status_code() const { return parser_->status_code; }
const std::string& HttpResponse::reason() const { return parser_->reason; }
const std::vector<std::pair<std::string, std::string>>& HttpResponse::headers() const {
  return parser_->headers;
}
std::string_view HttpResponse::Header(std::string_view name) const {
  for (const auto& [key, value] : headers()) {
    if (key == name) return value;
  }
  return "";
}
bool HttpResponse::is_event_stream() const {
  return Header("content-type").starts_with("text/event-stream");
}
bool HttpResponse::keep_alive() const { return parser_->keep_alive(); }

}  // namespace tandem
