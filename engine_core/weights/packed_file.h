#pragma once

// A model's matrices as the CPU backend packs them, in a file that is mapped: `tandem pack` writes
// it (packed_file_writer.h), and a model that starts from it packs nothing. Processes share its
// pages.
//   page 0            magic, place and hash of the header
//   pages             the bytes of matrices and vectors, each from a page on
//   to the end        the header (packed_header.h), JSON
// It lies in a folder as model.tandem, beside what else the processes read of a model.
// Thread: one loader at a time. Ownership: matrices keep the mapping. Failure: as Weights; a matrix
// of another shape or format than the loader wants. The file must not be truncated by others while
// it is mapped (SIGBUS).

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/mapped_file.h"
#include "common/status.h"
#include "engine_core/weights/packed_header.h"
#include "engine_core/weights/packed_parts.h"
#include "engine_core/weights/safetensors.h"
#include "engine_core/weights/stored_matrix.h"
#include "kernels/packed_matrix.h"

namespace tandem {

// The file of packed matrices of a model's folder; empty: it has none.
std::string FindPackedFile(const std::string& model);

// Where it lies in a folder.
std::string PackedPath(const std::string& folder);

// FAILED_PRECONDITION: the model that the file was made of is still where it was, and has changed.
Status CheckSourceUnchanged(const PackedFacts& facts, const std::string& path);

// What a matrix that is stacked of these blocks is called in the file.
std::string PackedName(std::span<const StoredMatrix> blocks);

class PackedFile final : public Weights {
 public:
  static StatusOr<std::unique_ptr<PackedFile>> Open(const std::string& path);

  const PackedFacts& facts() const { return header_.facts; }
  int64_t num_bytes() const { return static_cast<int64_t>(file_->bytes().size()); }
  PackedParts parts() const { return PackedParts(path_, file_, header_.parts); }

  // The matrix that a loader asks for, as Backend::Pack of a CPU backend of `dtype` would make it.
  struct Wanted {
    std::string name;
    int64_t n = 0, k = 0;
    WeightFormat format = WeightFormat::kCompute;
    bool is_gated = false;
  };
  StatusOr<std::unique_ptr<PackedMatrix>> Matrix(const Wanted& wanted, DType dtype) const;
  // A view [size] f32 of the file.
  StatusOr<Tensor> Vector(const std::string& name, int64_t size) const;

  // It has matrices only as they are packed.
  StatusOr<WeightTensor> Get(std::string_view name, int64_t rows, int64_t columns) override;
  StatusOr<WeightTensor> GetFromStack(std::string_view name, int64_t index, int64_t count,
                                      int64_t rows, int64_t columns) override;
  bool Has(std::string_view name) const override { return header_.tensors.contains(name); }
  PackedFile* packed() override { return this; }

 private:
  PackedFile(std::string path, MappedFile file, PackedHeader header)
      : path_(std::move(path)),
        file_(std::make_shared<const MappedFile>(std::move(file))),
        header_(std::move(header)) {}
  std::span<const std::byte> BytesAt(int64_t at, int64_t size) const;

  std::string path_;
  std::shared_ptr<const MappedFile> file_;
  PackedHeader header_;
};

}  // namespace tandem
