#include "proto_msgpack/handshake_address.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>

#include "common/runtime_folder.h"
#include "common/unique_fd.h"
#include "common/unix_address.h"

namespace tandem::wire {
namespace {

std::string DefaultAddress() {
  const std::string base = RuntimeFolder();
  const std::string own = base == "/tmp" ? "/tandem-" + std::to_string(::getuid()) : "/tandem";
  return "ipc://" + base + own + "/handshake";
}

}  // namespace

StatusOr<std::string> ResolveHandshakeAddress(const std::string& given,
                                              const std::string& data_parallel_address,
                                              int64_t data_parallel_rpc_port) {
  std::string address = given;
  if (address.empty()) {
    address = data_parallel_address.empty()
                  ? DefaultAddress()
                  : TcpAddress(data_parallel_address, data_parallel_rpc_port);
  }
  if (!address.starts_with("ipc:///") && !address.starts_with("tcp://")) {
    return InvalidArgumentError("--handshake-address " + address +
                                ": must be ipc:///folder/name or tcp://host:port");
  }
  for (const std::string_view wildcard : {"tcp://0.0.0.0:", "tcp://*:", "tcp://[::]:"}) {
    if (!address.starts_with(wildcard)) continue;
    return InvalidArgumentError(address +
                                ": names no host; engines connect to the address at which the "
                                "frontend listens, so it must be one of the frontend's host");
  }
  return address;
}

std::string TcpAddress(std::string_view host, int64_t port) {
  const bool is_bare_ipv6 = host.find(':') != host.npos && !host.starts_with('[');
  return (is_bare_ipv6 ? "tcp://[" : "tcp://") + std::string(host) + (is_bare_ipv6 ? "]:" : ":") +
         std::to_string(port);
}

bool IsOpenToNetwork(std::string_view address) {
  if (!address.starts_with("tcp://")) return false;
  for (const std::string_view loopback : {"tcp://127.", "tcp://localhost", "tcp://[::1]"}) {
    if (address.starts_with(loopback)) return false;
  }
  return true;
}

bool HasListener(const std::string& address) {
  constexpr std::string_view kIpc = "ipc://";
  if (!address.starts_with(kIpc)) return true;
  const StatusOr<sockaddr_un> name = UnixAddress(std::string_view(address).substr(kIpc.size()));
  if (!name.ok()) return true;
  const UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  // EAGAIN: it has many to accept.
  return fd && (::connect(fd.get(), AsSockaddr(*name), sizeof *name) == 0 || errno == EAGAIN);
}

}  // namespace tandem::wire
