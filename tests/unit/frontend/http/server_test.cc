#include "test_server.h"

#include <chrono>
#include <optional>

#include "common/clock.h"
#include "common/random.h"
#include "tests/support/files/temp_folder.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using namespace std::chrono_literals;

constexpr auto kLimit = 20s;

Awaitable<void> Echo(Exchange& exchange) {
  exchange.Respond({200, exchange.mutable_request().body, "application/json", {}});
  co_return;
}

Awaitable<void> Where(Exchange& exchange) {
  const HttpRequest& request = exchange.request();
  exchange.Respond({200,
                    request.method + " " + request.path + "?" + request.query + " a=" +
                        request.Query("a") + " shard=" + std::to_string(exchange.shard().index()),
                    "text/plain",
                    {}});
  co_return;
}

// Waits until the client is gone and reports it.
struct Hang {
  std::promise<void> started;
  std::promise<void> gone;

  Handler handler(bool stream) {
    return [this, stream](Exchange& exchange) { return Run(exchange, stream); };
  }
  Awaitable<void> Run(Exchange& exchange, bool stream) {
    Event closed;
    exchange.OnClosed([&closed] { closed.Set(); });
    if (stream) exchange.StartEventStream().Send("data: first\n\n");
    started.set_value();
    co_await closed.Wait();
    gone.set_value();
  }
};

Route Row(std::string method, std::string path, Handler handler) {
  Route route;
  route.method = std::move(method);
  route.path = std::move(path);
  route.handler = std::move(handler);
  return route;
}

std::vector<Route> BasicRoutes() {
  std::vector<Route> routes;
  routes.push_back(Row("POST", "/echo", Echo));
  routes.push_back(Row("GET", "/where", Where));
  routes.push_back(Row("GET", "/open*", Where));
  routes.back().guarded = false;
  return routes;
}

bool Happens(std::promise<void>& promise) {
  return promise.get_future().wait_for(kLimit) == std::future_status::ready;
}

TEST_CASE("requests on one connection get their responses in order") {
  TestServer server(BasicRoutes());
  REQUIRE(server.status().ok());
  Client client(server.port());
  CHECK(client.Post("/echo", R"({"a":1})").body == R"({"a":1})");
  const Reply reply = client.Get("/where?a=x%20y&b=2");
  CHECK(reply.status == 200);
  CHECK(reply.body == "GET /where?a=x%20y&b=2 a=x y shard=0");
  CHECK(reply.Has("x-request-id: "));
  CHECK(reply.Has("content-type: text/plain\r\n"));
  CHECK(client.Post("/echo", "").Has("content-length: 0\r\n"));
}

TEST_CASE("the root path of a proxy is removed where a path has it") {
  ServerOptions options;
  options.root_path = "/llm";
  TestServer server(BasicRoutes(), std::move(options));
  Client client(server.port());
  CHECK(client.Get("/llm/where?a=1").body == "GET /where?a=1 a=1 shard=0");
  CHECK(client.Get("/where").body.starts_with("GET /where?"));
  CHECK(client.Get("/llm").status == 404);
  CHECK(client.Get("/llmwhere").status == 404);
  CHECK(client.Get("/llm/llm/where").status == 404);
}

TEST_CASE("pipelined requests are served one by one, in order") {
  TestServer server(BasicRoutes());
  Client client(server.port());
  std::string requests;
  for (int i = 0; i < 50; ++i) {
    const std::string body = "{\"n\":" + std::to_string(i) + "}";
    requests +=
        "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        "Content-Length: " +
        std::to_string(body.size()) + "\r\n\r\n" + body;
  }
  REQUIRE(client.Send(requests));
  for (int i = 0; i < 50; ++i) {
    CHECK(client.ReadReply().body == "{\"n\":" + std::to_string(i) + "}");
  }
}

TEST_CASE("a request may arrive byte by byte") {
  TestServer server(BasicRoutes());
  Client client(server.port());
  const std::string request =
      "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json; charset=utf-8\r\n"
      "Transfer-Encoding: chunked\r\n\r\n3\r\n{\"a\r\n4\r\n\":1}\r\n0\r\n\r\n";
  for (const char c : request) REQUIRE(client.Send({&c, 1}));
  CHECK(client.ReadReply().body == "{\"a\":1}");
}

TEST_CASE("empty lines before a request are ignored") {
  TestServer server(BasicRoutes());
  Client client(server.port());
  const std::string request = "GET /where HTTP/1.1\r\nHost: x\r\n\r\n";
  CHECK(client.Ask("\r\n\r\n" + request).status == 200);
  CHECK(client.Ask("\r\n" + request + "\r\n").status == 200);
  for (const char c : std::string_view("\r\n\r\n")) REQUIRE(client.Send({&c, 1}));
  CHECK(client.Ask(request).status == 200);
  CHECK(client.Ask("\r" + request).status == 400);

  ServerOptions options;
  options.limits.head_s = 0.05;
  TestServer impatient(BasicRoutes(), std::move(options));
  Client silent(impatient.port());
  REQUIRE(silent.Send("\r\n"));
  CHECK(silent.ReadToEnd());  // no request began: closed without a response
  CHECK(silent.pending().empty());
}

TEST_CASE("a row's path may have parts that vary") {
  const Router router({Row("GET", "/a/{id}", Where), Row("POST", "/a/{id}/cancel", Where),
                       Row("GET", "/m/{name:path}", Where), Row("GET", "/x*", Where),
                       Row("POST", "/a/own", Where)});
  const auto found = [&router](std::string_view method, std::string_view path) {
    const Router::Match match = router.Find(method, path);
    return match.route == nullptr ? "405 " + match.allow : match.route->path;
  };
  CHECK(found("GET", "/a/1") == "/a/{id}");
  CHECK(found("GET", "/a/%2F") == "/a/{id}");
  CHECK(found("POST", "/a/1/cancel") == "/a/{id}/cancel");
  CHECK(found("POST", "/a/1") == "405 GET");
  CHECK(found("GET", "/a/1/cancel") == "405 POST");
  for (const char* unknown :
       {"/a", "/a/", "/a//cancel", "/a/1/", "/a/1/cancel/", "/a/1/x", "/m/"}) {
    CAPTURE(unknown);
    CHECK(found("GET", unknown) == "405 ");
  }
  CHECK(found("GET", "/m/org/name") == "/m/{name:path}");
  CHECK(found("GET", "/x") == "/x*");
  CHECK(found("POST", "/a/own") == "/a/own");
  CHECK(found("GET", "/a/own") == "405 POST");
  CHECK(found("GET", "/xy/z") == "/x*");
}

TEST_CASE("parts of a path are percent-decoded one by one") {
  HttpRequest request;
  request.path = "/v1/responses/a%2Fb/cancel";
  CHECK(request.PathPart(1) == "responses");
  CHECK(request.PathPart(2) == "a/b");
  CHECK(request.PathPart(3) == "cancel");
  CHECK(request.PathPart(4).empty());
}

TEST_CASE("unknown paths are 404, wrong methods 405 with the allowed ones") {
  TestServer server(BasicRoutes());
  Client client(server.port());
  Reply reply = client.Get("/nothing");
  CHECK(reply.status == 404);
  CHECK(reply.body == "error: the path does not exist");
  reply = client.Get("/echo");
  CHECK(reply.status == 405);
  CHECK(reply.body == "error: the path does not have this method, it has POST");
  CHECK(reply.Has("allow: POST\r\n"));
  CHECK(client.Get("/open/anything").status == 200);
  CHECK(client.Get("/openly").status == 200);
}

TEST_CASE("HEAD responds like GET without a body") {
  TestServer server(BasicRoutes());
  Client client(server.port());
  REQUIRE(client.Send("HEAD /where HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"));
  REQUIRE(client.ReadToEnd());
  CHECK(client.pending().find("content-length: ") != std::string::npos);
  CHECK(client.pending().ends_with("\r\n\r\n"));
}

TEST_CASE("a body that is not application/json is refused") {
  TestServer server(BasicRoutes());
  Client client(server.port());
  const Reply reply = client.Ask(
      "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}");
  CHECK(reply.status == 400);
  CHECK(client.Post("/echo", "{}").status == 200);  // the connection is still usable
}

TEST_CASE("a body that is packed is refused by the name of its coding") {
  TestServer server(BasicRoutes());
  Client client(server.port());
  const Reply reply = client.Post("/echo", "{}", "Content-Encoding: gzip\r\n");
  CHECK(reply.status == 400);
  CHECK(reply.body.find("Content-Encoding 'gzip'") != std::string::npos);
  CHECK(client.Post("/echo", "{}", "Content-Encoding: identity\r\n").status == 200);
}

TEST_CASE("guarded rows need one of the keys, open rows do not") {
  ServerOptions options;
  options.api_keys = {"first", "second"};
  TestServer server(BasicRoutes(), std::move(options));
  Client client(server.port());
  Reply reply = client.Get("/where");
  CHECK(reply.status == 401);
  CHECK(reply.body == "error: Unauthorized");
  CHECK(reply.Has("www-authenticate: Bearer\r\n"));
  CHECK(client.Get("/where", "Authorization: Bearer firs\r\n").status == 401);
  CHECK(client.Get("/where", "Authorization: Bearer firsT\r\n").status == 401);
  CHECK(client.Get("/where", "Authorization: Basic first\r\n").status == 401);
  CHECK(client.Get("/where", "Authorization: Bearer first\r\n").status == 200);
  CHECK(client.Get("/where", "authorization: bearer second\r\n").status == 200);
  CHECK(client.Get("/where", "X-Api-Key: second\r\n").status == 200);
  CHECK(client.Get("/where", "x-api-key: Bearer second\r\n").status == 401);
  CHECK(client.Get("/where", "x-api-key: \r\n").status == 401);
  CHECK(client.Get("/open").status == 200);
  CHECK(client.Get("/nothing").status == 404);
}

TEST_CASE("a body over the limit is 413 before it is sent") {
  ServerOptions options;
  options.limits.body_bytes = 1000;
  options.error = [](std::string_view path, int status, std::string_view) {
    return Response{status, std::string(path), "text/plain", {}};
  };
  TestServer server(BasicRoutes(), std::move(options));
  SECTION("announced") {
    Client client(server.port());
    const Reply reply = client.Ask(
        "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        "Content-Length: 1001\r\n\r\n");
    CHECK(reply.status == 413);
    CHECK(reply.body == "/echo");
    CHECK(client.ReadToEnd());
  }
  SECTION("chunked") {
    Client client(server.port());
    std::string body = "3e8\r\n" + std::string(1000, 'x') + "\r\n1\r\nx\r\n0\r\n\r\n";
    const Reply reply = client.Ask(
        "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        "Transfer-Encoding: chunked\r\n\r\n" +
        body);
    CHECK(reply.status == 413);
  }
  SECTION("just under it") {
    Client client(server.port());
    CHECK(client.Post("/echo", std::string(1000, 'x')).body.size() == 1000);
  }
}

TEST_CASE("a client that sends a huge body anyway still reads its 413") {
  ServerOptions options;
  options.limits.body_bytes = 1 << 20;
  TestServer server(BasicRoutes(), std::move(options));
  Client client(server.port());
  const std::string body(8 << 20, 'x');
  const Reply reply = client.Post("/echo", body);
  CHECK(reply.status == 413);
  CHECK(Client(server.port()).Post("/echo", "{}").status == 200);
}

TEST_CASE("large bodies pass in both directions") {
  TestServer server(BasicRoutes());
  Client client(server.port());
  std::string body(5 << 20, 'x');
  for (size_t i = 0; i < body.size(); i += 997) body[i] = static_cast<char>('a' + i % 26);
  CHECK(client.Post("/echo", body).body == body);
}

TEST_CASE("header fields that are too large or too many are 431") {
  ServerOptions options;
  options.limits.header_bytes = 4096;
  options.limits.num_headers = 20;
  TestServer server(BasicRoutes(), std::move(options));
  CHECK(Client(server.port()).Get("/where", "X-A: " + std::string(5000, 'a') + "\r\n").status ==
        431);
  std::string many;
  for (int i = 0; i < 30; ++i) many += "X-" + std::to_string(i) + ": 1\r\n";
  CHECK(Client(server.port()).Get("/where", many).status == 431);
  CHECK(Client(server.port()).Get("/where").status == 200);
}

TEST_CASE("connections beyond the limit get 503") {
  ServerOptions options;
  options.limits.num_connections = 2;
  TestServer server(BasicRoutes(), std::move(options));
  Client one(server.port()), two(server.port());
  CHECK(one.Get("/where").status == 200);
  CHECK(two.Get("/where").status == 200);
  Client three(server.port());
  CHECK(three.ReadReply().status == 503);
  CHECK(three.ReadToEnd());
}

TEST_CASE("a head that never ends is 408, an idle connection is closed") {
  ServerOptions options;
  options.limits.head_s = 0.05;
  TestServer server(BasicRoutes(), std::move(options));
  // It is accepted once its first bytes are there: later than the limit, there would be no request.
  std::promise<void> sent;
  server.shard().Post([&sent] { sent.get_future().wait(); });
  Client slow(server.port());
  const bool is_sent = slow.Send("GET /where HTTP/1.1\r\nX-Slow: ");
  sent.set_value();
  REQUIRE(is_sent);
  CHECK(slow.ReadReply().status == 408);

  ServerOptions keeping;  // on a busy machine a whole head may take longer than the other's limit
  keeping.limits.keep_alive_s = 0.05;
  TestServer keeper(BasicRoutes(), std::move(keeping));
  Client idle(keeper.port());
  CHECK(idle.Get("/where").status == 200);
  CHECK(idle.ReadToEnd());
}

TEST_CASE("a body that never ends is 408") {
  ServerOptions options;
  options.limits.body_s = 0.05;
  TestServer server(BasicRoutes(), std::move(options));
  const std::string head = "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n";
  for (const std::string& begun : {head + "Content-Length: 9\r\n\r\n{\"a\"",
                                   head + "Transfer-Encoding: chunked\r\n\r\n9\r\n{\"a\""}) {
    Client slow(server.port());
    REQUIRE(slow.Send(begun));
    CHECK(slow.ReadReply().status == 408);
    CHECK(slow.ReadToEnd());
  }
}

TEST_CASE("Expect: 100-continue gets its response before the body") {
  TestServer server(BasicRoutes());
  Client client(server.port());
  REQUIRE(client.Send(
      "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 2\r\n"
      "Expect: 100-continue\r\n\r\n"));
  while (client.pending().find("100 Continue") == std::string::npos) REQUIRE(client.Fill());
  REQUIRE(client.Send("{}"));
  CHECK(client.ReadReply().body == "{}");
}

TEST_CASE("the request id is the client's when it is usable") {
  TestServer server(BasicRoutes());
  Client client(server.port());
  CHECK(client.Get("/where", "X-Request-Id: abc-1\r\n").Has("x-request-id: abc-1\r\n"));
  CHECK_FALSE(client.Get("/where", "X-Request-Id: a b\r\n").Has("x-request-id: a b\r\n"));
  CHECK_FALSE(client.Get("/where", "X-Request-Id: " + std::string(200, 'a') + "\r\n")
                  .Has(std::string(200, 'a')));
}

TEST_CASE("CORS headers are sent to allowed origins only") {
  ServerOptions options;
  options.cors.origins = {"https://ui.example"};
  TestServer server(BasicRoutes(), std::move(options));
  Client client(server.port());
  CHECK(client.Get("/where", "Origin: https://ui.example\r\n")
            .Has("access-control-allow-origin: https://ui.example\r\n"));
  CHECK_FALSE(
      client.Get("/where", "Origin: https://other.example\r\n").Has("access-control-allow-origin"));
  const std::string preflight =
      "OPTIONS /echo HTTP/1.1\r\nHost: x\r\nOrigin: https://ui.example\r\n"
      "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: x-a\r\n\r\n";
  const Reply reply = client.Ask(preflight);
  CHECK(reply.status == 200);
  CHECK(reply.Has("access-control-allow-headers: x-a\r\n"));
  CHECK(client.Ask("OPTIONS /echo HTTP/1.1\r\nHost: x\r\n\r\n").status == 405);
}

TEST_CASE("events are sent as chunks, to HTTP/1.0 clients until the connection closes") {
  std::vector<Route> routes;
  routes.push_back(Row("GET", "/events", [](Exchange& exchange) -> Awaitable<void> {
    EventStream& stream = exchange.StartEventStream();
    for (int i = 0; i < 3; ++i) stream.Send("data: " + std::to_string(i) + "\n\n");
    stream.Finish();
    co_return;
  }));
  TestServer server(std::move(routes));
  Client client(server.port());
  for (int i = 0; i < 2; ++i) {  // the connection stays usable
    const Reply reply = client.Get("/events");
    CHECK(reply.body == "data: 0\n\ndata: 1\n\ndata: 2\n\n");
    CHECK(reply.Has("content-type: text/event-stream; charset=utf-8\r\n"));
  }
  Client old(server.port());
  const Reply reply = old.Ask("GET /events HTTP/1.0\r\n\r\n");
  CHECK(reply.body == "data: 0\n\ndata: 1\n\ndata: 2\n\n");
}

TEST_CASE("a client that leaves is noticed while its request waits or streams") {
  Hang waiting, streaming;
  std::vector<Route> routes;
  routes.push_back(Row("POST", "/wait", waiting.handler(false)));
  routes.push_back(Row("POST", "/stream", streaming.handler(true)));
  TestServer server(std::move(routes));
  const auto leave = [&server](std::string_view path, Hang& hang) {
    Client client(server.port());
    REQUIRE(client.Send("POST " + std::string(path) +
                        " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                        "Content-Length: 2\r\n\r\n{}"));
    REQUIRE(Happens(hang.started));
    SECTION("with bytes of a next request sent") { CHECK(client.Send("GET /wait HTTP/1.1\r\n")); }
    SECTION("at once") {}
    client.Close();
    CHECK(Happens(hang.gone));
  };
  SECTION("waiting") { leave("/wait", waiting); }
  SECTION("streaming") { leave("/stream", streaming); }
}

TEST_CASE("a client that has shut down its writing side reads its responses") {
  TestServer server(BasicRoutes());
  Client client(server.port());
  REQUIRE(
      client.Send("GET /where?n=1 HTTP/1.1\r\nHost: x\r\n\r\n"
                  "GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n"
                  "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                  "Content-Length: 2\r\n\r\n{}"));
  client.EndInput();
  CHECK(client.ReadReply().status == 200);
  CHECK(client.ReadReply().status == 404);
  CHECK(client.ReadReply().body == "{}");
  CHECK(client.ReadToEnd());
  for (const std::string_view part :
       {"GET /wh",
        "POST /echo HTTP/1.1\r\nHost: x\r\n"
        "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{"}) {
    Client incomplete(server.port());
    REQUIRE(incomplete.Send(part));
    incomplete.EndInput();
    CHECK(incomplete.ReadToEnd());
    CHECK(incomplete.pending().empty());
  }
}

TEST_CASE("a handler that waits gives up when its client shuts down its writing side") {
  Hang waiting, streaming;
  std::vector<Route> routes;
  routes.push_back(Row("GET", "/wait", waiting.handler(false)));
  routes.push_back(Row("GET", "/stream", streaming.handler(true)));
  TestServer server(std::move(routes));
  const auto give_up = [&server](std::string_view path, Hang& hang, bool at_once) {
    Client client(server.port());
    REQUIRE(client.Send("GET " + std::string(path) + " HTTP/1.1\r\nHost: x\r\n\r\n"));
    if (!at_once) REQUIRE(Happens(hang.started));
    client.EndInput();
    CHECK(Happens(hang.gone));
    CHECK(client.ReadToEnd());
    CHECK_FALSE(client.pending().starts_with("HTTP/1.1 500"));  // ids may have the digits, too
  };
  SECTION("waiting") { give_up("/wait", waiting, false); }
  SECTION("streaming") { give_up("/stream", streaming, false); }
  SECTION("before it began") { give_up("/wait", waiting, true); }
}

TEST_CASE("a client that left before OnClosed was set is reported too") {
  std::promise<void> started, gone;
  std::vector<Route> routes;
  routes.push_back(Row("GET", "/late", [&](Exchange& exchange) -> Awaitable<void> {
    started.set_value();
    Event closed;
    while (!exchange.closed()) co_await SleepUntil(SystemClock().Monotonic() + 0.001);
    exchange.OnClosed([&closed] { closed.Set(); });
    co_await closed.Wait();
    gone.set_value();
  }));
  TestServer server(std::move(routes));
  Client client(server.port());
  REQUIRE(client.Send("GET /late HTTP/1.1\r\nHost: x\r\n\r\n"));
  REQUIRE(Happens(started));
  client.Close();
  CHECK(Happens(gone));
}

TEST_CASE("a reader too slow for its stream is cut at the limit, so memory stays bounded") {
  std::promise<size_t> most_unsent;
  std::promise<bool> lagging;
  std::vector<Route> routes;
  routes.push_back(Row("GET", "/flood", [&](Exchange& exchange) -> Awaitable<void> {
    EventStream& stream = exchange.StartEventStream();
    const std::string event = "data: " + std::string(4096, 'x') + "\n\n";
    size_t most = 0;
    while (stream.Send(event)) most = std::max(most, stream.unsent_bytes());
    most_unsent.set_value(most);
    lagging.set_value(stream.lagging());
    co_return;
  }));
  ServerOptions options;
  options.limits.unsent_bytes_per_stream = 256 << 10;
  TestServer server(std::move(routes), std::move(options));
  Client client(server.port(), 4096);
  REQUIRE(client.Send("GET /flood HTTP/1.1\r\nHost: x\r\n\r\n"));
  auto unsent = most_unsent.get_future();
  REQUIRE(unsent.wait_for(kLimit) == std::future_status::ready);
  CHECK(unsent.get() <= 256 << 10);
  CHECK(lagging.get_future().get());
  CHECK(client.ReadToEnd());
}

TEST_CASE("a reader that catches up gets every byte") {
  constexpr int kEvents = 2000;
  std::vector<Route> routes;
  routes.push_back(Row("GET", "/events", [](Exchange& exchange) -> Awaitable<void> {
    EventStream& stream = exchange.StartEventStream();
    for (int i = 0; i < kEvents; ++i) {
      stream.Send("data: " + std::to_string(i) + std::string(1000, ' ') + "\n\n");
    }
    stream.Finish();
    co_return;
  }));
  ServerOptions options;
  options.limits.unsent_bytes_per_stream = 64 << 20;
  TestServer server(std::move(routes), std::move(options));
  Client client(server.port(), 4096);
  std::string expected;
  for (int i = 0; i < kEvents; ++i) {
    expected += "data: " + std::to_string(i) + std::string(1000, ' ') + "\n\n";
  }
  CHECK(client.Get("/events").body == expected);
}

TEST_CASE("a handler that returns without a response or an end does not leave the client waiting") {
  std::vector<Route> routes;
  routes.push_back(Row("GET", "/silent", [](Exchange&) -> Awaitable<void> { co_return; }));
  routes.push_back(Row("GET", "/unfinished", [](Exchange& exchange) -> Awaitable<void> {
    exchange.StartEventStream().Send("data: 1\n\n");
    co_return;
  }));
  TestServer server(std::move(routes));
  CHECK(Client(server.port()).Get("/silent").status == 500);
  Client client(server.port());
  CHECK(client.Get("/unfinished").status == 0);
}

TEST_CASE("connections are spread over the shards") {
  TestServer server(BasicRoutes(), {}, 3);
  std::vector<std::string> seen;
  for (int i = 0; i < 3; ++i) seen.push_back(Client(server.port()).Get("/where").body);
  for (int i = 0; i < 3; ++i) {
    CHECK(seen[static_cast<size_t>(i)].ends_with("shard=" + std::to_string(i)));
  }
}

TEST_CASE("a port in use is an error that names it") {
  TestServer first(BasicRoutes());
  Shard shard(0);
  ServerOptions options;
  options.host = "127.0.0.1";
  options.port = first.port();
  options.error = [](std::string_view, int, std::string_view) { return Response(); };
  HttpServer second(std::move(options), Router({}), {&shard});
  const Status status = second.Listen();
  CHECK_FALSE(status.ok());
  CHECK(status.message().find(std::to_string(first.port())) != std::string::npos);
}

// A server with a running request, "/slow", which ends in Finish; Where serves "/probe", also
// during a drain.
struct BusyServer {
  explicit BusyServer(std::vector<Route> routes = BasicRoutes(), ServerOptions options = {}) {
    routes.push_back(Row("GET", "/slow", [this](Exchange& exchange) { return Slow(exchange); }));
    routes.push_back(Row("GET", "/probe", Where));
    routes.back().during_drain = true;
    server = std::make_unique<TestServer>(std::move(routes), std::move(options));
    slow = std::make_unique<Client>(port());
    REQUIRE(slow->Send("GET /slow HTTP/1.1\r\nHost: x\r\n\r\n"));
    REQUIRE(Happens(started));
  }
  Awaitable<void> Slow(Exchange& exchange) {
    Event event;
    finish = &event;
    started.set_value();
    co_await event.Wait();
    exchange.Respond({200, "done", "text/plain", {}});
  }
  // Returns once the shard has read what other clients had sent: it has served a later request.
  void Pass() {
    Client later(port());
    CHECK(later.Get("/probe").status == 200);
    CHECK(later.Get("/probe").status == 200);
  }
  void BeginDrain() {
    server->server().BeginDrain();
    server->server().WhenDrained([this] { drained.set_value(); });
  }
  void Finish() {
    server->shard().Post([this] { finish->Set(); });
    CHECK(slow->ReadReply().body == "done");
  }
  int port() const { return server->port(); }

  std::promise<void> started, drained;
  Event* finish = nullptr;
  std::unique_ptr<TestServer> server;
  std::unique_ptr<Client> slow;
};

TEST_CASE("a drain refuses new requests, lets open ones end and then reports") {
  BusyServer busy;
  Client idle(busy.port()), half(busy.port()), probing(busy.port());
  CHECK(idle.Get("/where").status == 200);
  CHECK(half.Get("/where").status == 200);
  CHECK(probing.Get("/where").status == 200);
  // Both are inside a request when the drain begins.
  REQUIRE(half.Send("GET /where HTTP/1.1\r\n"));
  REQUIRE(probing.Send("GET /probe HTTP/1.1\r\n"));
  busy.Pass();
  busy.BeginDrain();
  CHECK(idle.ReadToEnd());
  REQUIRE(half.Send("Host: x\r\n\r\n"));
  const Reply refused = half.ReadReply();
  CHECK(refused.status == 503);
  CHECK(refused.Has("retry-after: "));
  CHECK(refused.Has("connection: close"));
  REQUIRE(probing.Send("Host: x\r\n\r\n"));
  CHECK(probing.ReadReply().status == 200);
  busy.Finish();
  CHECK(Happens(busy.drained));
}

TEST_CASE("new connections during a drain: probes are served, other requests get 503") {
  BusyServer busy;
  busy.BeginDrain();
  for (int i = 0; i < 3; ++i) {
    Client probing(busy.port());
    const Reply probe = probing.Get("/probe");
    CHECK(probe.status == 200);
    CHECK(probe.Has("connection: close"));
    CHECK(probing.ReadToEnd());
    const Reply refused = Client(busy.port()).Post("/echo", "{}");
    CHECK(refused.status == 503);
    CHECK(refused.Has("retry-after: "));
    CHECK(refused.Has("connection: close"));
  }
  busy.Finish();
  CHECK(Happens(busy.drained));
  CHECK_FALSE(Client(busy.port()).connected());
}

TEST_CASE("a connection that is new when a drain begins gets a response") {
  ServerOptions options;
  options.limits.linger_s = 20;
  BusyServer busy(BasicRoutes(), std::move(options));
  Client asking(busy.port()), late(busy.port());
  busy.Pass();  // both are accepted
  busy.BeginDrain();
  CHECK(Client(busy.port()).Get("/probe").status == 200);  // the drain has begun
  const Reply refused = asking.Post("/echo", "{}");
  CHECK(refused.status == 503);
  CHECK(refused.Has("retry-after: "));
  busy.Finish();
  CHECK(late.Get("/probe").status == 200);
  CHECK(Happens(busy.drained));
}

TEST_CASE("a drain keeps the connection limit") {
  ServerOptions options;
  options.limits.num_connections = 2;
  options.limits.linger_s = 0.01;
  BusyServer busy(BasicRoutes(), std::move(options));
  busy.BeginDrain();
  Client silent(busy.port());
  Client one_more(busy.port());
  const Reply refused = one_more.ReadReply();
  CHECK(refused.status == 503);
  CHECK(refused.Has("retry-after: "));
  busy.Finish();
  CHECK(Happens(busy.drained));
  CHECK(silent.ReadToEnd());
}

TEST_CASE("neither probes nor silent clients delay the end of a drain") {
  Hang hang;
  std::vector<Route> routes = BasicRoutes();
  routes.push_back(Row("GET", "/hanging-probe", hang.handler(false)));
  routes.back().during_drain = true;
  ServerOptions options;
  options.limits.linger_s = 0.01;
  BusyServer busy(std::move(routes), std::move(options));
  busy.BeginDrain();
  Client silent(busy.port()), half(busy.port()), probing(busy.port());
  REQUIRE(half.Send("GET /probe HTTP/1.1\r\n"));
  REQUIRE(probing.Send("GET /hanging-probe HTTP/1.1\r\nHost: x\r\n\r\n"));
  REQUIRE(Happens(hang.started));
  busy.Finish();
  CHECK(Happens(busy.drained));
  CHECK(Happens(hang.gone));
  CHECK(silent.ReadToEnd());
  CHECK(half.ReadToEnd());
  CHECK(probing.ReadToEnd());
}

TEST_CASE("a drain without requests ends at once, and a second server may listen") {
  auto first = std::make_unique<TestServer>(BasicRoutes());
  const int port = first->port();
  CHECK(Client(port).Get("/where").status == 200);
  std::promise<void> drained;
  first->server().BeginDrain();
  first->server().WhenDrained([&drained] { drained.set_value(); });
  CHECK(Happens(drained));
  Shard shard(0);
  ServerOptions options;
  options.host = "127.0.0.1";
  options.port = port;
  options.error = [](std::string_view, int, std::string_view) { return Response(); };
  HttpServer second(std::move(options), Router({}), {&shard});
  CHECK(second.Listen().ok());
}

TEST_CASE("another server may take a UNIX socket as soon as a drain is over") {
  const TempFolder folder;
  const std::string path = folder.PathOf("socket");
  const auto options = [&path] {
    ServerOptions made;
    made.uds = path;
    made.error = [](std::string_view, int, std::string_view) { return Response(); };
    return made;
  };
  Shard first_shard(0), second_shard(0);
  auto first = std::make_unique<HttpServer>(options(), Router({}), std::vector{&first_shard});
  HttpServer second(options(), Router({}), {&second_shard});
  REQUIRE(first->Listen().ok());
  CHECK(second.Listen().code() == StatusCode::kAlreadyExists);
  first_shard.Start();
  std::promise<void> drained;
  first->BeginDrain();
  first->WhenDrained([&drained] { drained.set_value(); });
  REQUIRE(Happens(drained));
  CHECK(second.Listen().ok());
  first_shard.Stop();
  first_shard.Join();
  first.reset();
  CHECK(::access(path.c_str(), F_OK) == 0);  // the first server does not remove the second one's
}

// Retires a server on its shard, and reports when its last connection has ended.
void Retire(TestServer& server, std::promise<void>* ended) {
  server.shard().Post([&server] { server.server().Retire(); });
  server.server().WhenDrained([ended] { ended->set_value(); });
}

ServerOptions WithIdleLimit(double retired_idle_s) {
  ServerOptions options;
  options.limits.retired_idle_s = retired_idle_s;
  return options;
}

TEST_CASE("a retired server accepts nothing, and serves each connection that it has once more") {
  BusyServer busy(BasicRoutes(), WithIdleLimit(1000));
  Client idle(busy.port()), half(busy.port());
  CHECK(idle.Get("/where").status == 200);
  REQUIRE(half.Send("GET /where HTTP/1.1\r\n"));
  busy.Pass();
  std::promise<void> ended;
  Retire(*busy.server, &ended);
  std::promise<void> retired;
  busy.server->shard().Post([&retired] { retired.set_value(); });
  REQUIRE(Happens(retired));
  CHECK_FALSE(Client(busy.port()).connected());
  REQUIRE(half.Send("Host: x\r\n\r\n"));
  for (const Reply& last : {idle.Post("/echo", "{}"), half.ReadReply()}) {
    CHECK(last.status == 200);
    CHECK(last.Has("connection: close"));
  }
  CHECK(idle.ReadToEnd());
  CHECK(half.ReadToEnd());
  busy.Finish();
  CHECK(Happens(ended));
}

TEST_CASE("a retired server closes connections that stay idle") {
  TestServer server(BasicRoutes(), WithIdleLimit(0.01));
  Client used(server.port()), silent(server.port());
  CHECK(used.Get("/where").status == 200);
  std::promise<void> ended;
  Retire(server, &ended);
  CHECK(used.ReadToEnd());
  CHECK(silent.ReadToEnd());
  CHECK(Happens(ended));
}

// Its head was sent without "connection: close", so its client may go on with the connection.
TEST_CASE("a stream that a retired server ends leaves its connection open for one request") {
  Event* finish = nullptr;
  std::promise<void> started;
  std::vector<Route> routes = BasicRoutes();
  routes.push_back(Row("GET", "/stream", [&](Exchange& exchange) -> Awaitable<void> {
    Event event;
    finish = &event;
    EventStream& stream = exchange.StartEventStream({});
    started.set_value();
    co_await event.Wait();
    stream.Finish();
  }));
  TestServer server(std::move(routes), WithIdleLimit(1000));
  Client client(server.port());
  REQUIRE(client.Send("GET /stream HTTP/1.1\r\nHost: x\r\n\r\n"));
  REQUIRE(Happens(started));
  std::promise<void> ended;
  Retire(server, &ended);
  server.shard().Post([&finish] { finish->Set(); });
  const Reply stream = client.ReadReply();
  CHECK(stream.status == 200);
  CHECK_FALSE(stream.Has("connection: close"));
  const Reply last = client.Get("/where");
  CHECK(last.status == 200);
  CHECK(last.Has("connection: close"));
  CHECK(Happens(ended));
}

TEST_CASE("two servers share a listening socket: what the first leaves waiting the second serves") {
  const TempFolder folder;
  for (const std::string& path : {std::string(), folder.PathOf("socket")}) {
    CAPTURE(path);
    ServerSettings settings;
    settings.host = "127.0.0.1";
    settings.port = 0;
    settings.uds = path;
    StatusOr<ListeningSocket> socket = OpenListeningSocket(settings);
    REQUIRE(socket.ok());
    const ListeningSocket shared = socket->Share();
    const auto make = [&settings](Shard* shard) {
      ServerOptions options(settings);
      options.error = [](std::string_view, int, std::string_view) { return Response(); };
      return std::make_unique<HttpServer>(std::move(options), Router(BasicRoutes()),
                                          std::vector{shard});
    };
    Shard first_shard(0), second_shard(0);
    auto first = make(&first_shard), second = make(&second_shard);
    first->Inherit(*std::move(socket));
    first->StartAccepting();
    second->Inherit(shared.Share());
    CHECK(second->port() == first->port());
    first_shard.Start();
    second_shard.Start();
    std::promise<void> ended;
    first_shard.Post([&first] { first->Retire(); });
    first->WhenDrained([&ended] { ended.set_value(); });
    REQUIRE(Happens(ended));
    first_shard.Stop();
    first_shard.Join();
    first.reset();
    if (path.empty()) {
      Client waiting(second->port());
      CHECK(waiting.connected());
      REQUIRE(waiting.Send("GET /where HTTP/1.1\r\nHost: x\r\n\r\n"));
      second_shard.Post([&second] { second->StartAccepting(); });
      CHECK(waiting.ReadReply().status == 200);
    } else {
      CHECK(::access(path.c_str(), F_OK) == 0);
      second_shard.Post([&second] { second->StartAccepting(); });
    }
    second_shard.Stop();
    second_shard.Join();
    second.reset();
    // Only a server that has served removes the name.
    if (!path.empty()) ::unlink(path.c_str());
  }
}

TEST_CASE("an inherited socket must listen where the settings say") {
  const TempFolder folder;
  ServerSettings settings;
  settings.host = "127.0.0.1";
  settings.port = 0;
  const ListeningSocket socket = *OpenListeningSocket(settings);
  CHECK(CheckListensThere(socket, settings).ok());
  settings.port = socket.port();
  CHECK(CheckListensThere(socket, settings).ok());
  settings.port = socket.port() ^ 1;
  CHECK(CheckListensThere(socket, settings).code() == StatusCode::kFailedPrecondition);
  settings.port = 0;
  settings.host = "127.0.0.2";
  CHECK_FALSE(CheckListensThere(socket, settings).ok());
  settings.host = "";
  CHECK_FALSE(CheckListensThere(socket, settings).ok());
  settings.uds = folder.PathOf("a");
  CHECK_FALSE(CheckListensThere(socket, settings).ok());
  const ListeningSocket named = *OpenListeningSocket(settings);
  CHECK(CheckListensThere(named, settings).ok());
  settings.uds = folder.PathOf("b");
  CHECK_FALSE(CheckListensThere(named, settings).ok());
  ListeningSocket of_systemd = socket.Share();
  of_systemd.is_from_systemd = true;
  CHECK(CheckListensThere(of_systemd, settings).ok());
}

TEST_CASE("a drain does not cut a response that its client is still reading") {
  const std::string large(32 << 20, 'x');  // more than the kernel takes for a client that waits
  std::promise<void> answered;
  std::vector<Route> routes;
  routes.push_back(Row("GET", "/large", [&](Exchange& exchange) -> Awaitable<void> {
    exchange.Respond({200, large, "text/plain", {}});
    answered.set_value();
    co_return;
  }));
  TestServer server(std::move(routes));
  Client client(server.port(), 4096);
  REQUIRE(client.Send("GET /large HTTP/1.1\r\nHost: x\r\n\r\n"));
  REQUIRE(Happens(answered));
  server.server().BeginDrain();
  std::promise<void> drained, begun;
  server.server().WhenDrained([&drained] { drained.set_value(); });
  server.shard().Post([&begun] { begun.set_value(); });
  REQUIRE(Happens(begun));
  CHECK(client.ReadReply().body.size() == large.size());
  CHECK(Happens(drained));
}

TEST_CASE("cutting the open connections runs their handlers' OnClosed") {
  Hang hang;
  std::vector<Route> routes;
  routes.push_back(Row("GET", "/hang", hang.handler(true)));
  TestServer server(std::move(routes));
  Client client(server.port());
  REQUIRE(client.Send("GET /hang HTTP/1.1\r\nHost: x\r\n\r\n"));
  REQUIRE(Happens(hang.started));
  server.server().BeginDrain();
  std::promise<void> drained;
  server.server().WhenDrained([&drained] { drained.set_value(); });
  server.server().CloseAll();
  CHECK(Happens(hang.gone));
  CHECK(Happens(drained));
  CHECK(client.ReadToEnd());
}

TEST_CASE("random and malformed bytes get a 4xx or a closed connection and affect no others") {
  ServerOptions options;
  options.limits.keep_alive_s = 0.05;
  options.limits.head_s = 0.05;
  options.limits.body_s = 0.05;
  options.limits.linger_s = 0.01;
  TestServer server(BasicRoutes(), std::move(options));
  const std::string good =
      "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 7\r\n"
      "Connection: close\r\n\r\n{\"a\":1}";
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    CAPTURE(seed);
    std::string bytes = good;
    const uint64_t num_edits = 1 + MixBits(seed) % 4;
    for (uint64_t i = 0; i < num_edits; ++i) {
      const uint64_t draw = MixBits(seed * 1000 + i);
      const size_t at = draw % bytes.size();
      switch ((draw >> 32) % 3) {
        case 0:
          bytes[at] = static_cast<char>(draw >> 40);
          break;
        case 1:
          bytes.erase(at, (draw >> 40) % 8);
          break;
        case 2:
          bytes.insert(at, 1 + (draw >> 40) % 8, static_cast<char>(draw >> 48));
          break;
      }
    }
    Client client(server.port());
    client.Send(bytes);
    client.ReadToEnd();
    const std::string& answer = client.pending();
    if (!answer.empty()) CHECK(answer.starts_with("HTTP/1."));
    CHECK(answer.find(" 500 ") == std::string::npos);
  }
  // A busy machine may be too slow for the limits, but not each time.
  std::string echo;
  for (int i = 0; i < 100 && echo.empty(); ++i) {
    echo = Client(server.port()).Post("/echo", "{}").body;
  }
  CHECK(echo == "{}");
}

TEST_CASE("a request has one Host, which HTTP/1.0 may leave out") {
  TestServer server(BasicRoutes());
  const auto status_of = [&server](const std::string& head) {
    return Client(server.port()).Ask("GET /where " + head + "\r\n").status;
  };
  for (const std::string fine :
       {"Host: x\r\n", "host:\r\n", "Host: [::1]:8000\r\n", "Host: my_name-1.example:80 \r\n"}) {
    CAPTURE(fine);
    CHECK(status_of("HTTP/1.1\r\n" + fine) == 200);
    CHECK(status_of("HTTP/1.0\r\n" + fine) == 200);
  }
  CHECK(status_of("HTTP/1.0\r\n") == 200);
  CHECK(status_of("HTTP/1.1\r\n") == 400);
  for (const std::string wrong :
       {"Host: x\r\nHost: x\r\n", "Host: x\r\nHost: y\r\n", "Host: x y\r\n", "Host: x/y\r\n",
        "Host: a@b\r\n", "Host: \xc3\xa4\r\n"}) {
    CAPTURE(wrong);
    CHECK(status_of("HTTP/1.1\r\n" + wrong) == 400);
    CHECK(status_of("HTTP/1.0\r\n" + wrong) == 400);
  }
  const Reply reply = Client(server.port()).Ask("GET /where HTTP/1.1\r\n\r\n");
  CHECK(reply.body == "error: the header field Host is missing");
  CHECK(reply.Has("connection: close"));
}

TEST_CASE("requests that two parsers could read differently are refused") {
  TestServer server(BasicRoutes());
  for (const std::string_view head :
       {"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length: 5\r\nContent-Length: 6\r\n", "Content-Length: -1\r\n",
        "Content-Length: 18446744073709551616\r\n", "Transfer-Encoding : chunked\r\n",
        "Transfer-Encoding: gzip\r\n", "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: chunked, chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"}) {
    CAPTURE(head);
    Client client(server.port());
    const Reply reply =
        client.Ask("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n" +
                   std::string(head) + "\r\n0\r\n\r\n");
    CHECK(reply.status >= 400);
    CHECK(reply.status < 500);
  }
}

}  // namespace
}  // namespace tandem
