#include "frontend/http/request_checks.h"

#include <algorithm>

#include "common/strings.h"

namespace tandem {

namespace {

bool Lists(const std::vector<std::string>& list, std::string_view value) {
  return std::any_of(list.begin(), list.end(),
                     [value](const std::string& item) { return item == "*" || item == value; });
}

std::string Joined(const std::vector<std::string>& list) {
  std::string result;
  for (const std::string& item : list) result += result.empty() ? item : ", " + item;
  return result;
}

// The media type must be application/json; parameters are allowed.
bool IsJson(std::string_view content_type) {
  return ToLower(StripAscii(content_type.substr(0, content_type.find(';')))) == "application/json";
}

bool AllowsOrigin(const CorsOptions& cors, std::string_view origin) {
  return !origin.empty() && Lists(cors.origins, origin);
}

// The request that a browser sends before one from another origin.
std::optional<Response> Preflight(const CorsOptions& cors, const HttpRequest& request) {
  const std::string_view method = request.Header("access-control-request-method");
  if (request.method != "OPTIONS" || method.empty()) return std::nullopt;
  if (!AllowsOrigin(cors, request.Header("origin"))) return std::nullopt;
  if (!Lists(cors.methods, method)) {
    return Response{400, "Disallowed CORS method", "text/plain; charset=utf-8", {}};
  }
  Response response{200, "OK", "text/plain; charset=utf-8", {}};
  response.headers.emplace_back("access-control-allow-methods",
                                Lists(cors.methods, "*")
                                    ? "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT"
                                    : Joined(cors.methods));
  const std::string_view headers = request.Header("access-control-request-headers");
  if (!headers.empty()) {
    response.headers.emplace_back("access-control-allow-headers", Lists(cors.headers, "*")
                                                                      ? std::string(headers)
                                                                      : Joined(cors.headers));
  }
  response.headers.emplace_back("access-control-max-age", "600");
  return response;
}

}  // namespace

std::optional<Response> Refusal(const ServerOptions& options, const ApiKeys& keys,
                                const Router::Match& match, const HttpRequest& request,
                                bool has_body, bool draining) {
  const auto refuse = [&](int status, std::string_view message) {
    return options.error(request.path, status, message);
  };
  if (auto preflight = Preflight(options.cors, request)) return preflight;
  if (match.route == nullptr) {
    if (match.allow.empty()) return refuse(404, "the path does not exist");
    Response response = refuse(405, "the path does not have this method, it has " + match.allow);
    response.headers.emplace_back("allow", match.allow);
    return response;
  }
  const Route& route = *match.route;
  if (draining && !route.during_drain) {
    Response response = refuse(503, "the server is shutting down");
    response.headers.emplace_back("retry-after", "1");
    return response;
  }
  if (route.guarded && !keys.Admits(request)) {
    Response response = refuse(401, "Unauthorized");
    response.headers.emplace_back("www-authenticate", "Bearer");
    return response;
  }
  if (route.json_body && request.method == "POST" && has_body &&
      !IsJson(request.Header("content-type"))) {
    return refuse(400, "Unsupported Media Type: Only 'application/json' is allowed");
  }
  const std::string coding = ToLower(request.Header("content-encoding"));
  if (has_body && !coding.empty() && coding != "identity") {
    return refuse(400, "the body has the Content-Encoding '" + coding +
                           "', but must be sent as it is, without one");
  }
  const std::string expect = ToLower(request.Header("expect"));
  if (!expect.empty() && expect != "100-continue") {
    return refuse(417, "unknown expectation");
  }
  return std::nullopt;
}

HeaderList CorsHeaders(const CorsOptions& cors, const HttpRequest& request) {
  const std::string_view origin = request.Header("origin");
  if (!AllowsOrigin(cors, origin)) return {};
  const bool any = Lists(cors.origins, "*") && !cors.credentials;
  HeaderList headers = {{"access-control-allow-origin", any ? "*" : std::string(origin)}};
  if (cors.credentials) headers.emplace_back("access-control-allow-credentials", "true");
  if (!any) headers.emplace_back("vary", "Origin");
  return headers;
}

}  // namespace tandem
