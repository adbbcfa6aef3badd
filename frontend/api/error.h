#pragma once

// The one place that turns a Status into an error for a client: OpenAI's form and an HTTP code.
//   {"error": {"message": …, "type": …, "param": …, "code": 400}}
// The message of an internal error is replaced by general words. Pure functions; any thread.

#include <string>

#include "common/status.h"
#include "frontend/http/router.h"

namespace tandem {

struct ApiError {
  int http_status = 500;
  std::string type;
  std::string message;
  std::string param;  // empty: null
};

ApiError ToApiError(const Status& status);
std::string ErrorBody(const ApiError& error);
// With Retry-After where a retry may succeed (503).
Response ErrorResponse(const Status& status);
// An error in the middle of a stream: one event. The caller ends the stream.
std::string ErrorEvent(const Status& status);

}  // namespace tandem
