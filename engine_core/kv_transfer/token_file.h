#pragma once

// A file with the KV of a prompt's tokens in one layer: safetensors with one tensor `kv_cache`,
// [tokens, num_kv_heads, 2 * head_dim], of each head its K and then its V. As vLLM's
// ExampleConnector writes it, byte for byte. Thread: any. A file is a stranger's: everything that
// it says is checked against what it must hold. Failure: the system's error, or DATA_LOSS with the
// path and what is wrong.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "common/status.h"
#include "common/unique_fd.h"
#include "kernels/tensor.h"

namespace tandem {

// REQUIRES: kF32, kBf16 or kF16.
struct TokenFileShape {
  DType dtype = DType::kF32;
  int64_t num_tokens = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;

  int64_t bytes_per_token() const { return num_kv_heads * 2 * head_dim * SizeOf(dtype); }
  int64_t num_bytes() const { return num_tokens * bytes_per_token(); }
};

// All that comes before the numbers.
std::string TokenFileHeader(const TokenFileShape& shape);

// Writes a new file and waits until it is on the disk. next: called for the numbers, piece by piece
// in their order; empty: that was all.
Status WriteTokenFile(const std::string& path, const TokenFileShape& shape,
                      const std::function<std::span<const std::byte>()>& next);

// An open file that holds this shape.
class TokenFile {
 public:
  static StatusOr<TokenFile> Open(const std::string& path, const TokenFileShape& shape);
  // The numbers of some tokens. DATA_LOSS: the file has become shorter.
  Status Read(int64_t first_token, std::span<std::byte> numbers) const;

 private:
  TokenFile(std::string path, const TokenFileShape& shape, UniqueFd file, int64_t data_begin)
      : path_(std::move(path)), shape_(shape), file_(std::move(file)), data_begin_(data_begin) {}

  std::string path_;
  TokenFileShape shape_;
  UniqueFd file_;
  int64_t data_begin_;
};

}  // namespace tandem
