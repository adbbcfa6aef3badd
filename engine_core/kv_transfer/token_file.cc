#include "engine_core/kv_transfer/token_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine_core/weights/json_file.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

constexpr int64_t kLengthBytes = 8;
// vLLM's has less than 100 bytes.
constexpr int64_t kMaxHeaderBytes = 1 << 16;

const char* TypeName(DType dtype) {
  return dtype == DType::kF32 ? "F32" : dtype == DType::kBf16 ? "BF16" : "F16";
}

Status Wrong(const std::string& path, const std::string& what) {
  return DataLossError(path + ": " + what);
}

Status WriteAll(int fd, const std::string& path, const void* bytes, size_t size) {
  const auto* next = static_cast<const char*>(bytes);
  while (size > 0) {
    const ssize_t written = write(fd, next, size);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return ErrnoError(errno, "writing " + path);
    next += written;
    size -= static_cast<size_t>(written);
  }
  return OkStatus();
}

Status ReadAll(int fd, const std::string& path, int64_t at, void* bytes, size_t size) {
  auto* next = static_cast<char*>(bytes);
  while (size > 0) {
    const ssize_t count = pread(fd, next, size, at);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return ErrnoError(errno, "reading " + path);
    if (count == 0) return Wrong(path, "is cut short");
    next += count;
    at += count;
    size -= static_cast<size_t>(count);
  }
  return OkStatus();
}

// The numbers are all of the data: a length of the header that is wrong by a blank would shift
// them.
Status CheckHeader(const std::string& path, const std::string& header, const TokenFileShape& shape,
                   int64_t data_bytes) {
  const StatusOr<Json> object = ParseJsonObject(header);
  if (!object.ok()) return Wrong(path, object.status().message());
  const auto found = object->find("kv_cache");
  if (found == object->end() || !found->is_object()) return Wrong(path, "has no kv_cache");
  const Json type = found->value("dtype", Json());
  if (type != TypeName(shape.dtype)) {
    return Wrong(path, "has dtype " + type.dump(-1, ' ', true, Json::error_handler_t::replace) +
                           ", the KV cache " + TypeName(shape.dtype));
  }
  const Json sizes = found->value("shape", Json());
  const Json wanted = {shape.num_tokens, shape.num_kv_heads, 2 * shape.head_dim};
  if (sizes != wanted) {
    return Wrong(path, "has shape " + sizes.dump(-1, ' ', true, Json::error_handler_t::replace) +
                           ", must be " + wanted.dump());
  }
  const Json all = {0, shape.num_bytes()};
  if (found->value("data_offsets", Json()) != all) {
    return Wrong(path, "has data_offsets that do not fit its shape");
  }
  if (data_bytes < shape.num_bytes()) return Wrong(path, "is cut short");
  if (data_bytes > shape.num_bytes()) return Wrong(path, "has more than its tensor");
  return OkStatus();
}

}  // namespace

std::string TokenFileHeader(const TokenFileShape& shape) {
  std::string json = std::string(R"({"kv_cache":{"dtype":")") + TypeName(shape.dtype) +
                     R"(","shape":[)" + std::to_string(shape.num_tokens) + "," +
                     std::to_string(shape.num_kv_heads) + "," + std::to_string(2 * shape.head_dim) +
                     R"(],"data_offsets":[0,)" + std::to_string(shape.num_bytes()) + "]}}";
  json.resize((json.size() + kLengthBytes - 1) / kLengthBytes * kLengthBytes, ' ');
  std::string header;
  for (int shift = 0; shift < 64; shift += 8) header += static_cast<char>(json.size() >> shift);
  return header + json;
}

Status WriteTokenFile(const std::string& path, const TokenFileShape& shape,
                      const std::function<std::span<const std::byte>()>& next) {
  const UniqueFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!file) return ErrnoError(errno, path);
  const std::string header = TokenFileHeader(shape);
  RETURN_IF_ERROR(WriteAll(file.get(), path, header.data(), header.size()));
  for (auto piece = next(); !piece.empty(); piece = next()) {
    RETURN_IF_ERROR(WriteAll(file.get(), path, piece.data(), piece.size()));
  }
  return fdatasync(file.get()) == 0 ? OkStatus() : ErrnoError(errno, "writing " + path);
}

StatusOr<TokenFile> TokenFile::Open(const std::string& path, const TokenFileShape& shape) {
  // What is no file, as a pipe without a writer, must not hold anybody up.
  UniqueFd file(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!file) return ErrnoError(errno, path);
  struct stat facts {};
  if (fstat(file.get(), &facts) != 0) return ErrnoError(errno, path);
  if (!S_ISREG(facts.st_mode)) return Wrong(path, "is not a regular file");
  uint8_t length[kLengthBytes];
  RETURN_IF_ERROR(ReadAll(file.get(), path, 0, length, sizeof(length)));
  uint64_t header_bytes = 0;
  for (int i = 0; i < kLengthBytes; ++i) header_bytes |= uint64_t{length[i]} << (8 * i);
  if (header_bytes > kMaxHeaderBytes) {
    return Wrong(path, "has a header of " + std::to_string(header_bytes) + " bytes, at most " +
                           std::to_string(kMaxHeaderBytes) + " are read");
  }
  std::string header(header_bytes, '\0');
  RETURN_IF_ERROR(ReadAll(file.get(), path, kLengthBytes, header.data(), header.size()));
  const int64_t data_begin = kLengthBytes + static_cast<int64_t>(header_bytes);
  RETURN_IF_ERROR(CheckHeader(path, header, shape, facts.st_size - data_begin));
  return TokenFile(path, shape, std::move(file), data_begin);
}

Status TokenFile::Read(int64_t first_token, std::span<std::byte> numbers) const {
  return ReadAll(file_.get(), path_, data_begin_ + first_token * shape_.bytes_per_token(),
                 numbers.data(), numbers.size());
}

}  // namespace tandem
