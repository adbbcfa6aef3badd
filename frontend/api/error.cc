#include "frontend/api/error.h"

#include <nlohmann/json.hpp>

#include "frontend/openai/json.h"

namespace tandem {
namespace {

struct ErrorForm {
  int http_status;
  const char* type;
};

ErrorForm FormOf(const Status& status) {
  switch (status.code()) {
    case StatusCode::kInvalidArgument:
    case StatusCode::kOutOfRange:
    case StatusCode::kAlreadyExists:
      // A malformed body names a place in it ("body.prompt"), a bad value names its field.
      return {400, status.param().rfind("body", 0) == 0 ? "Bad Request" : "BadRequestError"};
    case StatusCode::kFailedPrecondition:  // what the server, not the request's form, forbids
      return {400, "invalid_request_error"};
    case StatusCode::kUnauthenticated:
      return {401, "AuthenticationError"};
    case StatusCode::kPermissionDenied:
      return {403, "PermissionDeniedError"};
    case StatusCode::kNotFound:
      return {404, status.param() == "response_id" ? "invalid_request_error" : "NotFoundError"};
    case StatusCode::kUnimplemented:
      return {501, "NotImplementedError"};
    case StatusCode::kResourceExhausted:
      return {503, "Service Unavailable"};
    case StatusCode::kUnavailable:
      return {503, "ServiceUnavailableError"};
    case StatusCode::kDeadlineExceeded:
      return {504, "TimeoutError"};
    default:
      return {500, "InternalServerError"};
  }
}

}  // namespace

ApiError ToApiError(const Status& status) {
  const ErrorForm form = FormOf(status);
  ApiError error{form.http_status, form.type, status.message(), status.param()};
  if (form.http_status == 500) error.message = "Internal server error";
  return error;
}

std::string ErrorBody(const ApiError& error) {
  const Json body = {{"error",
                      {{"message", error.message},
                       {"type", error.type},
                       {"param", error.param.empty() ? Json(nullptr) : Json(error.param)},
                       {"code", error.http_status}}}};
  return DumpJson(body);
}

Response ErrorResponse(const Status& status) {
  const ApiError error = ToApiError(status);
  Response response;
  response.status = error.http_status;
  response.body = ErrorBody(error);
  if (error.http_status == 503) response.headers.emplace_back("Retry-After", "1");
  return response;
}

std::string ErrorEvent(const Status& status) {
  return "data: " + ErrorBody(ToApiError(status)) + "\n\n";
}

}  // namespace tandem
