#include "frontend/http/transport.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <string_view>

#include "common/check.h"
#include "common/read_file.h"

namespace tandem {

namespace {

constexpr size_t kKeptBytes = 4096;  // of the room for joining parts
constexpr size_t kRecordBytes = SSL3_RT_MAX_PLAIN_LENGTH;

class PlainTransport final : public Transport {
 public:
  explicit PlainTransport(int fd) : fd_(fd) {}
  ssize_t Read(char* data, size_t size) override { return ::recv(fd_, data, size, MSG_DONTWAIT); }
  ssize_t Write(const iovec* parts, int num_parts) override {
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(parts);
    message.msg_iovlen = static_cast<size_t>(num_parts);
    return ::sendmsg(fd_, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  }
  void Shutdown() override { ::shutdown(fd_, SHUT_WR); }
  int plain_fd() const override { return fd_; }

 private:
  int fd_;
};

class TlsTransport final : public Transport {
 public:
  TlsTransport(SSL* ssl, int fd) : ssl_(ssl), fd_(fd) {}
  ~TlsTransport() override { SSL_free(ssl_); }

  ssize_t Read(char* data, size_t size) override {
    ERR_clear_error();
    const int n = SSL_read(ssl_, data, static_cast<int>(std::min<size_t>(size, INT_MAX)));
    return n > 0 ? n : Failure(n);
  }

  // A call ends with one record, so it looks at no more bytes: of what a large body leaves, each
  // would otherwise copy all.
  ssize_t Write(const iovec* parts, int num_parts) override {
    const std::string_view bytes =
        num_parts == 1 ? std::string_view(static_cast<const char*>(parts->iov_base), parts->iov_len)
                       : Joined(parts, num_parts);
    if (bytes.empty()) return 0;
    ERR_clear_error();
    const int n =
        SSL_write(ssl_, bytes.data(), static_cast<int>(std::min(bytes.size(), kRecordBytes)));
    // Events of a stream are small; after something large its room is given back.
    if (joined_.capacity() > kKeptBytes) std::string().swap(joined_);
    return n > 0 ? n : Failure(n);
  }

  void Shutdown() override {
    if (SSL_is_init_finished(ssl_)) SSL_shutdown(ssl_);
    ::shutdown(fd_, SHUT_WR);
  }

 private:
  // Small parts in one record: a record for each would cost more.
  std::string_view Joined(const iovec* parts, int num_parts) {
    joined_.clear();
    for (int i = 0; i < num_parts && joined_.size() < kRecordBytes; ++i) {
      joined_.append(static_cast<const char*>(parts[i].iov_base),
                     std::min(parts[i].iov_len, kRecordBytes - joined_.size()));
    }
    return joined_;
  }
  ssize_t Failure(int result) {
    switch (SSL_get_error(ssl_, result)) {
      case SSL_ERROR_WANT_READ:
      case SSL_ERROR_WANT_WRITE:
        errno = EAGAIN;
        return -1;
      case SSL_ERROR_ZERO_RETURN:
        return 0;
      default:
        errno = ECONNRESET;
        return -1;
    }
  }

  SSL* ssl_;
  int fd_;
  std::string joined_;
};

// The oldest error is the cause; the later ones only report it.
Status TlsError(const std::string& what) {
  const unsigned long code = ERR_get_error();
  const char* reason =
      ERR_SYSTEM_ERROR(code) ? std::strerror(ERR_GET_REASON(code)) : ERR_reason_error_string(code);
  ERR_clear_error();
  return InvalidArgumentError(what + ": " + (reason != nullptr ? reason : "unknown reason"));
}

enum class PemKind { kCertificate, kPrivateKey };

// OpenSSL can read PEM files itself, but its errors name neither the file nor the reason.
Status CheckPemFile(const std::string& what, const std::string& path, PemKind kind) {
  constexpr int64_t kMaxPemBytes = 16 << 20;
  const auto text = ReadFile(path, kMaxPemBytes);
  if (!text.ok()) return text.status().WithContext(what);
  const auto has = [&text](const char* words) { return text->find(words) != std::string::npos; };
  const auto wrong = [&](const char* why) {
    return InvalidArgumentError(what + ": " + path + ": " + why);
  };
  if (!has("-----BEGIN ")) return wrong("is not a PEM file");
  if (kind == PemKind::kCertificate) {
    return has("CERTIFICATE-----") ? OkStatus() : wrong("has no certificate");
  }
  if (!has("PRIVATE KEY-----")) return wrong("has no private key");
  if (!has("ENCRYPTED")) return OkStatus();
  return wrong("is encrypted, and nobody could give its password: give the key without one");
}

}  // namespace

std::unique_ptr<Transport> MakePlainTransport(int fd) {
  return std::make_unique<PlainTransport>(fd);
}

StatusOr<std::unique_ptr<TlsContext>> TlsContext::Load(const TlsFiles& files) {
  SSL_CTX* context = SSL_CTX_new(TLS_server_method());
  if (context == nullptr) return TlsError("OpenSSL cannot start");
  std::unique_ptr<TlsContext> owner(new TlsContext(context));
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                SSL_MODE_RELEASE_BUFFERS);
  RETURN_IF_ERROR(CheckPemFile("--ssl-certfile", files.certificate, PemKind::kCertificate));
  if (SSL_CTX_use_certificate_chain_file(context, files.certificate.c_str()) != 1) {
    return TlsError("--ssl-certfile " + files.certificate);
  }
  const std::string& key = files.key.empty() ? files.certificate : files.key;
  RETURN_IF_ERROR(CheckPemFile("--ssl-keyfile", key, PemKind::kPrivateKey));
  if (SSL_CTX_use_PrivateKey_file(context, key.c_str(), SSL_FILETYPE_PEM) != 1) {
    return TlsError("--ssl-keyfile " + key + " with --ssl-certfile " + files.certificate);
  }
  if (SSL_CTX_check_private_key(context) != 1) {
    return TlsError("--ssl-keyfile " + key + " does not belong to the certificate");
  }
  if (!files.ciphers.empty() && SSL_CTX_set_cipher_list(context, files.ciphers.c_str()) != 1) {
    return TlsError("--ssl-ciphers " + files.ciphers);
  }
  if (!files.client_ca.empty()) {
    RETURN_IF_ERROR(CheckPemFile("--ssl-ca-certs", files.client_ca, PemKind::kCertificate));
    if (SSL_CTX_load_verify_locations(context, files.client_ca.c_str(), nullptr) != 1) {
      return TlsError("--ssl-ca-certs " + files.client_ca);
    }
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
    // Without a name for them OpenSSL refuses clients that were verified in an earlier session.
    constexpr unsigned char kSessions[] = "tandem";
    SSL_CTX_set_session_id_context(context, kSessions, sizeof kSessions - 1);
  }
  return owner;
}

TlsContext::~TlsContext() { SSL_CTX_free(static_cast<SSL_CTX*>(context_)); }

std::unique_ptr<Transport> TlsContext::MakeTransport(int fd) const {
  SSL* ssl = SSL_new(static_cast<SSL_CTX*>(context_));
  CHECK(ssl != nullptr) << "out of memory";
  SSL_set_fd(ssl, fd);
  SSL_set_accept_state(ssl);
  return std::make_unique<TlsTransport>(ssl, fd);
}

}  // namespace tandem
