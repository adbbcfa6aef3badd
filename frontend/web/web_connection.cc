#include "frontend/web/web_connection.h"

#include <openssl/evp.h>

#include <optional>
#include <vector>

#include "common/strings.h"
#include "frontend/web/web_proxy.h"

namespace tandem {
namespace {

constexpr size_t kMaxTunnelHeadBytes = 16 << 10;

std::string BasicCredentials(const std::string& user) {
  std::string text(4 * ((user.size() + 2) / 3) + 1, '\0');
  const int size = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                                   reinterpret_cast<const unsigned char*>(user.data()),
                                   static_cast<int>(user.size()));
  text.resize(static_cast<size_t>(size));
  return text;
}

}  // namespace

StatusOr<std::unique_ptr<WebConnection>> WebConnection::Open(const WebUrl& url,
                                                             const WebAccess& access) {
  std::optional<WebUrl> proxy;
  if (access.uses_proxy) {
    ASSIGN_OR_RETURN(proxy, ProxyFor(url));
  }
  const WebUrl& to = proxy ? *proxy : url;
  auto stream = ClientStream::Open(to.host, to.port, access.connect_wait, access.check_address);
  if (!stream.ok()) return stream.status().WithContext((proxy ? "proxy " : "") + to.Origin());
  (*stream)->set_wait(access.wait);
  std::unique_ptr<WebConnection> connection(new WebConnection(*std::move(stream)));
  if (proxy && !proxy->user.empty()) {
    connection->proxy_line_ =
        "Proxy-Authorization: Basic " + BasicCredentials(proxy->user) + "\r\n";
  }
  connection->wants_whole_url_ = proxy && !url.is_tls;
  if (proxy && url.is_tls) {
    if (const Status status = connection->OpenTunnel(url); !status.ok()) {
      return status.WithContext("proxy " + proxy->Origin());
    }
  }
  if (url.is_tls) {
    Status status = connection->stream().BeginTls(url.host, *access.trust);
    if (status.code() == StatusCode::kFailedPrecondition) {
      status = FailedPreconditionError(status.message() +
                                       "; SSL_CERT_FILE names a file of certificates to trust");
    }
    if (!status.ok()) return status.WithContext(url.Origin());
  }
  return connection;
}

Status WebConnection::OpenTunnel(const WebUrl& url) {
  const std::string name = url.host.find(':') != url.host.npos ? "[" + url.host + "]" : url.host;
  const std::string host = name + ":" + url.port;
  RETURN_IF_ERROR(stream_->Write("CONNECT " + host + " HTTP/1.1\r\nHost: " + host + "\r\n" +
                                 proxy_line_ + "\r\n"));
  std::string head;
  // Byte by byte: what follows the head belongs to TLS.
  while (!head.ends_with("\r\n\r\n")) {
    char byte = 0;
    ASSIGN_OR_RETURN(const size_t count, stream_->Read(&byte, 1));
    if (count == 0) return UnavailableError("the connection was closed");
    head += byte;
    if (head.size() > kMaxTunnelHeadBytes) return UnavailableError("its response has no end");
  }
  const std::string line = head.substr(0, head.find('\r'));
  const std::vector<std::string_view> words = Split(line, ' ');
  if (words.size() < 2 || !words[0].starts_with("HTTP/1.")) {
    return UnavailableError("its response is not HTTP");
  }
  if (words[1] == "200") return OkStatus();
  const std::string reason = "it responds '" + line.substr(line.find(' ') + 1) + "'";
  return words[1].starts_with('5') ? UnavailableError(reason) : InvalidArgumentError(reason);
}

}  // namespace tandem
