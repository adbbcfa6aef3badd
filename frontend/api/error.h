#pragma once

// The one place that writes an error for a client: OpenAI's form and HTTP's code for each Status.
//   {"error": {"message": …, "type": …, "param": …, "code": 400}}
// Thread: pure functions. Messages of our own mistakes are replaced by general words.

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
// With Retry-After where trying again makes sense (503).
Response ErrorResponse(const Status& status);
// An error in the middle of a stream: one event; the stream's end is the caller's.
std::string ErrorEvent(const Status& status);

}  // namespace tandem
