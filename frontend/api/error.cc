#include "frontend/api/error.h"

#include <nlohmann/json.hpp>
#include <utility>

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
    case StatusCode::kDataLoss:  // what a URL of the request stands for cannot be had
      return {422, "UnprocessableEntityError"};
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

Status InWordsOfBody(std::span<const FieldName> names, Status status) {
  constexpr std::string_view kBody = "body.";
  const auto without_body = [&](std::string_view name) {
    return name.starts_with(kBody) ? name.substr(kBody.size()) : name;
  };
  for (const auto& [in_chat, in_body] : names) {
    if (status.param() != in_chat) continue;
    std::string message = status.message();
    const std::string_view name = without_body(in_chat);
    if (message.starts_with(name)) message.replace(0, name.size(), without_body(in_body));
    return Status(status.code(), std::move(message)).WithParam(std::string(in_body));
  }
  return status;
}

std::string ErrorBody(const ApiError& error) {
  const Json body = {{"error",
                      {{"message", error.message},
                       {"type", error.type},
                       {"param", error.param.empty() ? Json(nullptr) : Json(error.param)},
                       {"code", error.http_status}}}};
  return DumpJson(body);
}

namespace {

Response ResponseWith(int http_status, std::string body) {
  Response response;
  response.status = http_status;
  response.body = std::move(body);
  if (http_status == 503) response.headers.emplace_back("Retry-After", "1");
  return response;
}

}  // namespace

Response ErrorResponse(const Status& status) {
  const ApiError error = ToApiError(status);
  return ResponseWith(error.http_status, ErrorBody(error));
}

std::string ErrorEvent(const Status& status) {
  return "data: " + ErrorBody(ToApiError(status)) + "\n\n";
}

// ---- Anthropic's form ----

namespace {

const char* AnthropicType(int http_status) {
  switch (http_status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    default:
      return http_status >= 500 ? "api_error" : "invalid_request_error";
  }
}

}  // namespace

std::string AnthropicErrorBody(const ApiError& error) {
  return DumpJson(
      {{"type", "error"},
       {"error", {{"type", AnthropicType(error.http_status)}, {"message", error.message}}}});
}

Response AnthropicErrorResponse(const Status& status) {
  const ApiError error = ToApiError(status);
  return ResponseWith(error.http_status, AnthropicErrorBody(error));
}

// ---- Refusals by HTTP ----

Response HttpErrorResponse(std::string_view path, int status, std::string_view message) {
  const ApiError error{status, std::string(ReasonPhrase(status)), std::string(message), ""};
  Response response;
  response.status = status;
  if (path == "/v1/messages" || path.starts_with("/v1/messages/")) {
    response.body = AnthropicErrorBody(error);
  } else if (status == 404 || status == 405) {
    response.body = DumpJson({{"detail", error.type}});
  } else if (status == 401) {
    response.body = DumpJson({{"error", error.message}});
  } else {
    response.body = ErrorBody(error);
  }
  return response;
}

}  // namespace tandem
