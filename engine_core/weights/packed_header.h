#pragma once

// What a file of packed matrices (packed_file.h) says of itself: what it was made of and for, and
// where each matrix and vector lies. It is JSON at the end of the file, which the first page points
// to. Values; any thread, pure. Failure: INVALID_ARGUMENT or DATA_LOSS with what is wrong; nothing
// of a header is used before all of it has been checked against the file's size.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"
#include "kernels/packed_form.h"

namespace tandem {

inline constexpr int64_t kPackedPage = kPackedAlignment;

// A GGUF model's configuration, which its file of packed matrices has in place of a config.json.
struct PackedGgufConfig {
  std::string config;  // JSON, spelled as config.json
  std::string tensor_types;
  double layer_bits = 0, table_bits = 0;
};

struct PackedFacts {
  std::string quantization;  // --quantization when it was packed
  DType dtype = DType::kBf16;
  std::string source = {};    // the model's path then
  std::string identity = {};  // of its files: source_identity.h
  std::optional<PackedGgufConfig> gguf = {};
};

struct PackedHeader {
  struct Matrix {
    PackedForm form;
    int64_t at = 0, scales_at = 0;  // bytes from the file's begin
  };
  struct Vector {
    int64_t at = 0, size = 0;  // float32 numbers
  };
  // What was written in one piece: the panels or scales of a matrix, or a vector.
  struct Part {
    int64_t at = 0, size = 0;  // bytes
    uint64_t hash = 0;         // XXH3
  };
  PackedFacts facts;
  std::set<std::string, std::less<>> tensors;  // the checkpoint's names of what it was made of
  std::map<std::string, Matrix, std::less<>> matrices;
  std::map<std::string, Vector, std::less<>> vectors;
  std::vector<Part> parts;  // empty: of a program that wrote no hashes
};

// The first page: where the JSON lies, and its hash.
std::string FirstPage(int64_t json_at, std::string_view json);
std::string HeaderJson(const PackedHeader& header);

// file: all of it.
StatusOr<PackedHeader> ParsePackedHeader(std::span<const std::byte> file);

}  // namespace tandem
