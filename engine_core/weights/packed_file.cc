#include "engine_core/weights/packed_file.h"

#include <filesystem>
#include <utility>

#include "engine_core/weights/source_identity.h"

namespace tandem {
namespace {

// Whether a matrix may stand where `wanted` was asked for.
bool Fits(const PackedForm& form, WeightFormat wanted) {
  const WeightFormat have = form.format;
  if (wanted != WeightFormat::kStored) return have == wanted && !form.codes;
  return have == WeightFormat::kStored || have == WeightFormat::kInt8 ||
         have == WeightFormat::kCompute;
}

}  // namespace

std::string PackedPath(const std::string& folder) { return folder + "/model.tandem"; }

Status CheckSourceUnchanged(const PackedFacts& facts, const std::string& path) {
  const StatusOr<std::string> identity = SourceIdentity(facts.source);
  if (!identity.ok() || *identity == facts.identity) return OkStatus();
  return FailedPreconditionError(path + " was packed of " + facts.source +
                                 ", which has changed since: pack it again with `tandem pack`");
}

std::string FindPackedFile(const std::string& model) {
  std::error_code error;
  std::string path = PackedPath(model);
  return std::filesystem::exists(path, error) ? path : std::string();
}

std::string PackedName(std::span<const StoredMatrix> blocks) {
  const auto range = [](const Slice& slice) {
    return "[" + std::to_string(slice.begin) + ":" + std::to_string(slice.end()) + "]";
  };
  std::string name;
  for (const StoredMatrix& block : blocks) {
    name += (name.empty() ? "" : " ") + block.name;
    if (block.stack_size > 0) name += "." + std::to_string(block.stack_idx);
    name += range(block.rows_to_load());
    if (block.row_step > 1) name += "/" + std::to_string(block.row_step);
    if (block.column_slice) name += range(*block.column_slice);
  }
  return name;
}

StatusOr<std::unique_ptr<PackedFile>> PackedFile::Open(const std::string& path) {
  ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  StatusOr<PackedHeader> header = ParsePackedHeader(file.bytes());
  if (!header.ok()) return header.status().WithContext(path);
  return std::unique_ptr<PackedFile>(new PackedFile(path, std::move(file), *std::move(header)));
}

std::span<const std::byte> PackedFile::BytesAt(int64_t at, int64_t size) const {
  return file_->bytes().subspan(static_cast<size_t>(at), static_cast<size_t>(size));
}

StatusOr<std::unique_ptr<PackedMatrix>> PackedFile::Matrix(const Wanted& wanted,
                                                           DType dtype) const {
  const auto found = header_.matrices.find(wanted.name);
  if (found == header_.matrices.end()) {
    return NotFoundError(path_ + ": no matrix " + wanted.name + ": pack the model again");
  }
  const PackedForm& form = found->second.form;
  if (form.n != wanted.n || form.k != wanted.k || form.is_gated != wanted.is_gated ||
      form.dtype != dtype || !Fits(form, wanted.format)) {
    return InvalidArgumentError(
        path_ + ": matrix " + wanted.name + " has " + std::to_string(form.n) + " rows of " +
        std::to_string(form.k) + ", the model needs " + std::to_string(wanted.n) + " of " +
        std::to_string(wanted.k) + " in the format of --quantization and --dtype: pack it again");
  }
  ASSIGN_OR_RETURN(const PackedSizes sizes, SizesOf(form));
  const PackedBytes bytes = {.panels = BytesAt(found->second.at, sizes.panels),
                             .scales = BytesAt(found->second.scales_at, sizes.scales)};
  return MapMatrix(form, bytes, file_);
}

StatusOr<Tensor> PackedFile::Vector(const std::string& name, int64_t size) const {
  const auto found = header_.vectors.find(name);
  if (found == header_.vectors.end() || found->second.size != size) {
    return NotFoundError(path_ + ": no vector " + name + " of " + std::to_string(size) +
                         " numbers: pack the model again");
  }
  void* const data = const_cast<std::byte*>(BytesAt(found->second.at, size * 4).data());
  return Tensor(data, DType::kF32, {size});  // only read
}

StatusOr<WeightTensor> PackedFile::Get(std::string_view name, int64_t /*rows*/,
                                       int64_t /*columns*/) {
  return NotFoundError(path_ + " has no tensor " + std::string(name) + " but what is packed of it");
}

StatusOr<WeightTensor> PackedFile::GetFromStack(std::string_view name, int64_t /*index*/,
                                                int64_t /*count*/, int64_t rows, int64_t columns) {
  return Get(name, rows, columns);
}

}  // namespace tandem
