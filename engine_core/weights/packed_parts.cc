#include "engine_core/weights/packed_parts.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "common/file_identity.h"
#include "common/read_file.h"

namespace tandem {
namespace {

constexpr size_t kChunkBytes = 1 << 20;  // between two looks at `ends`
constexpr int64_t kMaxMarkBytes = 4096;

std::string MarkOf(const std::string& path) { return path + ".damaged"; }

Status Damaged(const std::string& path, const std::string& what) {
  return DataLossError(path + ": " + what +
                       ": the disk, the memory or a writer has damaged it; pack the model again");
}

}  // namespace

PackedParts::PackedParts(std::string path, std::shared_ptr<const MappedFile> file,
                         std::vector<PackedHeader::Part> parts)
    : path_(std::move(path)),
      identity_(FileIdentity(path_)),
      file_(std::move(file)),
      parts_(std::move(parts)) {}

int64_t PackedParts::num_bytes() const {
  int64_t bytes = 0;
  for (const PackedHeader::Part& part : parts_) bytes += part.size;
  return bytes;
}

Status PackedParts::Check(const std::atomic<bool>& ends) const {
  XXH3_state_t state;
  for (const PackedHeader::Part& part : parts_) {
    std::span<const std::byte> left =
        file_->bytes().subspan(static_cast<size_t>(part.at), static_cast<size_t>(part.size));
    XXH3_64bits_reset(&state);
    while (!left.empty()) {
      if (ends) return CancelledError("the check of " + path_ + " was ended");
      const auto chunk = left.first(std::min(kChunkBytes, left.size()));
      XXH3_64bits_update(&state, chunk.data(), chunk.size());
      left = left.subspan(chunk.size());
    }
    if (XXH3_64bits_digest(&state) == part.hash) continue;
    return Damaged(path_, "the " + std::to_string(part.size) + " bytes at " +
                              std::to_string(part.at) + " do not have their hash");
  }
  return OkStatus();
}

void PackedParts::MarkDamaged() const {
  if (identity_.empty() || FileIdentity(path_) != identity_) return;
  std::ofstream(MarkOf(path_), std::ios::binary) << identity_;
}

Status CheckNotMarked(const std::string& path) {
  const StatusOr<std::string> mark = ReadFileIfAny(MarkOf(path), kMaxMarkBytes);
  if (!mark.ok() || mark->empty() || *mark != FileIdentity(path)) return OkStatus();
  return Damaged(path, "its bytes did not have their hashes when it was served");
}

}  // namespace tandem
