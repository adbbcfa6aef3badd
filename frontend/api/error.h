#pragma once

// The one place that turns a Status into an error for a client: an HTTP code and OpenAI's form,
//   {"error": {"message": …, "type": …, "param": …, "code": 400}}
// or, on the paths of Anthropic's API, its form:
//   {"type": "error", "error": {"type": …, "message": …}}
// The message of an internal error is replaced by general words. Pure functions; any thread.

#include <span>
#include <string>
#include <string_view>

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
std::string AnthropicErrorBody(const ApiError& error);
Response AnthropicErrorResponse(const Status& status);

// A field of a chat request, and its name in the body that became the request.
struct FieldName {
  std::string_view in_chat;
  std::string_view in_body;
};

// The refusal of a chat request in the words of the body that became it.
Status InWordsOfBody(std::span<const FieldName> names, Status status);

// The response to a request that HTTP itself refuses (ServerOptions::error), in the form of the
// path's API. An unknown path or method and a missing key look as vLLM's do.
Response HttpErrorResponse(std::string_view path, int status, std::string_view message);
// An error in the middle of a stream: one event. The caller ends the stream.
std::string ErrorEvent(const Status& status);

}  // namespace tandem
