// model.tandem: a whole file, or, where the input begins with a brace, the header of one with its
// right hash after two pages. It is refused with a message, or every byte of its matrices and
// vectors can be read, and its parts have their hashes or not.

#include <atomic>
#include <string>

#include "common/check.h"
#include "engine_core/weights/packed_file.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/support/files/temp_folder.h"

namespace tandem {
namespace {

void Touch(std::span<const std::byte> bytes) {
  const auto* data = reinterpret_cast<const volatile uint8_t*>(bytes.data());
  for (size_t i = 0; i < bytes.size(); ++i) (void)data[i];
}

void Use(const PackedFile& file, WeightFormat format, int64_t rows, int64_t columns) {
  for (const bool is_gated : {false, true}) {
    const DType dtype = file.facts().dtype;
    const auto matrix = file.Matrix({.name = "a[0:" + std::to_string(rows) + "]",
                                     .n = rows,
                                     .k = columns,
                                     .format = format,
                                     .is_gated = is_gated},
                                    dtype);
    if (!matrix.ok()) {
      CHECK(!matrix.status().message().empty());
      continue;
    }
    PackedBytes bytes;
    CHECK_EQ(FormOf(**matrix, dtype, &bytes).n, rows);
    Touch(bytes.panels);
    Touch(bytes.scales);
  }
}

}  // namespace
}  // namespace tandem

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem;
  static const TempFolder folder;
  std::string bytes(FuzzInput(data, size).Rest());
  if (bytes.starts_with('{')) {
    bytes = FirstPage(3 * kPackedPage, bytes) + std::string(2 * kPackedPage, '\1') + bytes;
  }
  folder.Write("model.tandem", bytes);
  const auto file = PackedFile::Open(FindPackedFile(folder.path()));
  if (!file.ok()) {
    CHECK(!file.status().message().empty());
    return 0;
  }
  for (const auto format : {WeightFormat::kCompute, WeightFormat::kInt8, WeightFormat::kInt4Group32,
                            WeightFormat::kStored}) {
    Use(**file, format, 2, 32);
    Use(**file, format, 64, 32);
  }
  const std::atomic<bool> ends = false;
  const Status intact = (*file)->parts().Check(ends);
  CHECK(intact.ok() || intact.code() == StatusCode::kDataLoss) << intact.message();
  for (const int64_t count : {1, 2, 1024, 1025}) {
    const auto vector = (*file)->Vector("v", count);
    if (vector.ok()) Touch({static_cast<const std::byte*>(vector->data), size_t(count) * 4});
  }
  return 0;
}
