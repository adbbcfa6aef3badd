#pragma once

// Writes a file of packed matrices (packed_file.h) while a model loads: weights that are read
// through RecordedWeights add to it what their loader packs. Thread: the loader's.
// Failure: the system's error (a full disk); a file that is not finished has no header and is
// refused.

#include <memory>
#include <set>
#include <span>
#include <string>

#include "common/status.h"
#include "common/unique_fd.h"
#include "engine_core/weights/packed_header.h"
#include "engine_core/weights/safetensors.h"
#include "kernels/packed_matrix.h"

namespace tandem {

class PackedFileWriter {
 public:
  // The file must not exist.
  static StatusOr<std::unique_ptr<PackedFileWriter>> Create(const std::string& path,
                                                            PackedFacts facts);

  // What is added once more under its name is not written again.
  // REQUIRES: a CPU backend of the facts' dtype has packed it.
  Status AddMatrix(const std::string& name, const PackedMatrix& matrix);
  Status AddVector(const std::string& name, const Tensor& numbers);
  // A name that the loader has found in the checkpoint.
  void AddTensor(std::string_view name) { header_.tensors.emplace(name); }
  // Writes the header. The file is whole then, and on the disk.
  Status Finish();
  int64_t num_bytes() const { return end_; }

 private:
  PackedFileWriter(std::string path, UniqueFd file, PackedFacts facts)
      : path_(std::move(path)), file_(std::move(file)) {
    header_.facts = std::move(facts);
  }
  Status WriteAt(int64_t at, std::span<const std::byte> bytes);
  // At the next page; *at is where.
  Status Append(std::span<const std::byte> bytes, int64_t* at);

  std::string path_;
  UniqueFd file_;
  PackedHeader header_;
  int64_t end_ = kPackedPage;
};

// Others' weights, whose loader writes what it packs of them.
class RecordedWeights final : public Weights {
 public:
  // Borrows both.
  RecordedWeights(Weights* weights, PackedFileWriter* writer)
      : weights_(*weights), writer_(writer) {}

  StatusOr<WeightTensor> Get(std::string_view name, int64_t rows, int64_t columns) override;
  StatusOr<WeightTensor> GetFromStack(std::string_view name, int64_t index, int64_t count,
                                      int64_t rows, int64_t columns) override;
  StatusOr<StoredTensor> GetStored(std::string_view name) override;
  bool Has(std::string_view name) const override;
  std::vector<std::string> Unread() const override { return weights_.Unread(); }
  PackedFileWriter* writer() override { return writer_; }

 private:
  Weights& weights_;
  PackedFileWriter* writer_;
};

}  // namespace tandem
