#pragma once

// A client's blocking connection to a server: TCP, and TLS over it. The caller brings how long to
// wait.
// Thread: one at a time. Failure: UNAVAILABLE for what may go well another time,
// FAILED_PRECONDITION for a certificate that is not trusted, and what the SocketWait returns.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "common/status.h"
#include "common/unique_fd.h"

struct sockaddr;

namespace tandem {

// Certificates that a client trusts. Immutable; any thread.
class TlsTrust {
 public:
  // authorities: a PEM file; "": the system's, or those of $SSL_CERT_FILE and $SSL_CERT_DIR.
  // INVALID_ARGUMENT: not usable.
  static StatusOr<std::unique_ptr<TlsTrust>> Load(const std::string& authorities);
  ~TlsTrust();
  TlsTrust(const TlsTrust&) = delete;

 private:
  friend class ClientStream;
  explicit TlsTrust(void* context) : context_(context) {}
  void* const context_;  // SSL_CTX
};

// Waits until a socket is ready for POLLIN or POLLOUT. An error ends what is waited for.
using SocketWait = std::function<Status(int fd, int16_t events)>;
// Gives up after this many seconds without progress.
SocketWait SilenceWait(double seconds);

// Whether an address may be connected to; an error is why not.
using AddressCheck = std::function<Status(const sockaddr& address)>;

class ClientStream {
 public:
  // To the first address of the host that accepts. Looking the name up does not end early. With a
  // check each address of the host must pass it before the first one is tried; its error is
  // returned.
  static StatusOr<std::unique_ptr<ClientStream>> Open(const std::string& host,
                                                      const std::string& port, SocketWait wait,
                                                      const AddressCheck& check = {});
  ~ClientStream();
  ClientStream(const ClientStream&) = delete;

  void set_wait(SocketWait wait) { wait_ = std::move(wait); }
  // From here on all bytes go through TLS; the server has to be `host`.
  Status BeginTls(const std::string& host, const TlsTrust& trust);
  Status Write(std::string_view bytes);
  // What is there, at most `size`; 0 at the end.
  StatusOr<size_t> Read(char* bytes, size_t size);

 private:
  ClientStream(UniqueFd fd, SocketWait wait) : fd_(std::move(fd)), wait_(std::move(wait)) {}
  template <class F>
  StatusOr<size_t> Repeat(F call, int16_t events);

  UniqueFd fd_;
  SocketWait wait_;
  void* ssl_ = nullptr;  // SSL
};

}  // namespace tandem
