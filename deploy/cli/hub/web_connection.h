#pragma once

// One blocking connection to a web server: TCP, TLS or not, through a proxy or not.
// Thread: one at a time. Reads and writes that stand still for the given time end with an error.
// Failure: UNAVAILABLE (worth another try); FAILED_PRECONDITION for a certificate that is not
// trusted and INVALID_ARGUMENT for a proxy that refuses (neither is).

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "common/status.h"
#include "common/unique_fd.h"
#include "deploy/cli/hub/web_url.h"

namespace tandem {

// Certificates that a client trusts: the system's, or those of $SSL_CERT_FILE and $SSL_CERT_DIR.
// Immutable; any thread.
class WebTrust {
 public:
  static StatusOr<std::unique_ptr<WebTrust>> FromSystem();
  ~WebTrust();
  WebTrust(const WebTrust&) = delete;
  void* context() const { return context_; }  // SSL_CTX

 private:
  explicit WebTrust(void* context) : context_(context) {}
  void* const context_;
};

class WebConnection {
 public:
  // To the server of `url`, or to the proxy that the environment names for it.
  static StatusOr<std::unique_ptr<WebConnection>> Open(const WebUrl& url, const WebTrust& trust,
                                                       double silence_s);
  ~WebConnection();
  WebConnection(const WebConnection&) = delete;

  Status Write(std::string_view bytes);
  // 0 at the end of the stream.
  StatusOr<size_t> Read(char* bytes, size_t size);

  // Whether requests name the whole URL: plain http through a proxy.
  bool wants_whole_url() const { return wants_whole_url_; }
  // A header line for the proxy, or "".
  const std::string& proxy_line() const { return proxy_line_; }

 private:
  WebConnection(UniqueFd fd, double silence_s) : fd_(std::move(fd)), silence_s_(silence_s) {}
  Status OpenTunnel(const WebUrl& url);
  Status BeginTls(const WebUrl& url, const WebTrust& trust);
  template <class F>
  StatusOr<size_t> Repeat(F call, int16_t events);

  UniqueFd fd_;
  const double silence_s_;
  void* ssl_ = nullptr;
  bool wants_whole_url_ = false;
  std::string proxy_line_;
};

}  // namespace tandem
