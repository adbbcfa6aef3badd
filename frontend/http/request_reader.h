#pragma once

// Bytes → one HTTP/1 request, within the limits; the only user of Beast. Knows no sockets.
// Thread: one shard's. A reader reads one request.
// Failure: kFailed with a status code and a message for the client. The connection is then out of
// step and must be closed after the response.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "frontend/http/router.h"
#include "frontend/http/server_options.h"

namespace tandem {

class RequestReader {
 public:
  enum class Step {
    kNeedMore,  // all useful bytes of *in are taken
    kHead,      // the head is complete; returned once
    kDone,      // the body too
    kFailed,
  };

  explicit RequestReader(const ServerLimits& limits);
  ~RequestReader();
  RequestReader(const RequestReader&) = delete;

  // Removes the bytes that it read from the front of *in.
  Step Read(std::string* in);

  // After kHead, and after a 413 for an announced length.
  HttpRequest TakeHead();                                // all but body, arrival and request id
  const std::string& target() const { return target_; }  // as the client wrote it
  bool http11() const;
  bool keep_alive() const;
  bool has_body() const;
  std::optional<uint64_t> content_length() const;
  // After kDone.
  std::string TakeBody();
  // After kFailed.
  int error_status() const { return error_status_; }
  const std::string& error() const { return error_; }

 private:
  struct Beast;
  Step Fail(int status, std::string message);
  Step CheckHead();

  const ServerLimits& limits_;
  std::unique_ptr<Beast> beast_;
  std::string target_;
  int64_t head_bytes_ = 0;
  bool has_body_ = false;
  bool head_done_ = false;
  int error_status_ = 0;
  std::string error_;
};

}  // namespace tandem
