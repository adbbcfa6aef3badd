#include "common/packed_bytes.h"

#include <array>
#include <limits>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

TEST_CASE("PackedBytes: what is written is read") {
  const std::vector<int64_t> numbers = {0,
                                        -1,
                                        1,
                                        63,
                                        64,
                                        -64,
                                        -65,
                                        1'000'000,
                                        -1'000'000,
                                        std::numeric_limits<int64_t>::max(),
                                        std::numeric_limits<int64_t>::min()};
  std::array<char, 256> memory;
  ByteWriter writer(memory);
  for (const int64_t number : numbers) writer.Signed(number);
  writer.Bytes("");
  writer.Bytes("text");
  writer.Fixed(2.5);
  writer.List(std::span<const int64_t>(numbers));
  REQUIRE(writer.fits());

  ByteReader reader({memory.data(), writer.size()});
  for (const int64_t number : numbers) CHECK(reader.Signed() == number);
  CHECK(reader.Bytes().empty());
  CHECK(reader.Bytes() == "text");
  CHECK(reader.Fixed<double>() == 2.5);
  std::vector<int64_t> list;
  reader.List(&list);
  CHECK(list == numbers);
  CHECK(reader.ok());
  CHECK(reader.empty());
}

TEST_CASE("PackedBytes: small numbers of either sign take one byte") {
  std::array<char, 8> memory;
  ByteWriter writer(memory);
  writer.Signed(-1);
  writer.Signed(63);
  CHECK(writer.size() == 2);
}

TEST_CASE("PackedBytes: what does not fit is left out and noticed") {
  std::array<char, 4> memory;
  ByteWriter writer(memory);
  writer.Bytes("abc");
  CHECK(writer.fits());
  writer.Varint(1);
  CHECK_FALSE(writer.fits());
  CHECK(writer.size() == 4);
}

TEST_CASE("PackedBytes: every prefix of a message is refused, and no length is trusted") {
  std::array<char, 64> memory;
  ByteWriter writer(memory);
  writer.Bytes("abcdef");
  writer.Fixed(uint64_t{7});
  writer.Varint(300);
  for (size_t size = 0; size < writer.size(); ++size) {
    ByteReader reader({memory.data(), size});
    (void)reader.Bytes();
    (void)reader.Fixed<uint64_t>();
    (void)reader.Varint();
    CHECK_FALSE(reader.ok());
  }
  const std::string huge = "\xff\xff\xff\xff\xff\xff\xff\xff\x7f";
  ByteReader lying(huge);
  CHECK(lying.Count() == 0);
  CHECK_FALSE(lying.ok());
  ByteReader endless(std::string_view("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 11));
  CHECK(endless.Varint() == 0);
  CHECK_FALSE(endless.ok());
}

}  // namespace
}  // namespace tandem
