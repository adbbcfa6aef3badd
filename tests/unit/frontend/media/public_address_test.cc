#include "frontend/media/public_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <string>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

Status Check(const std::string& text) {
  sockaddr_in6 v6 = {};
  v6.sin6_family = AF_INET6;
  if (inet_pton(AF_INET6, text.c_str(), &v6.sin6_addr) == 1) {
    return CheckPublicAddress(reinterpret_cast<const sockaddr&>(v6));
  }
  sockaddr_in v4 = {};
  v4.sin_family = AF_INET;
  REQUIRE(inet_pton(AF_INET, text.c_str(), &v4.sin_addr) == 1);
  return CheckPublicAddress(reinterpret_cast<const sockaddr&>(v4));
}

TEST_CASE("only addresses of the public internet pass, up to the borders of each network") {
  for (const char* address : {"1.1.1.1",
                              "9.255.255.255",
                              "11.0.0.0",
                              "100.63.255.255",
                              "100.128.0.0",
                              "126.255.255.255",
                              "128.0.0.0",
                              "169.253.255.255",
                              "169.255.0.0",
                              "172.15.255.255",
                              "172.32.0.0",
                              "192.167.255.255",
                              "192.169.0.0",
                              "198.17.255.255",
                              "198.20.0.0",
                              "223.255.255.255",
                              "2606:4700::1111",
                              "2001:200::",
                              "2001:4860:4860::8888",
                              "2a00:1450::",
                              "::ffff:8.8.8.8"}) {
    CAPTURE(address);
    CHECK(Check(address).ok());
  }
  for (const char* address : {"0.0.0.0",
                              "10.0.0.0",
                              "10.255.255.255",
                              "100.64.0.0",
                              "100.127.255.255",
                              "127.0.0.1",
                              "127.255.255.255",
                              "169.254.169.254",
                              "172.16.0.0",
                              "172.31.255.255",
                              "192.0.0.1",
                              "192.0.2.1",
                              "192.88.99.1",
                              "192.168.0.0",
                              "192.168.255.255",
                              "198.18.0.0",
                              "198.19.255.255",
                              "198.51.100.7",
                              "203.0.113.7",
                              "224.0.0.1",
                              "239.255.255.255",
                              "240.0.0.0",
                              "255.255.255.255",
                              "::",
                              "::1",
                              "::7f00:1",
                              "::ffff:127.0.0.1",
                              "::ffff:169.254.169.254",
                              "64:ff9b::a00:1",
                              "100::1",
                              "2001::1",
                              "2001:1ff::1",
                              "2001:db8::1",
                              "2002:7f00:1::",
                              "3fff::1",
                              "fc00::1",
                              "fd00:ec2::254",
                              "fe80::1",
                              "fec0::1",
                              "ff02::1"}) {
    CAPTURE(address);
    const Status status = Check(address);
    CHECK(status.code() == StatusCode::kInvalidArgument);
    CHECK(status.message().find(address) == std::string::npos);
  }
  const sockaddr unknown = {.sa_family = AF_UNIX, .sa_data = {}};
  CHECK_FALSE(CheckPublicAddress(unknown).ok());
}

}  // namespace
}  // namespace tandem
