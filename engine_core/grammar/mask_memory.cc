#include "engine_core/grammar/mask_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "common/packets.h"

namespace tandem {

StatusOr<MaskMemory> MaskMemory::Create(int32_t num_rows, int32_t vocab_size) {
  MaskMemory memory;
  ASSIGN_OR_RETURN(memory.file_, MakeMemoryFile("token-masks", ""));
  const size_t num_words = MaskRows::NumRowWords(vocab_size) * static_cast<size_t>(num_rows);
  const size_t bytes = num_words * sizeof(int32_t);
  if (ftruncate(memory.file_.get(), static_cast<off_t>(bytes)) != 0) {
    return ErrnoError(errno, "the memory of token masks");
  }
  void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.file_.get(), 0);
  if (mapped == MAP_FAILED) return ErrnoError(errno, "the memory of token masks");
  memory.words_ = {static_cast<int32_t*>(mapped), num_words};
  memory.rows_ = MaskRows(memory.words_, vocab_size);
  return memory;
}

MaskMemory::MaskMemory(MaskMemory&& other) noexcept
    : file_(std::move(other.file_)),
      words_(std::exchange(other.words_, {})),
      rows_(std::exchange(other.rows_, {})) {}

MaskMemory::~MaskMemory() {
  if (!words_.empty()) munmap(words_.data(), words_.size_bytes());
}

}  // namespace tandem
