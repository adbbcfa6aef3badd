#include "frontend/media/public_address.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

namespace tandem {
namespace {

struct V4Network {
  uint32_t address;
  int prefix_bits;
};

constexpr uint32_t V4(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  return a << 24 | b << 16 | c << 8 | d;
}

// IANA's special-purpose networks that are not globally reachable, multicast, and 192.88.99.0/24.
constexpr V4Network kForbiddenV4[] = {
    {V4(0, 0, 0, 0), 8},      {V4(10, 0, 0, 0), 8},     {V4(100, 64, 0, 0), 10},
    {V4(127, 0, 0, 0), 8},    {V4(169, 254, 0, 0), 16}, {V4(172, 16, 0, 0), 12},
    {V4(192, 0, 0, 0), 24},   {V4(192, 0, 2, 0), 24},   {V4(192, 88, 99, 0), 24},
    {V4(192, 168, 0, 0), 16}, {V4(198, 18, 0, 0), 15},  {V4(198, 51, 100, 0), 24},
    {V4(203, 0, 113, 0), 24}, {V4(224, 0, 0, 0), 4},    {V4(240, 0, 0, 0), 4},
};

bool IsPublicV4(uint32_t address) {
  return std::none_of(std::begin(kForbiddenV4), std::end(kForbiddenV4),
                      [address](const V4Network& network) {
                        const int host_bits = 32 - network.prefix_bits;
                        return address >> host_bits == network.address >> host_bits;
                      });
}

using V6 = std::array<uint8_t, 16>;

bool HasPrefix(const V6& address, const V6& prefix, int num_bits) {
  const auto num_bytes = static_cast<size_t>(num_bits / 8);
  if (!std::equal(address.begin(), address.begin() + num_bytes, prefix.begin())) return false;
  const int rest = num_bits % 8;
  return rest == 0 || (address[num_bytes] ^ prefix[num_bytes]) >> (8 - rest) == 0;
}

bool IsPublicV6(const V6& address) {
  constexpr V6 kMappedV4 = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF};
  if (HasPrefix(address, kMappedV4, 96)) {
    return IsPublicV4(V4(address[12], address[13], address[14], address[15]));
  }
  // Only 2000::/3 is global unicast. In it: protocol assignments with Teredo, documentation twice,
  // and 6to4.
  return HasPrefix(address, {0x20}, 3) && !HasPrefix(address, {0x20, 0x01, 0x00}, 23) &&
         !HasPrefix(address, {0x20, 0x01, 0x0D, 0xB8}, 32) &&
         !HasPrefix(address, {0x20, 0x02}, 16) && !HasPrefix(address, {0x3F, 0xFF, 0x00}, 20);
}

bool IsPublic(const sockaddr& address) {
  if (address.sa_family == AF_INET) {
    sockaddr_in v4;
    std::memcpy(&v4, &address, sizeof v4);
    return IsPublicV4(ntohl(v4.sin_addr.s_addr));
  }
  if (address.sa_family != AF_INET6) return false;
  sockaddr_in6 v6;
  std::memcpy(&v6, &address, sizeof v6);
  V6 bytes;
  std::memcpy(bytes.data(), &v6.sin6_addr, bytes.size());
  return IsPublicV6(bytes);
}

}  // namespace

Status CheckPublicAddress(const sockaddr& address) {
  if (IsPublic(address)) return OkStatus();
  return InvalidArgumentError(
      "the host has an address that is private, loopback, link-local or reserved "
      "(--no-media-egress-block-private allows such addresses)");
}

}  // namespace tandem
