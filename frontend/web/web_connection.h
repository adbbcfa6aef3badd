#pragma once

// One blocking connection to a web server: TCP, TLS or not, through a proxy or not.
// Thread: one at a time. Reads and writes end with the error of the SocketWait.
// Failure: UNAVAILABLE (worth another try); FAILED_PRECONDITION for a certificate that is not
// trusted and INVALID_ARGUMENT for a proxy that refuses (neither is).

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "common/net/client_stream.h"
#include "common/status.h"
#include "frontend/web/web_url.h"

namespace tandem {

// How servers are reached, and which of them may be.
struct WebAccess {
  const TlsTrust* trust = nullptr;  // REQUIRED
  SocketWait connect_wait = SilenceWait(10);
  SocketWait wait;  // of what follows; REQUIRED
  // By the proxy that the environment names, if it names one. Then the check is of the proxy.
  bool uses_proxy = true;
  AddressCheck check_address = {};  // of each server that is connected to; empty: all may be
  // Before each request, that of a redirect too; an error ends it. Empty: all may be.
  std::function<Status(const WebUrl&)> check_url = {};
  int max_redirects = 10;  // 0: a redirect is a response like others
};

class WebConnection {
 public:
  // To the server of `url`, or to its proxy.
  static StatusOr<std::unique_ptr<WebConnection>> Open(const WebUrl& url, const WebAccess& access);

  ClientStream& stream() { return *stream_; }

  // Whether requests name the whole URL: plain http through a proxy.
  bool wants_whole_url() const { return wants_whole_url_; }
  // A header line for the proxy, or "".
  const std::string& proxy_line() const { return proxy_line_; }

 private:
  explicit WebConnection(std::unique_ptr<ClientStream> stream) : stream_(std::move(stream)) {}
  Status OpenTunnel(const WebUrl& url);

  std::unique_ptr<ClientStream> stream_;
  bool wants_whole_url_ = false;
  std::string proxy_line_;
};

}  // namespace tandem
