#pragma once

// One blocking connection to a web server: TCP, TLS or not, through a proxy or not.
// Thread: one at a time. Reads and writes that stand still for the given time end with an error.
// Failure: UNAVAILABLE (worth another try); FAILED_PRECONDITION for a certificate that is not
// trusted and INVALID_ARGUMENT for a proxy that refuses (neither is).

#include <memory>
#include <string>
#include <utility>

#include "common/net/client_stream.h"
#include "common/status.h"
#include "deploy/cli/hub/web_url.h"

namespace tandem {

class WebConnection {
 public:
  // To the server of `url`, or to the proxy that the environment names for it.
  static StatusOr<std::unique_ptr<WebConnection>> Open(const WebUrl& url, const TlsTrust& trust,
                                                       double silence_s);

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
