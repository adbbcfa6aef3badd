#include "frontend/api/routes.h"

#include <nlohmann/json.hpp>
#include <set>

#include "common/strings.h"
#include "frontend/api/dev.h"
#include "frontend/api/error.h"
#include "frontend/api/models.h"
#include "frontend/api/openapi.h"
#include "frontend/api/openapi_schemas.h"
#include "proto_msgpack/wire_endpoint.h"
#include "test_server.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using nlohmann::json;

// The whole table on a server, with an engine that never connects.
struct Fixture {
  explicit Fixture(std::vector<std::string> api_keys = {}, bool has_dashboard = false)
      : metrics({.model_name = "m"}),
        endpoint({.handshake_address = "ipc:///nowhere", .data_address = "ipc:///"}),
        client({}, &endpoint,
               {.post = [](const std::function<void()>& call) { call(); },
                .at = [](double, const std::function<void()>&) {},
                .clock = &clock}) {
    context.engine_client = &client;
    context.metrics = &metrics;
    context.admission_gate = &admission_gate;
    context.clock = &clock;
    context.facts = &facts;
    context.options.served_model_names = {"m"};
    facts.model_root = "/models/m";
    facts.has_dashboard = has_dashboard;
    facts.num_requests = [this] { return server->server().num_requests(); };
    facts.is_draining = [this] { return server->server().draining(); };
    ServerOptions options;
    options.api_keys = std::move(api_keys);
    options.error = HttpErrorResponse;
    server = std::make_unique<TestServer>(ApiRoutes({&context}), std::move(options));
  }

  SystemClock clock;
  Metrics metrics;
  AdmissionGate admission_gate{AdmissionLimits()};
  wire::FrontendEndpoint endpoint;
  EngineClient client;
  ApiContext context;
  ServerFacts facts;
  std::unique_ptr<TestServer> server;
};

TEST_CASE("without an engine health is 503, metrics and version are served") {
  Fixture f;
  Client client(f.server->port());
  for (const char* path : {"/health", "/ping", "/ready", "/v1/models", "/v1/models/m"}) {
    CAPTURE(path);
    const Reply reply = client.Get(path);
    CHECK(reply.status == 503);
    CHECK(json::parse(reply.body)["error"]["code"] == 503);
    CHECK_FALSE(json::parse(reply.body)["error"]["message"].get<std::string>().empty());
  }
  CHECK(client.Post("/ping", "").status == 503);
  CHECK(client.Get("/version").body == R"({"version":"0.33.0"})");
  CHECK(client.Get("/load").body == R"({"server_load":0})");
  CHECK(client.Get("/is_sleeping").body == R"({"is_sleeping":false})");
  for (const char* path : {"/metrics", "/metrics/", "/metrics/x"}) {
    const Reply reply = client.Get(path);
    CHECK(reply.status == 200);
    CHECK(reply.Has("content-type: text/plain; version=0.0.4; charset=utf-8\r\n"));
    CHECK(reply.body.find("vllm:num_requests_running{engine=\"0\",model_name=\"m\"} 0.0\n") !=
          std::string::npos);
  }
}

TEST_CASE("/load counts open requests without probes when load tracking is on") {
  Fixture f;
  Client sender(f.server->port());
  // Open: its head is complete, its body is not.
  REQUIRE(
      sender.Send("GET /v1/models HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n"
                  "Expect: 100-continue\r\n\r\n"));
  while (sender.pending().empty()) REQUIRE(sender.Fill());
  Client client(f.server->port());
  CHECK(client.Get("/load").body == R"({"server_load":0})");
  f.facts.track_load = true;
  CHECK(client.Get("/load").body == R"({"server_load":1})");
  CHECK(sender.Ask("{}").status == 503);  // the engine is not ready
  CHECK(client.Get("/load").body == R"({"server_load":0})");
}

TEST_CASE("with a key set, only probes, metrics and what routers poll need none") {
  Fixture f({"key"});
  const std::set<std::string> probes = {"/health",   "/ready",        "/ping", "/version", "/load",
                                        "/metrics*", "/openapi.json", "/docs", "/redoc"};
  const std::set<std::string> polled = {"/tokenize", "/detokenize", "/is_sleeping",
                                        "/kv_event_sources"};
  for (const bool pools : {false, true}) {
    f.facts.pools = pools;
    for (const Route& route : ApiRoutes({&f.context})) {
      CAPTURE(route.path);
      const bool is_probe = probes.count(route.path) > 0;
      CHECK(route.guarded == (!is_probe && polled.count(route.path) == 0));
      CHECK(route.counted == !is_probe);
    }
  }
  Client client(f.server->port());
  CHECK(client.Get("/v1/models").status == 401);
  CHECK(client.Get("/v1/models", "Authorization: Bearer key\r\n").status == 503);
  CHECK(client.Post("/v1/completions", "{}").status == 401);
  CHECK(client.Get("/metrics").status == 200);
}

TEST_CASE("dev routes exist in dev mode only, need the key, and have one row each") {
  Fixture f;
  std::set<std::string> before;
  for (const Route& route : ApiRoutes({&f.context})) {
    before.insert(route.method + " " + route.path);
  }
  CHECK(before.count("POST /pause") == 0);
  f.facts.dev_mode = true;
  std::set<std::string> all;
  for (const Route& route : ApiRoutes({&f.context})) {
    CHECK(all.insert(route.method + " " + route.path).second);
    if (before.count(route.method + " " + route.path) == 0) CHECK(route.guarded);
  }
  CHECK(all.size() == before.size() + 11);  // /is_sleeping is in both
  CHECK(all.count("POST /sleep") == 1);
}

TEST_CASE("the dashboard's rows exist where it is on, its page is open, its state needs the key") {
  Fixture off;
  CHECK(Client(off.server->port()).Get("/dashboard").status == 404);
  Fixture f({"key"}, /*has_dashboard=*/true);
  Client client(f.server->port());
  const Reply page = client.Get("/dashboard");
  CHECK(page.status == 200);
  CHECK(page.Has("content-type: text/html; charset=utf-8\r\n"));
  CHECK(page.body.find("<title>Tandem</title>") != std::string::npos);
  CHECK(page.body.ends_with("</html>\n"));
  CHECK(client.Get("/dashboard/state").status == 401);
}

TEST_CASE("a wall clock that is set while the server runs does not change its uptime") {
  const double before = SystemClock().Monotonic();
  Fixture f({}, /*has_dashboard=*/true);
  f.facts.started_at = 1;  // the host had no time yet
  const json state = json::parse(Client(f.server->port()).Get("/dashboard/state").body);
  CHECK(state["uptime_s"] >= 0);
  CHECK(state["uptime_s"] <= SystemClock().Monotonic() - before);
}

TEST_CASE("without ids nothing is aborted outside of dev mode") {
  Fixture f({"key"});
  Client client(f.server->port());
  const char* path = "/inference/v1/abort_requests";
  CHECK(client.Post(path, "{}").status == 401);
  for (const char* body : {"", "{}", R"({"request_ids": null})", R"({"request_ids": []})",
                           R"({"request_ids": "a"})"}) {
    CAPTURE(body);
    const Reply reply = client.Post(path, body, "Authorization: Bearer key\r\n");
    CHECK(reply.status == 400);
    CHECK(json::parse(reply.body)["error"]["param"] == "request_ids");
  }
}

TEST_CASE("the document describes every row, and refers to nothing that it lacks") {
  Fixture f;
  f.facts.dev_mode = true;
  f.facts.changes_adapters = true;
  const auto routes = ApiRoutes({&f.context});
  Client client(f.server->port());
  const json document = json::parse(OpenApiDocument(routes));
  const json& schemas = document["components"]["schemas"];
  std::set<std::string> ids;
  for (const Route& route : routes) {
    CAPTURE(route.path);
    std::string path = route.path;
    if (const size_t at = path.find(":path"); at != path.npos) path.erase(at, 5);
    if (path.back() == '*') path.pop_back();
    const json operation = document["paths"][path][ToLower(route.method)];
    REQUIRE(operation.is_object());
    CHECK(ids.insert(operation["operationId"]).second);
    CHECK(operation["responses"].contains("200"));
    CHECK(operation["responses"].contains("401") == route.guarded);
    const bool has_body = !route.body.empty();
    CHECK(operation.contains("requestBody") == has_body);
    if (!has_body) continue;
    std::string schema = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"];
    schema.erase(0, std::string("#/components/schemas/").size());
    CHECK(schemas.contains(schema));
  }
  const Reply served = client.Get("/openapi.json");
  CHECK(served.status == 200);
  CHECK(json::parse(served.body)["paths"].contains("/v1/chat/completions"));
  const Reply page = client.Get("/docs");
  CHECK(page.Has("content-type: text/html; charset=utf-8\r\n"));
  CHECK(client.Get("/redoc").body == page.body);
}

TEST_CASE("a field's schema is what its row says") {
  const json schemas = json::parse(ComponentSchemas().dump());
  const json& chat = schemas["ChatCompletionRequest"]["properties"];
  const auto not_null = [&chat](const char* field) { return chat[field]["anyOf"][0]; };
  CHECK(not_null("top_p") == json({{"type", "number"}, {"exclusiveMinimum", 0}, {"maximum", 1}}));
  CHECK(not_null("n") == json({{"type", "integer"}, {"minimum", 1}, {"maximum", 16384}}));
  CHECK(not_null("stream") == json({{"type", "boolean"}}));
  CHECK(not_null("cache_salt") == json({{"type", "string"}, {"minLength", 1}, {"maxLength", 128}}));
  CHECK(not_null("bad_words") ==
        json({{"type", "array"}, {"items", {{"type", "string"}, {"minLength", 1}}}}));
  CHECK(not_null("return_mm_kwargs") == json({{"const", false}}));
  CHECK(chat["messages"]["minItems"] == 1);
  CHECK(chat["best_of"]["deprecated"] == true);
  CHECK_FALSE(schemas["ResponsesRequest"]["properties"].contains("max_tokens"));
  const json& sampling = schemas["GenerateRequest"]["properties"]["sampling_params"]["properties"];
  CHECK(sampling.contains("temperature"));
  CHECK_FALSE(sampling.contains("model"));
}

TEST_CASE("ServerEnvironment leaves out secrets") {
  const char* const environment[] = {"VLLM_LOGGING_LEVEL=DEBUG",
                                     "TANDEM_API_KEY=hidden",
                                     "VLLM_HF_TOKEN=hidden",
                                     "PATH=/bin",
                                     "TANDEM_EMPTY=",
                                     "VLLM_BROKEN",
                                     "TANDEM_PAIR=a=b",
                                     nullptr};
  const auto variables = ServerEnvironment(environment);
  CHECK(variables ==
        std::vector<std::pair<std::string, std::string>>{
            {"VLLM_LOGGING_LEVEL", "DEBUG"}, {"TANDEM_EMPTY", ""}, {"TANDEM_PAIR", "a=b"}});
}

TEST_CASE("a refusal by HTTP has the form of the API's errors") {
  const Response response = HttpErrorResponse("/v1/completions", 413, "too large");
  CHECK(response.status == 413);
  const json error = json::parse(response.body)["error"];
  CHECK(error["message"] == "too large");
  CHECK(error["code"] == 413);
  CHECK_FALSE(error["type"].get<std::string>().empty());
  CHECK(error["param"].is_null());
}

TEST_CASE("a refusal by HTTP looks as vLLM's for unknown paths, methods and keys") {
  CHECK(HttpErrorResponse("/x", 404, "m").body == R"({"detail":"Not Found"})");
  CHECK(HttpErrorResponse("/v1/models", 405, "m").body == R"({"detail":"Method Not Allowed"})");
  CHECK(HttpErrorResponse("/v1/models", 401, "Unauthorized").body == R"({"error":"Unauthorized"})");
}

TEST_CASE("below /v1/messages every refusal has the form of Anthropic's API") {
  Fixture f({"key"});
  Client client(f.server->port());
  const auto type_of = [](const Reply& reply) {
    const json body = json::parse(reply.body);
    CHECK(body["type"] == "error");
    CHECK_FALSE(body["error"]["message"].get<std::string>().empty());
    return body["error"]["type"].get<std::string>();
  };
  CHECK(type_of(client.Post("/v1/messages", "{}")) == "authentication_error");
  CHECK(type_of(client.Get("/v1/messages")) == "invalid_request_error");  // 405
  CHECK(type_of(client.Get("/v1/messages/batches")) == "not_found_error");
  const Reply reply = client.Ask(
      "POST /v1/messages HTTP/1.1\r\nHost: x\r\nX-Api-Key: key\r\nContent-Type: text/plain\r\n"
      "Content-Length: 2\r\n\r\n{}");
  CHECK(reply.status == 400);
  CHECK(type_of(reply) == "invalid_request_error");
  for (const auto& [status, type] : {std::pair(403, "permission_error"),
                                     {413, "request_too_large"},
                                     {429, "rate_limit_error"},
                                     {503, "overloaded_error"},
                                     {500, "api_error"},
                                     {408, "invalid_request_error"}}) {
    const Response response = HttpErrorResponse("/v1/messages", status, "m");
    CHECK(json::parse(response.body)["error"]["type"] == type);
  }
  CHECK(json::parse(HttpErrorResponse("/v1/messagesx", 413, "m").body)["error"]["code"] == 413);
}

TEST_CASE("the model list has a card for each served name") {
  const std::vector<std::string> names = {"a", "b"};
  const json list =
      json::parse(ModelListBody({names, ServedAdapters(), "/models/a", 1700000000, 4096}));
  CHECK(list["object"] == "list");
  REQUIRE(list["data"].size() == 2);
  for (size_t i = 0; i < 2; ++i) {
    const json& card = list["data"][i];
    CHECK(card["id"] == (i == 0 ? "a" : "b"));
    CHECK(card["object"] == "model");
    CHECK(card["owned_by"] == "vllm");
    CHECK(card["root"] == "/models/a");
    CHECK(card["parent"].is_null());
    CHECK(card["created"] == 1700000000);
    CHECK(card["max_model_len"] == 4096);
    CHECK(card["permission"][0]["allow_sampling"] == true);
    CHECK(card["permission"][0]["allow_create_engine"] == false);
  }
}

TEST_CASE("adapters have cards after the model's, with their folder and their parent") {
  const std::vector<std::string> names = {"a", "b"};
  const ServedAdapters adapters(
      {{{.name = "x", .id = 1, .path = "/x", .base_model_name = "b"}, 1700000001},
       {{.name = "y", .id = 2, .path = "/y", .base_model_name = "unknown"}, 1700000002}});
  const ModelCards cards{names, adapters, "/models/a", 1700000000, 4096};
  const json list = json::parse(ModelListBody(cards))["data"];
  REQUIRE(list.size() == 4);
  CHECK(list[2]["id"] == "x");
  CHECK(list[2]["root"] == "/x");
  CHECK(list[2]["parent"] == "b");
  CHECK(list[2]["created"] == 1700000001);
  CHECK(list[2]["max_model_len"].is_null());
  CHECK(list[3]["parent"] == "a");
  const json card = json::parse(*ModelBody(cards, "y"));
  CHECK(card["id"] == "y");
  CHECK(card["object"] == "model");
}

TEST_CASE("adapters are loaded and unloaded over HTTP only where the operator allows it") {
  Fixture f;
  Client client(f.server->port());
  CHECK(client.Post("/v1/load_lora_adapter", "{}").status == 404);
  CHECK(client.Post("/v1/unload_lora_adapter", "{}").body == R"({"detail":"Not Found"})");
  f.facts.changes_adapters = true;
  size_t num_found = 0;
  for (const Route& route : ApiRoutes({&f.context})) {
    if (route.path.find("lora") == std::string::npos) continue;
    ++num_found;
    CHECK(route.guarded);
  }
  CHECK(num_found == 2);
}

TEST_CASE("a model's card is found by its name, and any other name is NOT_FOUND") {
  const std::vector<std::string> names = {"a", "org/b"};
  const ServedAdapters adapters;
  const ModelCards cards{names, adapters, "/models/a", 1700000000, 4096};
  const auto card = ModelBody(cards, "org/b");
  REQUIRE(card.ok());
  CHECK(json::parse(*card)["id"] == "org/b");
  CHECK(json::parse(*card)["max_model_len"] == 4096);
  const Status status = ModelBody(cards, "c").status();
  CHECK(status.code() == StatusCode::kNotFound);
  CHECK(status.param() == "model");
  CHECK(status.message().find("`a`, `org/b`") != std::string::npos);
  HttpRequest request;
  request.path = "/v1/models/org%2Fb+c";
  CHECK(request.PathAfter("/v1/models/") == "org/b+c");
  CHECK(request.PathAfter("/v2/") == "");
}

}  // namespace
}  // namespace tandem
