#include "frontend/api/openapi.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "common/strings.h"
#include "common/version.h"
#include "frontend/api/openapi_schemas.h"
#include "frontend/api/page.h"

namespace tandem {
namespace {

// Parameters in a query, by the route's method and path.
struct QueryParameter {
  std::string_view route;
  std::string_view name;
  std::string_view schema;
  std::string_view about;
};

constexpr std::string_view kBool = R"({"type":"boolean"})";
constexpr std::string_view kMode = R"({"enum":["abort","wait","keep"]})";

constexpr QueryParameter kQueryParameters[] = {
    {"GET /v1/responses/{response_id}", "stream", kBool, "The stored events."},
    {"GET /v1/responses/{response_id}", "starting_after", R"({"type":"integer","minimum":-1})",
     "Events with a larger number only; needs stream."},
    {"POST /pause", "mode", kMode, "What becomes of running requests."},
    {"POST /pause", "clear_cache", kBool, "Forget cached prefixes."},
    {"POST /sleep", "level", R"({"type":"integer","minimum":0,"maximum":2})", "0: pause only."},
    {"POST /sleep", "mode", kMode, "What becomes of running requests."},
    {"POST /wake_up", "tags",
     R"({"type":"array","items":{"enum":["weights","kv_cache","scheduling"]}})",
     "What is taken again; default: all."},
    {"POST /reset_prefix_cache", "reset_running_requests", kBool, "Preempt what runs."},
    {"POST /reset_prefix_cache", "reset_external", kBool, "Caches outside the engine too."},
    {"GET /server_info", "config_format", R"({"enum":["text","json"]})", "How flags are shown."},
};

// "/v1/models/{model_id:path}" and "/metrics*" as OpenAPI spells them.
std::string ShownPath(std::string path) {
  if (const size_t at = path.find(":path}"); at != std::string::npos) path.erase(at, 5);
  if (path.ends_with('*')) path.pop_back();
  return path;
}

Json Parameters(const Route& route, const std::string& path) {
  Json parameters = Json::array();
  for (size_t open = path.find('{'); open != path.npos; open = path.find('{', open + 1)) {
    const size_t close = path.find('}', open);
    parameters.push_back({{"name", path.substr(open + 1, close - open - 1)},
                          {"in", "path"},
                          {"required", true},
                          {"schema", {{"type", "string"}, {"minLength", 1}}}});
  }
  const std::string key = route.method + " " + path;
  for (const QueryParameter& each : kQueryParameters) {
    if (each.route != key) continue;
    parameters.push_back({{"name", each.name},
                          {"in", "query"},
                          {"required", false},
                          {"description", each.about},
                          {"schema", Json::parse(each.schema)}});
  }
  return parameters;
}

Json SchemaRef(std::string_view name) {
  return {{"$ref", "#/components/schemas/" + std::string(name)}};
}

Json Answer(std::string_view description, std::string_view media_type, std::string_view schema) {
  Json answer = {{"description", description}};
  if (!media_type.empty()) {
    answer["content"][std::string(media_type)] = {{"schema", SchemaRef(schema)}};
  }
  return answer;
}

Json Answers(const Route& route, const std::string& path) {
  const ResponseSchema& returns = FindResponseSchema(route.returns);
  Json answers;
  Json& success = answers["200"] = Answer("Success", returns.media_type, returns.name);
  if (returns.may_stream) success["content"]["text/event-stream"] = Json::object();
  const bool is_anthropic = path.starts_with("/v1/messages");
  const std::string_view error = is_anthropic ? "AnthropicError" : "Error";
  const auto add = [&](const char* status, std::string_view description) {
    answers[status] = Answer(description, "application/json", error);
  };
  const bool has_body = !route.body.empty();
  const bool has_parameters = path.find('{') != path.npos;
  if (has_body || has_parameters || !Parameters(route, path).empty()) {
    add("400", "The request is malformed, or asks for what this server does not have");
  }
  if (route.guarded) {
    answers["401"] = Answer("No API key, or a wrong one", "application/json",
                            is_anthropic ? error : "Unauthorized");
  }
  if (has_body || has_parameters) add("404", "There is no such model or response");
  if (has_body) add("413", "The body is too large");
  if (route.guarded) add("429", "The API key has too many open requests");
  if (has_body || route.guarded) add("500", "A defect of the server");
  if (!has_body && route.method == "POST") add("501", "The engine does not have it");
  if (has_body) add("504", "The request's time ran out before its first token");
  add("503", "No engine is ready, a queue is full, or the server shuts down");
  return answers;
}

std::string OperationId(const Route& route, std::string_view path) {
  std::string id = ToLower(route.method);
  for (const char c : path) {
    const bool is_word = std::isalnum(static_cast<unsigned char>(c)) != 0;
    if (is_word) {
      id += c;
    } else if (id.back() != '_') {
      id += '_';
    }
  }
  return id.back() == '_' ? id.substr(0, id.size() - 1) : id;
}

Json Operation(const Route& route, const std::string& path) {
  Json operation = {{"operationId", OperationId(route, path)}, {"summary", route.about}};
  Json parameters = Parameters(route, path);
  if (!parameters.empty()) operation["parameters"] = std::move(parameters);
  if (!route.body.empty()) {
    std::string_view body = route.body;
    const bool required = !body.ends_with('?');
    if (!required) body.remove_suffix(1);
    operation["requestBody"] = {{"required", required},
                                {"content", {{"application/json", {{"schema", SchemaRef(body)}}}}}};
  }
  operation["responses"] = Answers(route, path);
  if (route.guarded) {
    operation["security"] =
        Json::array({{{"bearer", Json::array()}}, {{"x-api-key", Json::array()}}, Json::object()});
  }
  return operation;
}

}  // namespace

std::string OpenApiDocument(const std::vector<Route>& routes, const std::string& root_path) {
  Json paths = Json::object();
  for (const Route& route : routes) {
    if (route.about.empty()) continue;
    const std::string path = ShownPath(route.path);
    paths[path][ToLower(route.method)] = Operation(route, path);
  }
  Json document = {
      {"openapi", "3.1.0"},
      {"info",
       {{"title", "Tandem"},
        {"version", kVersion},
        {"description",
         "The HTTP API of this server. Fields without effect and fields that are not in a schema "
         "are accepted and ignored."}}},
      {"paths", std::move(paths)},
      {"components",
       {{"schemas", ComponentSchemas()},
        {"securitySchemes",
         {{"bearer", {{"type", "http"}, {"scheme", "bearer"}}},
          {"x-api-key", {{"type", "apiKey"}, {"in", "header"}, {"name", "X-Api-Key"}}}}}}}};
  if (!root_path.empty()) document["servers"] = Json::array({{{"url", root_path}}});
  return DumpJson(document);
}

std::vector<Route> DocumentRoutes(std::vector<Route> routes, const std::string& root_path) {
  Route document{.method = "GET",
                 .path = "/openapi.json",
                 .handler = {},
                 .guarded = false,
                 .counted = false,
                 .json_body = false,
                 .about = "This document.",
                 .returns = "Object"};
  Route page = document;
  page.path = "/docs";
  page.about = "This document as a page.";
  page.returns = "Page";
  page.handler = SendsPage("text/html; charset=utf-8", [] { return std::string(DocsPage()); });
  Route other_page = page;
  other_page.path = "/redoc";
  for (const Route& each : {document, page, other_page}) routes.push_back(each);
  document.handler = SendsPage("application/json", [routes = std::move(routes), root_path] {
    return OpenApiDocument(routes, root_path);
  });
  return {std::move(document), std::move(page), std::move(other_page)};
}

}  // namespace tandem
