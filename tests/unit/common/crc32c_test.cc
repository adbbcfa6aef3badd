#include "common/crc32c.h"

#include <string>
#include <string_view>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

std::span<const std::byte> Bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// RFC 3720, B.4.
TEST_CASE("crc32c: the checksums of iSCSI") {
  CHECK(Crc32c({}) == 0);
  CHECK(Crc32c(Bytes("123456789")) == 0xe3069283);
  CHECK(Crc32c(Bytes(std::string(32, '\0'))) == 0x8a9136aa);
  CHECK(Crc32c(Bytes(std::string(32, '\xff'))) == 0x62a8ab43);
}

TEST_CASE("crc32c: with the instruction and without, in one piece and in two") {
  std::string text;
  for (int i = 0; i < 300; ++i) text += static_cast<char>(i * 7);
  for (size_t size = 0; size < 40; ++size) {
    const auto bytes = Bytes(text).subspan(size % 9, size);
    CHECK(Crc32c(bytes) == PortableCrc32c(bytes));
  }
  for (const size_t cut : {0, 1, 8, 13, 300}) {
    CHECK(Crc32c(Bytes(text).subspan(cut), Crc32c(Bytes(text).first(cut))) == Crc32c(Bytes(text)));
  }
}

}  // namespace
}  // namespace tandem
