#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/mman.h>
#include <sys/un.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "frontend/http/transport.h"
#include "test_server.h"
#include "tests/support/files/temp_folder.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

std::vector<Route> Routes() {
  Route events;
  events.method = "GET";
  events.path = "/events";
  events.handler = [](Exchange& exchange) -> Awaitable<void> {
    EventStream& stream = exchange.StartEventStream();
    for (int i = 0; i < 3; ++i) stream.Send("data: " + std::to_string(i) + "\n\n");
    stream.Finish();
    co_return;
  };
  return {events, EchoRoute()};
}

// With the line end before it, since a header may end in a 0.
constexpr std::string_view kLastChunk = "\r\n0\r\n\r\n";

struct KeyPair {
  std::string certificate, key;  // PEM files
};

KeyPair MakeKeyPair(const TempFolder& folder) {
  const KeyPair pair = {folder.PathOf("cert.pem"), folder.PathOf("key.pem")};
  const std::string command =
      "openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=localhost -days 2 -keyout " + pair.key +
      " -out " + pair.certificate + " >/dev/null 2>&1";
  REQUIRE(std::system(command.c_str()) == 0);
  return pair;
}

// A blocking TLS client. It checks no certificates: the tests are about bytes.
class TlsClient {
 public:
  // own: what it presents. session: of an earlier client, which it resumes.
  explicit TlsClient(int port, const KeyPair* own = nullptr, SSL_SESSION* session = nullptr)
      : context_(SSL_CTX_new(TLS_client_method())) {
    if (own != nullptr) {
      SSL_CTX_use_certificate_file(context_, own->certificate.c_str(), SSL_FILETYPE_PEM);
      SSL_CTX_use_PrivateKey_file(context_, own->key.c_str(), SSL_FILETYPE_PEM);
    }
    ssl_ = SSL_new(context_);
    if (session != nullptr) SSL_set_session(ssl_, session);
    fd_ = ::socket(AF_INET, SOCK_STREAM, 0);
    const timeval limit{20, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address);
    SSL_set_fd(ssl_, fd_);
    connected_ = SSL_connect(ssl_) == 1;
  }
  ~TlsClient() {
    SSL_free(ssl_);
    SSL_CTX_free(context_);
    ::close(fd_);
  }
  bool connected() const { return connected_; }
  bool has_resumed() const { return SSL_session_reused(ssl_) == 1; }
  SSL_SESSION* TakeSession() { return SSL_get1_session(ssl_); }
  void Send(std::string_view bytes) {
    SSL_write(ssl_, bytes.data(), static_cast<int>(bytes.size()));
  }
  void EndInput() { SSL_shutdown(ssl_); }
  // Reads to the end. False: it came without an announcement, as if bytes had been cut off.
  bool EndsInOrder() {
    char bytes[16384];
    int n;
    while ((n = SSL_read(ssl_, bytes, sizeof bytes)) > 0) {
    }
    return SSL_get_error(ssl_, n) == SSL_ERROR_ZERO_RETURN;
  }
  // Why nothing can be read.
  std::string ErrorOfRead() {
    char byte;
    ERR_clear_error();
    SSL_read(ssl_, &byte, 1);
    const char* const reason = ERR_reason_error_string(ERR_get_error());
    return reason == nullptr ? "" : reason;
  }
  // Until the text ends with `end`, or no more comes.
  std::string ReadUntil(std::string_view end) {
    std::string text;
    char bytes[16384];
    while (!text.ends_with(end)) {
      const int n = SSL_read(ssl_, bytes, sizeof bytes);
      if (n <= 0) break;
      text.append(bytes, static_cast<size_t>(n));
    }
    return text;
  }

 private:
  SSL_CTX* context_;
  SSL* ssl_;
  int fd_ = -1;
  bool connected_ = false;
};

std::unique_ptr<TlsContext> MakeTlsContext() {
  const TempFolder folder;
  const KeyPair own = MakeKeyPair(folder);
  auto tls = TlsContext::Load(
      {.certificate = own.certificate, .key = own.key, .client_ca = "", .ciphers = ""});
  REQUIRE(tls.ok());
  return std::move(tls).value();
}

// A server with a certificate of its own.
struct TlsServer {
  explicit TlsServer(std::vector<Route> routes, ServerOptions options = {}) {
    options.tls = MakeTlsContext();
    server = std::make_unique<TestServer>(std::move(routes), std::move(options));
    REQUIRE(server->status().ok());
  }
  int port() const { return server->port(); }
  std::unique_ptr<TestServer> server;
};

TEST_CASE("TLS: requests, large bodies and streams") {
  TlsServer server(Routes());
  CHECK(server.server->server().address().starts_with("https://"));

  TlsClient client(server.port());
  REQUIRE(client.connected());
  client.Send("GET /events HTTP/1.1\r\nHost: x\r\n\r\n");
  CHECK(client.ReadUntil(kLastChunk).find("data: 2\n\n") != std::string::npos);
  std::string body(3 << 20, 'x');
  body.back() = 'y';
  client.Send(
      "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: " +
      std::to_string(body.size()) + "\r\n\r\n" + body);
  CHECK(client.ReadUntil("y").ends_with("\r\n\r\n" + body));

  Client plain(server.port());
  CHECK(plain.Get("/events").status == 0);  // not TLS: closed, without effect on others
  client.Send("GET /events HTTP/1.1\r\nHost: x\r\n\r\n");
  CHECK(client.ReadUntil(kLastChunk).find("data: 2\n\n") != std::string::npos);
}

TEST_CASE("TLS: pipelined requests, requests in pieces, and a client that sends no more") {
  TlsServer server(Routes());
  const std::string request =
      "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
      "Content-Length: 2\r\n\r\n[]";
  TlsClient client(server.port());
  REQUIRE(client.connected());
  std::string many;
  for (int i = 0; i < 20; ++i) many += request;
  client.Send(many + "GET /events HTTP/1.1\r\nHost: x\r\n\r\n");
  const std::string replies = client.ReadUntil(kLastChunk);
  size_t num_replies = 0;
  for (size_t at = 0; (at = replies.find("\r\n\r\n[]", at)) != std::string::npos; ++at) {
    ++num_replies;
  }
  CHECK(num_replies == 20);
  for (const char byte : request) client.Send({&byte, 1});  // a record each
  CHECK(client.ReadUntil("[]").ends_with("\r\n\r\n[]"));
  client.Send("GET /events HTTP/1.1\r\nHost: x\r\n\r\n");
  client.EndInput();
  CHECK(client.ReadUntil(kLastChunk).ends_with(kLastChunk));
  CHECK(client.ReadUntil("no more").empty());  // closed
}

TEST_CASE("TLS: the end of a connection is announced, but not that of a response that was cut") {
  Route cut;
  cut.method = "GET";
  cut.path = "/cut";
  cut.handler = [](Exchange& exchange) -> Awaitable<void> {
    exchange.StartEventStream().Send("data: 0\n\n");
    co_return;
  };
  std::vector<Route> routes = Routes();
  routes.push_back(cut);
  ServerOptions options;
  options.limits.keep_alive_s = 0.05;
  TlsServer server(std::move(routes), std::move(options));
  const auto ends_in_order = [&](const std::string& request) {
    TlsClient client(server.port());
    REQUIRE(client.connected());
    client.Send(request);
    return client.EndsInOrder();
  };
  CHECK(ends_in_order("GET /events HTTP/1.0\r\n\r\n"));
  CHECK(ends_in_order("GET /events HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"));
  CHECK(ends_in_order("GET /events HTTP/1.1\r\nHost: x\r\n\r\n"));  // idle for too long
  CHECK_FALSE(ends_in_order("GET /cut HTTP/1.0\r\n\r\n"));
}

TEST_CASE("TLS: a client needs a certificate where one is asked for, and may resume its session") {
  const TempFolder folder;
  const KeyPair pair = MakeKeyPair(folder);
  ServerOptions options;
  options.tls = TlsContext::Load({pair.certificate, pair.key, pair.certificate, ""}).value();
  TestServer server(Routes(), std::move(options));
  const auto streams = [](TlsClient& client) {
    client.Send("GET /events HTTP/1.1\r\nHost: x\r\n\r\n");
    return client.ReadUntil(kLastChunk).ends_with(kLastChunk);
  };
  CHECK(TlsClient(server.port()).ErrorOfRead() == "tlsv13 alert certificate required");
  TlsClient first(server.port(), &pair);
  CHECK(streams(first));
  SSL_SESSION* const session = first.TakeSession();
  TlsClient second(server.port(), &pair, session);
  CHECK(second.has_resumed());
  CHECK(streams(second));
  SSL_SESSION_free(session);
}

// Otherwise each record of a large response would cost a copy of all that is left of it.
TEST_CASE("TLS: a write looks at no more bytes than a record has") {
  int fds[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) == 0);
  const std::unique_ptr<TlsContext> context = MakeTlsContext();
  const std::unique_ptr<Transport> transport = context->MakeTransport(fds[0]);
  SSL_CTX* const client_context = SSL_CTX_new(TLS_client_method());
  SSL* const client = SSL_new(client_context);
  SSL_set_fd(client, fds[1]);
  char byte;
  for (int i = 0; i < 10 && SSL_connect(client) != 1; ++i) transport->Read(&byte, 1);
  transport->Read(&byte, 1);

  // The second half of the memory cannot be read.
  constexpr size_t kHalf = 64 << 10;
  auto* const memory = static_cast<char*>(
      ::mmap(nullptr, 2 * kHalf, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  REQUIRE(memory != MAP_FAILED);
  REQUIRE(::mprotect(memory + kHalf, kHalf, PROT_NONE) == 0);
  constexpr ssize_t kRecord = 16 << 10;
  const iovec whole = {memory, 2 * kHalf};
  CHECK(transport->Write(&whole, 1) == kRecord);
  const iovec parts[] = {{memory, 10}, {memory, kHalf}, {memory + kHalf, kHalf}};
  CHECK(transport->Write(parts, 3) == kRecord);
  CHECK(transport->Write(parts, 1) == 10);

  ::munmap(memory, 2 * kHalf);
  SSL_free(client);
  SSL_CTX_free(client_context);
  ::close(fds[0]);
  ::close(fds[1]);
}

TEST_CASE("TLS: a reader too slow for its stream is cut, handshakes that never end are closed") {
  std::promise<bool> lagging;
  Route flood;
  flood.method = "GET";
  flood.path = "/flood";
  flood.handler = [&lagging](Exchange& exchange) -> Awaitable<void> {
    EventStream& stream = exchange.StartEventStream();
    const std::string event = "data: " + std::string(4096, 'x') + "\n\n";
    while (stream.Send(event)) {
    }
    lagging.set_value(stream.lagging());
    co_return;
  };
  ServerOptions options;
  options.limits.unsent_bytes_per_stream = 256 << 10;
  TlsServer server({flood}, std::move(options));
  TlsClient client(server.port());
  REQUIRE(client.connected());
  client.Send("GET /flood HTTP/1.1\r\nHost: x\r\n\r\n");
  CHECK(lagging.get_future().get());
  ServerOptions hasty;
  hasty.limits.head_s = 0.05;
  TlsServer impatient(Routes(), std::move(hasty));
  Client silent(impatient.port());  // sends no hello
  CHECK(silent.ReadToEnd());
  CHECK(silent.pending().empty());
}

TEST_CASE("TLS: an error about missing or mismatched files names them") {
  const TempFolder folder;
  const std::string certificate = folder.PathOf("cert.pem"), key = folder.PathOf("key.pem");
  const std::string other = folder.PathOf("other.pem"), text = folder.PathOf("text");
  for (const std::string& k : {key, other}) {
    const std::string make =
        "openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=localhost -days 2 -keyout " + k +
        " -out " + (k == key ? certificate : folder.PathOf("unused.pem")) + " 2>/dev/null";
    REQUIRE(std::system(make.c_str()) == 0);
  }
  std::ofstream(text) << "no key here";
  const auto complaint = [](const TlsFiles& files) {
    return std::string(TlsContext::Load(files).status().message());
  };
  CHECK(complaint({"/no/such.pem", "", "", ""}) ==
        "--ssl-certfile: /no/such.pem: No such file or directory");
  CHECK(complaint({folder.path(), "", "", ""}) ==
        "--ssl-certfile: " + folder.path() + ": is a folder, not a file");
  CHECK(complaint({text, "", "", ""}) == "--ssl-certfile: " + text + ": is not a PEM file");
  CHECK(complaint({certificate, text, "", ""}) == "--ssl-keyfile: " + text + ": is not a PEM file");
  CHECK(complaint({key, "", "", ""}) == "--ssl-certfile: " + key + ": has no certificate");
  CHECK(complaint({certificate, "", "", ""}) ==
        "--ssl-keyfile: " + certificate + ": has no private key");
  CHECK(complaint({certificate, other, "", ""}) ==
        "--ssl-keyfile " + other + " with --ssl-certfile " + certificate + ": key values mismatch");
  CHECK(complaint({certificate, key, text, ""}) ==
        "--ssl-ca-certs: " + text + ": is not a PEM file");
  CHECK(complaint({certificate, key, "", "none"}) == "--ssl-ciphers none: no cipher match");
  CHECK(TlsContext::Load({certificate, key, certificate, ""}).ok());
}

TEST_CASE("TLS: a key with a password is refused, and nobody is asked for the password") {
  const TempFolder folder;
  const std::string certificate = folder.PathOf("cert.pem"), key = folder.PathOf("key.pem");
  const std::string old = folder.PathOf("old.pem");
  const std::string make =
      "openssl req -x509 -newkey rsa:2048 -passout pass:x -subj /CN=localhost"
      " -days 2 -keyout " +
      key + " -out " + certificate +
      " 2>/dev/null && openssl rsa -traditional -aes128 -passin pass:x"
      " -passout pass:x -in " +
      key + " -out " + old + " 2>/dev/null";
  REQUIRE(std::system(make.c_str()) == 0);
  for (const std::string& path : {key, old}) {
    const StatusOr<std::unique_ptr<TlsContext>> tls = TlsContext::Load({certificate, path, "", ""});
    REQUIRE_FALSE(tls.ok());
    CHECK(tls.status().message().find(path + ": is encrypted") != std::string::npos);
  }
}

TEST_CASE("a server on a UNIX socket replaces a dead one and refuses a live one") {
  const TempFolder folder;
  const std::string path = folder.PathOf("socket");
  const auto listen = [&path](HttpServer& server) { return server.Listen(); };
  const auto options = [&path] {
    ServerOptions result;
    result.uds = path;
    result.error = [](std::string_view, int status, std::string_view) {
      return Response{status, "", "", {}};
    };
    return result;
  };
  Shard shard(0);
  {
    HttpServer first(options(), Router(Routes()), {&shard});
    REQUIRE(listen(first).ok());
    HttpServer second(options(), Router(Routes()), {&shard});
    CHECK_FALSE(listen(second).ok());
    CHECK(std::filesystem::exists(path));
  }
  CHECK_FALSE(std::filesystem::exists(path));
  // The remains of a killed server.
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  const int dead = ::socket(AF_UNIX, SOCK_STREAM, 0);
  REQUIRE(::bind(dead, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  ::close(dead);
  HttpServer third(options(), Router(Routes()), {&shard});
  CHECK(listen(third).ok());
  CHECK(third.address() == "unix:" + path);
}

TEST_CASE("UNIX socket: where none can be made the system's own reason is given") {
  const std::string path = "/sys/socket";  // a file system without sockets
  Shard shard(0);
  ServerOptions options;
  options.uds = path;
  options.error = [](std::string_view, int, std::string_view) { return Response(); };
  HttpServer server(std::move(options), Router(Routes()), {&shard});
  const Status refused = server.Listen();
  CHECK_THAT(refused.message(), Catch::Matchers::StartsWith("--uds /sys/socket: "));
  CHECK_THAT(refused.message(), !Catch::Matchers::Contains("No such file"));
}

TEST_CASE("UNIX socket: a path that is not a socket is refused and not removed") {
  const TempFolder folder;
  const std::string path = folder.PathOf("precious");
  std::ofstream(path) << "keep me";
  Shard shard(0);
  {
    ServerOptions options;
    options.uds = path;
    options.error = [](std::string_view, int status, std::string_view) {
      return Response{status, "", "", {}};
    };
    HttpServer server(std::move(options), Router(Routes()), {&shard});
    const Status status = server.Listen();
    REQUIRE_FALSE(status.ok());
    CHECK(status.message().find(path) != std::string::npos);
  }
  std::string text;
  std::getline(std::ifstream(path), text);
  CHECK(text == "keep me");
}

}  // namespace
}  // namespace tandem
