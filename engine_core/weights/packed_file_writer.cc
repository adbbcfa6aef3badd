#include "engine_core/weights/packed_file_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "engine_core/weights/packed_file.h"

namespace tandem {
namespace {

std::span<const std::byte> BytesOf(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

}  // namespace

StatusOr<std::unique_ptr<PackedFileWriter>> PackedFileWriter::Create(const std::string& path,
                                                                     PackedFacts facts) {
  UniqueFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!file) return ErrnoError(errno, path);
  return std::unique_ptr<PackedFileWriter>(
      new PackedFileWriter(path, std::move(file), std::move(facts)));
}

Status PackedFileWriter::WriteAt(int64_t at, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = pwrite(file_.get(), bytes.data(), bytes.size(), at);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return ErrnoError(errno, "writing " + path_);
    bytes = bytes.subspan(static_cast<size_t>(written));
    at += written;
  }
  return OkStatus();
}

Status PackedFileWriter::Append(std::span<const std::byte> bytes, int64_t* at) {
  *at = end_;
  RETURN_IF_ERROR(WriteAt(end_, bytes));
  header_.parts.push_back({.at = end_,
                           .size = static_cast<int64_t>(bytes.size()),
                           .hash = XXH3_64bits(bytes.data(), bytes.size())});
  end_ += (static_cast<int64_t>(bytes.size()) + kPackedPage - 1) / kPackedPage * kPackedPage;
  return OkStatus();
}

Status PackedFileWriter::AddMatrix(const std::string& name, const PackedMatrix& matrix) {
  if (header_.matrices.contains(name)) return OkStatus();
  PackedBytes bytes;
  PackedHeader::Matrix entry = {.form = FormOf(matrix, header_.facts.dtype, &bytes)};
  RETURN_IF_ERROR(Append(bytes.panels, &entry.at));
  if (!bytes.scales.empty()) RETURN_IF_ERROR(Append(bytes.scales, &entry.scales_at));
  header_.matrices.emplace(name, std::move(entry));
  return OkStatus();
}

Status PackedFileWriter::AddVector(const std::string& name, const Tensor& numbers) {
  if (header_.vectors.contains(name)) return OkStatus();
  PackedHeader::Vector entry = {.size = numbers.NumElements()};
  const auto* const data = reinterpret_cast<const std::byte*>(numbers.Data<float>());
  RETURN_IF_ERROR(Append({data, static_cast<size_t>(numbers.NumBytes())}, &entry.at));
  header_.vectors.emplace(name, entry);
  return OkStatus();
}

Status PackedFileWriter::Finish() {
  const std::string json = HeaderJson(header_);
  const int64_t json_at = end_;
  RETURN_IF_ERROR(WriteAt(json_at, BytesOf(json)));
  // The first page makes the file valid: it comes after all else.
  if (fdatasync(file_.get()) != 0) return ErrnoError(errno, "writing " + path_);
  RETURN_IF_ERROR(WriteAt(0, BytesOf(FirstPage(json_at, json))));
  return fdatasync(file_.get()) == 0 ? OkStatus() : ErrnoError(errno, "writing " + path_);
}

StatusOr<WeightTensor> RecordedWeights::Get(std::string_view name, int64_t rows, int64_t columns) {
  return weights_.Get(name, rows, columns);
}

StatusOr<WeightTensor> RecordedWeights::GetFromStack(std::string_view name, int64_t index,
                                                     int64_t count, int64_t rows, int64_t columns) {
  return weights_.GetFromStack(name, index, count, rows, columns);
}

StatusOr<StoredTensor> RecordedWeights::GetStored(std::string_view name) {
  return weights_.GetStored(name);
}

bool RecordedWeights::Has(std::string_view name) const {
  const bool has = weights_.Has(name);
  if (has) writer_->AddTensor(name);
  return has;
}

}  // namespace tandem
