#pragma once

// GGUF, the file format of ggml and llama.cpp (versions 2 and 3): keys with values, which describe
// a model and its tokenizer, then named tensors. A model may be split over files
// NAME-00001-of-0000N.gguf; the keys of the first one count, and opening it opens all.
// Thread: immutable after Open; any thread. Ownership: files are mapped; everything returned is a
// view of them.
// Failure: every count, offset, type and string is checked before use; the Status names the file
// and the key or tensor. Files must not be truncated by others while they are mapped (SIGBUS).

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/mapped_file.h"
#include "common/status.h"
#include "gguf/metadata.h"
#include "gguf/tensor_types.h"

namespace tandem {

struct GgufTensor {
  const GgufTensorType* type = nullptr;
  std::vector<int64_t> shape;        // the slowest first; the file has the fastest first
  std::span<const std::byte> bytes;  // rows of whole blocks
};

// Whether a file's name is a GGUF model's, and not of what lies beside one: a projector, an
// importance matrix, a draft head.
bool IsGgufModelName(std::string_view file_name);

// The GGUF file that a model's path means: the file itself, whatever its name, if it begins as one
// does; of a folder that is no other model (config.json and safetensors) the only one, or the first
// part of the only split one. Empty: none. InvalidArgument: several, or a .gguf file that is none.
StatusOr<std::string> FindGgufFile(const std::string& model);

class GgufFile {
 public:
  static StatusOr<std::unique_ptr<GgufFile>> Open(const std::string& path);

  const std::string& path() const { return path_; }
  const GgufMetadata& metadata() const { return metadata_; }
  // Null when there is none.
  const GgufTensor* Find(std::string_view name) const;
  // By name.
  const std::map<std::string, GgufTensor, std::less<>>& tensors() const { return tensors_; }

 private:
  explicit GgufFile(std::string path) : path_(std::move(path)) {}
  Status OpenParts();
  Status CheckPart(const GgufMetadata& metadata, int64_t part, int64_t num_parts) const;
  // Takes in a mapped file; its keys go to *metadata.
  Status Add(const std::string& path, GgufMetadata* metadata);

  std::string path_;
  std::vector<MappedFile> files_;
  GgufMetadata metadata_;
  std::map<std::string, GgufTensor, std::less<>> tensors_;
};

}  // namespace tandem
