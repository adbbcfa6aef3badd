#include "frontend/http/listener.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "common/clock.h"
#include "common/log.h"
#include "frontend/http/session.h"

namespace tandem {

namespace {

constexpr double kAcceptPauseSeconds = 0.1;  // out of descriptors: wait for some to close

}  // namespace

HttpServer::HttpServer(ServerOptions options, Router router, std::vector<Shard*> shards)
    : options_(std::move(options)),
      tls_(options_.tls),
      api_keys_(options_.api_keys),
      router_(std::move(router)),
      shards_(std::move(shards)),
      sessions_(shards_.size()) {
  CHECK(!shards_.empty());
  api_keys_.SetPlacesPerKey(options_.limits.requests_per_key);
  CHECK(options_.error) << "ServerOptions::error is not set";
}

HttpServer::~HttpServer() { StopListening(); }

Status HttpServer::Listen() {
  ASSIGN_OR_RETURN(ListeningSocket socket, OpenListeningSocket(options_));
  Inherit(std::move(socket));
  StartAccepting();
  return OkStatus();
}

void HttpServer::Inherit(ListeningSocket socket) {
  port_ = socket.port();
  const std::string scheme = options_.tls ? "https://" : "http://";
  if (options_.uds.empty()) {
    const bool v6 = options_.host.find(':') != std::string::npos;
    const std::string host = options_.host.empty() ? "0.0.0.0" : options_.host;
    address_ = scheme + (v6 ? "[" + host + "]" : host) + ":" + std::to_string(port_);
  } else {
    address_ = "unix:" + options_.uds;
  }
  listener_ = std::move(socket);
}

void HttpServer::StartAccepting() {
  owns_path_ = true;
  acceptor_ = std::make_unique<Socket>(shards_[0], listener_.Share().fd.Release());
  acceptor_->NotifyReadable([this] { Accept(); });
}

void HttpServer::Accept() {
  while (true) {
    const int fd = ::accept4(acceptor_->fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno == EAGAIN) break;
      LOG_WARNING << "accept: " << std::strerror(errno);
      shards_[0]->At(SystemClock().Monotonic() + kAcceptPauseSeconds, [this] {
        if (acceptor_) Accept();
      });
      return;
    }
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (num_connections() >= options_.limits.num_connections) {
      constexpr std::string_view kFull =
          "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nretry-after: 1\r\n"
          "connection: close\r\n\r\n";
      (void)!::send(fd, kFull.data(), kFull.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
      ::close(fd);
      continue;
    }
    ++num_connections_;
    Shard* shard = shards_[next_shard_++ % shards_.size()];
    if (shard->OnThread()) {
      Adopt(fd, shard);
    } else {
      shard->Post([this, fd, shard] { Adopt(fd, shard); });
    }
  }
  acceptor_->NotifyReadable([this] { Accept(); });
}

void HttpServer::Adopt(int fd, Shard* shard) {
  const std::shared_ptr<const TlsContext> tls = tls_.load();
  auto transport = tls ? tls->MakeTransport(fd) : MakePlainTransport(fd);
  auto session = std::make_shared<Session>(this, shard, fd, std::move(transport));
  sessions_[static_cast<size_t>(shard->index())].push_back(session.get());
  shard->Spawn(Session::Run(session), "session");
}

void HttpServer::Remove(Session* session) {
  auto& list = sessions_[static_cast<size_t>(session->shard().index())];
  list.erase(std::find(list.begin(), list.end(), session));
  if (--num_connections_ == 0 && closes_connections()) shards_[0]->Post([this] { AdvanceDrain(); });
}

// ---- The end ----

void HttpServer::RequestEnded() {
  if (--num_requests_ == 0 && draining()) shards_[0]->Post([this] { AdvanceDrain(); });
}

void HttpServer::BeginDrain() {
  draining_ = true;
  shards_[0]->Post([this] {
    if (listener_.is_from_systemd) StopListening();
  });
  OnEachSession(&Session::CloseIfIdle);
  shards_[0]->Post([this] { AdvanceDrain(); });
}

void HttpServer::Retire() {
  retired_ = true;
  owns_path_ = false;  // the successor does
  StopListening();
  shards_[0]->At(SystemClock().Monotonic() + options_.limits.retired_idle_s,
                 [this] { OnEachSession(&Session::CloseIfLongIdle); });
}

void HttpServer::CloseAll() {
  shards_[0]->Post([this] { StopListening(); });
  OnEachSession(&Session::Cut);
}

void HttpServer::WhenDrained(Task ended) {
  shards_[0]->Post([this, ended = std::move(ended)]() mutable {
    drained_ = std::move(ended);
    AdvanceDrain();
  });
}

// On the first shard, whenever the last request or the last connection may have gone.
void HttpServer::AdvanceDrain() {
  if (draining() && num_requests() == 0 && !std::exchange(is_leaving_, true)) {
    StopListening();
    OnEachSession(&Session::CloseIfIdle);
    shards_[0]->At(SystemClock().Monotonic() + options_.limits.linger_s,
                   [this] { OnEachSession(&Session::CutUnlessAdmitted); });
  }
  if ((is_leaving_ || retired()) && drained_ && num_connections() == 0)
    std::exchange(drained_, Task())();
}

// Removes the name before the socket closes: afterwards another server may take it.
void HttpServer::StopListening() {
  if (std::exchange(owns_path_, false)) ::unlink(listener_.path.c_str());  // none of TCP
  acceptor_.reset();
  listener_.fd.Reset();
}

void HttpServer::OnEachSession(void (Session::*act)()) {
  for (Shard* shard : shards_) {
    shard->Post([this, shard, act] {
      // A copy, because closing may end a session, which removes itself from the list.
      const auto sessions = sessions_[static_cast<size_t>(shard->index())];
      for (Session* session : sessions) (session->*act)();
    });
  }
}

}  // namespace tandem
