#pragma once

// Reads one HTTP/1.1 response out of bytes that arrive in pieces cut anywhere: length, chunked, or
// until the connection closes. Thread: one. Keeps only the bytes of an unfinished protocol line.
// Failure: DATA_LOSS for what is not HTTP, and for an end in the middle.

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/status.h"

namespace tandem {

class HttpResponse {
 public:
  // on_body gets each piece of the body; if it returns an error, reading ends and Feed returns it.
  explicit HttpResponse(std::function<Status(std::string_view piece)> on_body);
  ~HttpResponse();
  HttpResponse(const HttpResponse&) = delete;

  // The next bytes, or the end of the connection.
  Status Feed(std::string_view bytes);
  Status End();

  bool has_head() const;
  bool done() const;
  // REQUIRES has_head().
  int status_code() const;
  const std::string& reason() const;
  std::string_view Header(std::string_view name) const;  // small letters; "" where there is none
  const std::vector<std::pair<std::string, std::string>>& headers() const;  // likewise
  bool is_event_stream() const;                                             // by its content type
  bool keep_alive() const;

 private:
  class Parser;
  std::unique_ptr<Parser> parser_;
  std::string unread_;  // an incomplete line
};

}  // namespace tandem
