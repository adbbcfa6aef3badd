#include "proto_msgpack/handshake_address.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <string>

#include "common/unique_fd.h"
#include "tests/support/files/temp_folder.h"

#include <catch2/catch.hpp>

namespace tandem::wire {
namespace {

using Catch::Contains;

TEST_CASE("handshake address: the given one, else tcp at the data-parallel address") {
  CHECK(ResolveHandshakeAddress("tcp://a:1", "b", 2).value() == "tcp://a:1");
  CHECK(ResolveHandshakeAddress("", "10.0.0.1", 29550).value() == "tcp://10.0.0.1:29550");
  CHECK(ResolveHandshakeAddress("", "", 1).value().starts_with("ipc:///"));
  CHECK_FALSE(ResolveHandshakeAddress("udp://a:1", "", 1).ok());
}

TEST_CASE("handshake address: an IPv6 address is known with and without brackets") {
  CHECK(ResolveHandshakeAddress("", "fd00::1", 29550).value() == "tcp://[fd00::1]:29550");
  CHECK(ResolveHandshakeAddress("", "[fd00::1]", 29550).value() == "tcp://[fd00::1]:29550");
  CHECK_FALSE(IsOpenToNetwork(TcpAddress("::1", 5)));
  CHECK(IsOpenToNetwork(TcpAddress("fd00::1", 5)));
}

TEST_CASE("handshake address: one that names no host is refused, because engines connect to it") {
  for (const char* host : {"0.0.0.0", "*", "::", "[::]"}) {
    INFO(host);
    CHECK_THAT(ResolveHandshakeAddress("", host, 5).status().message(), Contains("names no host"));
    CHECK_THAT(ResolveHandshakeAddress(TcpAddress(host, 5), "", 5).status().message(),
               Contains("names no host"));
  }
}

TEST_CASE("an ipc address has a listener from listen() to the end of its socket") {
  const TempFolder folder;
  const std::string path = folder.path() + "/handshake";
  CHECK_FALSE(HasListener("ipc://" + path));
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  REQUIRE(path.size() < sizeof name.sun_path);
  path.copy(name.sun_path, path.size());
  {
    const UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name) == 0);
    CHECK_FALSE(HasListener("ipc://" + path));
    REQUIRE(::listen(fd.get(), 0) == 0);
    CHECK(HasListener("ipc://" + path));
    // Nothing is accepted here: the queue is full now.
    CHECK(HasListener("ipc://" + path));
    CHECK(HasListener("ipc://" + path));
  }
  CHECK_FALSE(HasListener("ipc://" + path));  // the name is still there
}

TEST_CASE("what cannot be looked into has a listener, as far as is known") {
  CHECK(HasListener("tcp://127.0.0.1:1"));
  CHECK(HasListener("ipc:///" + std::string(200, 'a')));
}

}  // namespace
}  // namespace tandem::wire
