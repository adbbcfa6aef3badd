#include "frontend/http/request_reader.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/core/buffers_range.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/status.hpp>
#include <cctype>

#include "common/strings.h"

namespace tandem {
namespace http = boost::beast::http;

namespace {

using boost::system::error_code;

constexpr size_t kLastChunkBytes = 5;  // "0\r\n\r\n": a chunked body ends with as many at least

// A body that grows as its bytes arrive: a Content-Length alone reserves nothing.
struct GrowingBody {
  using value_type = std::string;
  static uint64_t size(const value_type& body) { return body.size(); }
  class reader {
   public:
    template <bool is_request, class Fields>
    reader(http::header<is_request, Fields>&, value_type& body) : body_(body) {}
    void init(const boost::optional<uint64_t>&, error_code& error) { error = {}; }
    template <class Buffers>
    size_t put(const Buffers& buffers, error_code& error) {
      error = {};
      size_t total = 0;
      for (const auto& part : boost::beast::buffers_range_ref(buffers)) {
        body_.append(static_cast<const char*>(part.data()), part.size());
        total += part.size();
      }
      return total;
    }
    void finish(error_code& error) { error = {}; }

   private:
    value_type& body_;
  };
};

// A name or address, perhaps with a port: letters, digits, and what RFC 3986 allows beside them.
bool IsHost(std::string_view host) {
  constexpr std::string_view kAllowed = "-._~%!$&'()*+,;=:[]";
  return std::ranges::all_of(host, [&](unsigned char c) {
    return (c < 0x80 && std::isalnum(c) != 0) ||
           kAllowed.find(static_cast<char>(c)) != std::string_view::npos;
  });
}

// RFC 9112, 3.2. Empty where nothing is wrong: the name itself is nobody's business here.
std::string WrongHost(const http::request_header<>& head) {
  const auto num_hosts = head.count(http::field::host);
  if (num_hosts == 0 && head.version() >= 11) return "the header field Host is missing";
  if (num_hosts > 1) return "the header field Host is there more than once";
  if (!IsHost(head[http::field::host])) return "the header field Host is no host name";
  return "";
}

// RFC 9112, 6.1. Beast ignores other codings, so that the body would end elsewhere, or be taken
// for what it is not.
std::string WrongTransferCoding(const http::request_header<>& head) {
  const auto num_fields = head.count(http::field::transfer_encoding);
  if (num_fields == 0) return "";
  const auto coding = head[http::field::transfer_encoding];
  if (num_fields == 1 && ToLower({coding.data(), coding.size()}) == "chunked") return "";
  return "the header field Transfer-Encoding must be chunked";
}

}  // namespace

struct RequestReader::Beast {
  http::request_parser<GrowingBody> parser;
};

RequestReader::RequestReader(const ServerLimits& limits)
    : limits_(limits), beast_(std::make_unique<Beast>()) {
  auto& parser = beast_->parser;
  parser.eager(false);
  parser.header_limit(static_cast<uint32_t>(limits.header_bytes));
  if (limits.body_bytes == 0) {
    parser.body_limit(boost::none);
  } else {
    parser.body_limit(static_cast<uint64_t>(limits.body_bytes));
  }
}

RequestReader::~RequestReader() = default;

RequestReader::Step RequestReader::Read(std::string* in) {
  auto& parser = beast_->parser;
  while (!parser.is_done()) {
    if (head_done_) parser.eager(true);
    // Beast asserts that it is given the last chunk of an empty body in no less than its 5 bytes.
    if (head_done_ && parser.chunked() && in->size() < kLastChunkBytes) return Step::kNeedMore;
    error_code error;
    const size_t used = parser.put(boost::asio::buffer(*in), error);
    in->erase(0, used);
    if (!head_done_) head_bytes_ += static_cast<int64_t>(used);
    // Beast takes a few bytes more where they come at once.
    if (error == http::error::header_limit || head_bytes_ > limits_.header_bytes) {
      return Fail(431, "request header fields are larger than " +
                           std::to_string(limits_.header_bytes) + " bytes");
    }
    if (error == http::error::body_limit) {
      return Fail(413, "request body is larger than " + std::to_string(limits_.body_bytes) +
                           " bytes (--max-request-body-bytes)");
    }
    if (error && error != http::error::need_more) return Fail(400, "invalid HTTP request");
    if (parser.is_header_done() && !head_done_) return CheckHead();
    if (!parser.is_done() && (error == http::error::need_more || used == 0 || in->empty())) {
      return Step::kNeedMore;
    }
  }
  // A request without a body is complete with its head.
  return head_done_ ? Step::kDone : CheckHead();
}

RequestReader::Step RequestReader::CheckHead() {
  const auto& message = beast_->parser.get();
  const auto num_headers = std::distance(message.begin(), message.end());
  if (num_headers > limits_.num_headers) {
    return Fail(431, "more than " + std::to_string(limits_.num_headers) + " header fields");
  }
  for (const auto check : {WrongHost, WrongTransferCoding}) {
    if (std::string wrong = check(message); !wrong.empty()) return Fail(400, std::move(wrong));
  }
  head_done_ = true;
  has_body_ = !beast_->parser.is_done();
  return Step::kHead;
}

RequestReader::Step RequestReader::Fail(int status, std::string message) {
  error_status_ = status;
  error_ = std::move(message);
  return Step::kFailed;
}

HttpRequest RequestReader::TakeHead() {
  const auto& message = beast_->parser.get();
  HttpRequest request;
  request.method = std::string(message.method_string());
  for (const auto& field : message) {
    request.headers.emplace_back(ToLower({field.name_string().data(), field.name_string().size()}),
                                 std::string(field.value()));
  }
  target_ = std::string(message.target());
  std::string_view target = target_;
  // Proxies write "http://host/path?query".
  const size_t scheme = target.find("://");
  if (!target.starts_with('/') && scheme != target.npos) {
    const size_t path = target.find('/', scheme + 3);
    target = path == target.npos ? "/" : target.substr(path);
  }
  const size_t question = target.find('?');
  request.path = std::string(target.substr(0, question));
  if (question != target.npos) request.query = std::string(target.substr(question + 1));
  return request;
}

bool RequestReader::http11() const { return beast_->parser.get().version() >= 11; }
bool RequestReader::keep_alive() const { return beast_->parser.get().keep_alive(); }
bool RequestReader::has_body() const { return has_body_; }

std::optional<uint64_t> RequestReader::content_length() const {
  const auto length = beast_->parser.content_length();
  return length ? std::optional<uint64_t>(*length) : std::nullopt;
}

std::string RequestReader::TakeBody() { return std::move(beast_->parser.get().body()); }

std::string_view ReasonPhrase(int status) {
  const auto phrase = http::obsolete_reason(static_cast<http::status>(status));
  return {phrase.data(), phrase.size()};
}

}  // namespace tandem
