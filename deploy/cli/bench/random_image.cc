#include "deploy/cli/bench/random_image.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string>

#include "common/random.h"
#include "common/strings.h"
#include "frontend/text/base64.h"

namespace tandem {
namespace {

constexpr int64_t kMaxSide = 16384;
constexpr size_t kMaxStored = 65535;  // bytes of a block that is not compressed

constexpr std::array<uint32_t, 256> kCrcTable = [] {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < table.size(); ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = crc % 2 == 1 ? 0xEDB88320 ^ crc >> 1 : crc >> 1;
    table[i] = crc;
  }
  return table;
}();

uint32_t Crc32(std::string_view bytes) {
  uint32_t crc = 0xFFFFFFFF;
  for (const char c : bytes) {
    crc = kCrcTable[(crc ^ static_cast<unsigned char>(c)) & 0xFF] ^ crc >> 8;
  }
  return ~crc;
}

uint32_t Adler32(std::string_view bytes) {
  constexpr uint32_t kModulus = 65521;
  constexpr size_t kBetween = 5552;  // bytes after which b may not fit
  uint32_t a = 1, b = 0;
  for (size_t begin = 0; begin < bytes.size(); begin += kBetween) {
    for (const char c : bytes.substr(begin, kBetween)) b += a += static_cast<unsigned char>(c);
    a %= kModulus;
    b %= kModulus;
  }
  return b << 16 | a;
}

std::string BigEndian(uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift & 0xFF);
  return bytes;
}

std::string PngChunk(std::string_view type, std::string_view data) {
  const std::string body = std::string(type) + std::string(data);
  return BigEndian(static_cast<uint32_t>(data.size())) + body + BigEndian(Crc32(body));
}

// A zlib stream of stored blocks.
std::string Stored(std::string_view bytes) {
  std::string stream = "\x78\x01";
  for (size_t begin = 0; begin < bytes.size(); begin += kMaxStored) {
    const std::string_view block = bytes.substr(begin, kMaxStored);
    const auto size = static_cast<uint16_t>(block.size());
    const auto inverse = static_cast<uint16_t>(~size);
    stream += begin + kMaxStored >= bytes.size() ? '\1' : '\0';
    for (const uint16_t number : {size, inverse}) {
      stream += static_cast<char>(number & 0xFF);
      stream += static_cast<char>(number >> 8);
    }
    stream += block;
  }
  return stream + BigEndian(Adler32(bytes));
}

// The number that `text` begins with, which is taken off it with the blanks around it.
bool TakeNumber(std::string_view* text, double* number) {
  *text = StripAscii(*text);
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), *number);
  if (error != std::errc() || !std::isfinite(*number)) return false;
  *text = StripAscii(text->substr(static_cast<size_t>(end - text->data())));
  return true;
}

bool Take(std::string_view* text, char wanted) {
  *text = StripAscii(*text);
  if (text->empty() || text->front() != wanted) return false;
  *text = StripAscii(text->substr(1));
  return true;
}

// "(256, 256, 1): 0.5"
bool TakeBucket(std::string_view* text, ImageBucket* bucket) {
  double height = 0, width = 0, frames = 0;
  if (!Take(text, '(') || !TakeNumber(text, &height) || !Take(text, ',') ||
      !TakeNumber(text, &width) || !Take(text, ',') || !TakeNumber(text, &frames) ||
      !Take(text, ')') || !Take(text, ':') || !TakeNumber(text, &bucket->weight)) {
    return false;
  }
  for (const double side : {height, width}) {
    if (side < 1 || side > kMaxSide || side != std::floor(side)) return false;
  }
  if (bucket->weight < 0 || (frames != 1 && bucket->weight > 0)) return false;
  bucket->height = static_cast<int64_t>(height);
  bucket->width = static_cast<int64_t>(width);
  return true;
}

}  // namespace

StatusOr<std::vector<ImageBucket>> ParseImageBuckets(std::string_view text) {
  std::vector<ImageBucket> buckets;
  std::string_view rest = text;
  bool is_good = Take(&rest, '{');
  while (is_good && !Take(&rest, '}')) {
    ImageBucket bucket;
    is_good = TakeBucket(&rest, &bucket);
    if (is_good && bucket.weight > 0) buckets.push_back(bucket);
    if (is_good && !Take(&rest, ',') && (rest.empty() || rest.front() != '}')) is_good = false;
  }
  if (is_good && rest.empty() && !buckets.empty()) return buckets;
  return InvalidArgumentError(
      "--random-mm-bucket-config is '" + std::string(text) +
      "', must be {(height, width, 1): probability, ...} with sides of up to " +
      std::to_string(kMaxSide) + "; videos (more than 1 frame) are not sent");
}

std::string RandomPng(int64_t height, int64_t width, uint64_t seed) {
  std::string rows;
  const auto row_bytes = static_cast<size_t>(3 * width);
  rows.reserve(static_cast<size_t>(height) * (row_bytes + 1));
  uint64_t word = 0;
  for (int64_t y = 0; y < height; ++y) {
    rows += '\0';  // no filter
    for (size_t i = 0; i < row_bytes; ++i) {
      const size_t at = static_cast<size_t>(y) * row_bytes + i;
      if (at % 8 == 0) word = MixBits(seed + at);
      rows += static_cast<char>(word >> (8 * (at % 8)) & 0xFF);
    }
  }
  const std::string header = BigEndian(static_cast<uint32_t>(width)) +
                             BigEndian(static_cast<uint32_t>(height)) +
                             std::string("\x08\x02\x00\x00\x00", 5);  // RGB, 8 bits each
  return "\x89PNG\r\n\x1a\n" + PngChunk("IHDR", header) + PngChunk("IDAT", Stored(rows)) +
         PngChunk("IEND", "");
}

std::string RandomImageUrl(int64_t height, int64_t width, uint64_t seed) {
  return "data:image/png;base64," + Base64Encode(RandomPng(height, width, seed));
}

}  // namespace tandem
