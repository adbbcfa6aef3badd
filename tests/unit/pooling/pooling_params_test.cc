#include "proto_msgpack/pooling_params.h"

#include <cmath>
#include <string>

#include "frontend/api/pooled_numbers.h"
#include "proto_msgpack/codec.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

TEST_CASE("pooling parameters are vLLM's array of eleven") {
  wire::PoolingParams params;
  params.task = "embed";
  params.dimensions = 16;
  params.skip_reading_prefix_cache = false;
  const wire::RawValue packed = wire::Packed(params);
  CHECK(packed.packed == std::string("\x9b\xc0\x10\xc0\xc0\xa5"
                                     "embed\xc2\xc2\xc0\xc0\x02\xc0"));
  const auto unpacked = wire::UnpackPoolingParams(packed);
  REQUIRE(unpacked.ok());
  CHECK(*unpacked == params);
  CHECK(wire::UnpackPoolingParams({std::string("\x90", 1)}).ok());
  for (const char* wrong : {"\xc3", "\x91\x05", "\x9b"}) {
    CHECK_FALSE(wire::UnpackPoolingParams({std::string(wrong)}).ok());
  }
}

TEST_CASE("token types of a pair are vLLM's key") {
  wire::PoolingParams params;
  CHECK(wire::SecondBegin(params).value() == std::nullopt);
  params.extra_kwargs = wire::PackedTokenTypes(14);
  CHECK(params.extra_kwargs.packed == std::string("\x81\xb9") + "compressed_token_type_ids\x0e");
  CHECK(wire::SecondBegin(params).value() == 14);
  params.extra_kwargs = {std::string("\x81\xa1x\x01")};
  CHECK_FALSE(wire::SecondBegin(params).ok());
}

PooledNumbers Numbers(std::vector<float> values) {
  return {.num_columns = values.size(), .values = std::move(values)};
}

TEST_CASE("a tensor of an engine, its text and its bytes") {
  const float values[] = {0.1f, -2, 1e-9f};
  const wire::TensorView view = {
      .dtype = "float32", .shape = {3}, .data = {reinterpret_cast<const char*>(values), 12}};
  const auto numbers = ReadPooled(wire::PackedTensor(view));
  REQUIRE(numbers.ok());
  std::string text;
  AppendNumbers(*numbers, &text);
  CHECK(text == "[0.1,-2,1e-09]");
  CHECK_FALSE(ReadPooled({}).ok());
  CHECK_FALSE(
      ReadPooled(wire::PackedTensor({.dtype = "float32", .shape = {2, 0}, .data = ""})).ok());
  const auto rows = ReadPooled(wire::PackedTensor(
      {.dtype = "float32", .shape = {3, 1}, .data = {reinterpret_cast<const char*>(values), 12}}));
  text.clear();
  AppendNumbers(*rows, &text);
  CHECK(text == "[[0.1],[-2],[1e-09]]");
  CHECK_FALSE(
      ReadPooled(wire::PackedTensor({.dtype = "int64", .shape = {1}, .data = "12345678"})).ok());
  CHECK_FALSE(
      ReadPooled(wire::PackedTensor({.dtype = "float32", .shape = {2}, .data = "1234"})).ok());
  const auto halves = ReadPooled(wire::PackedTensor(
      {.dtype = "float16", .shape = {2}, .data = std::string_view("\x00\x3c\x00\xc0", 4)}));
  CHECK(halves->values == std::vector<float>{1, -2});
  CHECK(BytesOf(Numbers({1, -2}), EmbedType::kFloat16, false) ==
        std::string("\x00\x3c\x00\xc0", 4));
  CHECK(BytesOf(Numbers({1}), EmbedType::kFloat32, true) == std::string("\x3f\x80\x00\x00", 4));
  CHECK(BytesOf(Numbers({1}), EmbedType::kBfloat16, false) == std::string("\x80\x3f", 2));
}

// Each half that there is, and those between.
TEST_CASE("rounding to float16 is to the nearest") {
  for (int bits = 0; bits < 0x7c00; ++bits) {
    const char half[] = {static_cast<char>(bits & 0xff), static_cast<char>(bits >> 8)};
    const std::string bytes(half, 2);
    const auto number =
        ReadPooled(wire::PackedTensor({.dtype = "float16", .shape = {1}, .data = bytes}));
    REQUIRE(number.ok());
    if (BytesOf(*number, EmbedType::kFloat16, false) != bytes) FAIL("half " << bits);
  }
}

// The number of a code of 8 bits; e4m3 has nothing infinite, and its last code is no number.
double NumberOf(int code, int num_fraction_bits, int bias) {
  const int exponent = code >> num_fraction_bits, ones = 1 << num_fraction_bits;
  const int fraction = code & (ones - 1);
  if (exponent == 0) return std::ldexp(fraction, 1 - bias - num_fraction_bits);
  return std::ldexp(ones + fraction, exponent - bias - num_fraction_bits);
}

// Each code that there is, and those between, of which the even one is taken.
TEST_CASE("rounding to 8 bits is to the nearest") {
  struct Case {
    EmbedType type;
    int num_fraction_bits, bias, last, large;
  };
  for (const Case& c : {Case{EmbedType::kFloat8E4m3, 3, 7, 0x7e, 0x7f},
                        Case{EmbedType::kFloat8E5m2, 2, 15, 0x7b, 0x7c}}) {
    const auto code_of = [&](double number) {
      const std::string bytes = BytesOf(Numbers({static_cast<float>(number)}), c.type, true);
      REQUIRE(bytes.size() == 1);
      return static_cast<int>(static_cast<unsigned char>(bytes[0]));
    };
    for (int code = 0; code <= c.last; ++code) {
      CAPTURE(c.bias, code);
      const double number = NumberOf(code, c.num_fraction_bits, c.bias);
      CHECK(code_of(number) == code);
      CHECK(code_of(-number) == (code | 0x80));
      if (code == c.last) continue;
      const double next = NumberOf(code + 1, c.num_fraction_bits, c.bias);
      const double middle = (number + next) / 2, little = (next - number) / 64;
      CHECK(code_of(middle) == code + code % 2);
      CHECK(code_of(middle - little) == code);
      CHECK(code_of(middle + little) == code + 1);
    }
    CHECK(code_of(1e9) == c.large);
    CHECK(code_of(std::nan("")) == 0x7f);
  }
  CHECK(BytesOf(Numbers({464}), EmbedType::kFloat8E4m3, false) == "\x7e");
  CHECK(BytesOf(Numbers({465}), EmbedType::kFloat8E4m3, false) == "\x7f");
  CHECK(BytesOf(Numbers({61440}), EmbedType::kFloat8E5m2, false) == "\x7c");
}

}  // namespace
}  // namespace tandem
