#include "proto_msgpack/handshake_address.h"

#include <unistd.h>

#include "common/runtime_folder.h"

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
