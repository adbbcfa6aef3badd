#include "frontend/processing/zip_entries.h"

#include <cstdint>
#include <optional>

namespace tandem {
namespace {

constexpr size_t kMaxEntries = 1000;

// Little-endian fields of one record; zero, and not ok(), outside of the archive.
class Fields {
 public:
  Fields(std::string_view archive, size_t begin) : archive_(archive), begin_(begin) {}

  uint32_t U16(size_t offset) { return Read(offset, 2); }
  uint32_t U32(size_t offset) { return Read(offset, 4); }
  std::string_view Bytes(size_t offset, size_t size) {
    ok_ = ok_ && begin_ <= archive_.size() && offset <= archive_.size() - begin_ &&
          size <= archive_.size() - begin_ - offset;
    return ok_ ? archive_.substr(begin_ + offset, size) : std::string_view();
  }
  bool ok() const { return ok_; }

 private:
  uint32_t Read(size_t offset, size_t size) {
    uint32_t value = 0;
    const std::string_view bytes = Bytes(offset, size);
    for (size_t i = bytes.size(); i > 0; --i) {
      value = value << 8 | static_cast<unsigned char>(bytes[i - 1]);
    }
    return value;
  }

  std::string_view archive_;
  size_t begin_;
  bool ok_ = true;
};

// The record at the end, after which there is at most a comment of 64 KB.
std::optional<size_t> FindEnd(std::string_view archive) {
  constexpr size_t kEndBytes = 22, kMaxComment = 65535;
  if (archive.size() < kEndBytes) return std::nullopt;
  const size_t at = archive.rfind(std::string_view("PK\5\6", 4), archive.size() - kEndBytes);
  if (at == std::string_view::npos || archive.size() - at > kEndBytes + kMaxComment) {
    return std::nullopt;
  }
  return at;
}

// The bytes after the entry's own header, which repeats the name and pads with an extra field.
std::string_view DataOf(std::string_view archive, size_t header, size_t size, bool* ok) {
  constexpr size_t kHeaderBytes = 30;
  Fields fields(archive, header);
  const bool is_header = fields.Bytes(0, 4) == std::string_view("PK\3\4", 4);
  const std::string_view data = fields.Bytes(kHeaderBytes + fields.U16(26) + fields.U16(28), size);
  *ok = fields.ok() && is_header;
  return data;
}

}  // namespace

StatusOr<std::vector<ZipEntry>> ReadZipEntries(std::string_view archive) {
  constexpr size_t kRecordBytes = 46;
  const Status damaged = InvalidArgumentError("not a ZIP archive as torch.save writes it");
  const std::optional<size_t> end = FindEnd(archive);
  if (!end) return damaged;
  Fields directory(archive, *end);
  const size_t num_entries = directory.U16(10);
  size_t at = directory.U32(16);
  if (!directory.ok() || num_entries > kMaxEntries) return damaged;
  std::vector<ZipEntry> entries;
  for (size_t i = 0; i < num_entries; ++i) {
    Fields record(archive, at);
    if (record.Bytes(0, 4) != std::string_view("PK\1\2", 4)) return damaged;
    const uint32_t method = record.U16(10), size = record.U32(24), header = record.U32(42);
    const size_t name_bytes = record.U16(28), extra_bytes = record.U16(30);
    const size_t comment_bytes = record.U16(32);
    const std::string_view name = record.Bytes(kRecordBytes, name_bytes);
    bool ok = false;
    const std::string_view data = DataOf(archive, header, size, &ok);
    if (!record.ok() || !ok || method != 0 || record.U32(20) != size) return damaged;
    entries.push_back({name, data});
    at += kRecordBytes + name_bytes + extra_bytes + comment_bytes;
  }
  return entries;
}

}  // namespace tandem
