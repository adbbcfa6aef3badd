#include "proto_msgpack/handshake_address.h"

#include <unistd.h>

#include <cstdlib>

namespace tandem::wire {
namespace {

std::string DefaultAddress() {
  const char* base = std::getenv("XDG_RUNTIME_DIR");
  if (base != nullptr && *base == '/') return "ipc://" + std::string(base) + "/tandem/handshake";
  return "ipc:///tmp/tandem-" + std::to_string(::getuid()) + "/handshake";
}

}  // namespace

StatusOr<std::string> ResolveHandshakeAddress(const std::string& given,
                                              const std::string& data_parallel_address,
                                              int64_t data_parallel_rpc_port) {
  std::string address = given;
  if (address.empty()) {
    address = data_parallel_address.empty()
                  ? DefaultAddress()
                  : "tcp://" + data_parallel_address + ":" + std::to_string(data_parallel_rpc_port);
  }
  if (!address.starts_with("ipc:///") && !address.starts_with("tcp://")) {
    return InvalidArgumentError("--handshake-address " + address +
                                ": must be ipc:///folder/name or tcp://host:port");
  }
  return address;
}

bool IsOpenToNetwork(std::string_view address) {
  if (!address.starts_with("tcp://")) return false;
  for (const std::string_view loopback : {"tcp://127.", "tcp://localhost", "tcp://[::1]"}) {
    if (address.starts_with(loopback)) return false;
  }
  return true;
}

}  // namespace tandem::wire
