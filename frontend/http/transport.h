#pragma once

// Bytes in and out of an accepted descriptor, plain or TLS, without blocking.
// Thread: the shard's. Does not own the descriptor. Read and Write return the bytes moved; -1 with
// errno EAGAIN when the descriptor must become ready first, -1 with another errno when the peer is
// gone; Read returns 0 at the end of the stream. The TLS handshake happens inside the first calls.

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <memory>
#include <string>

#include "common/status.h"

namespace tandem {

class Transport {
 public:
  virtual ~Transport() = default;
  virtual ssize_t Read(char* data, size_t size) = 0;
  virtual ssize_t Write(const iovec* parts, int num_parts) = 0;
  virtual void Shutdown() = 0;  // no more writes; TLS announces the end
  // The descriptor, where it takes the bytes of Write as they are; otherwise -1.
  virtual int plain_fd() const { return -1; }
};

std::unique_ptr<Transport> MakePlainTransport(int fd);

struct TlsFiles {
  std::string certificate;  // PEM chain
  std::string key;          // PEM
  std::string
      client_ca;        // PEM; clients must present a certificate signed by it. Empty: none needed
  std::string ciphers;  // OpenSSL's list for TLS 1.2; empty: its default
};

// Certificate and key, loaded and checked once; shared by all shards. TLS 1.2 and later.
class TlsContext {
 public:
  static StatusOr<std::unique_ptr<TlsContext>> Load(const TlsFiles& files);
  ~TlsContext();
  std::unique_ptr<Transport> MakeTransport(int fd) const;

 private:
  explicit TlsContext(void* context) : context_(context) {}
  void* context_;  // SSL_CTX
};

}  // namespace tandem
