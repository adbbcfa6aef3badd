// model.safetensors, or model.safetensors.index.json where the input begins with a brace: refused
// with a message, or tensors whose every byte can be read.

#include <string>

#include "common/check.h"
#include "engine_core/weights/safetensors.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/support/files/temp_folder.h"

namespace tandem {
namespace {

void Use(const StatusOr<WeightTensor>& tensor) {
  if (!tensor.ok()) {
    CHECK(!tensor.status().message().empty());
    return;
  }
  const Tensor& view = tensor->view();
  const auto* bytes = reinterpret_cast<const volatile uint8_t*>(view.data);
  for (int64_t i = 0; i < view.NumBytes(); ++i) (void)bytes[i];
}

// One tensor, "a", that an index may name.
std::string SmallShard() {
  const std::string header = R"({"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}})";
  std::string bytes(8, '\0');
  bytes[0] = static_cast<char>(header.size());
  return bytes + header + "0123456789abcdef";
}

}  // namespace
}  // namespace tandem

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem;
  static const TempFolder single, sharded;
  const std::string_view bytes = FuzzInput(data, size).Rest();
  const bool is_index = bytes.starts_with('{');
  const TempFolder& folder = is_index ? sharded : single;
  folder.Write(is_index ? "model.safetensors.index.json" : "model.safetensors", bytes);
  if (is_index) folder.Write("x.safetensors", SmallShard());
  const auto weights = OpenSafetensors(folder.path());
  if (!weights.ok()) {
    CHECK(!weights.status().message().empty());
    return 0;
  }
  for (const std::string_view name : {"a", "b", "s", ""}) {
    (*weights)->Has(name);
    Use((*weights)->Get(name, 2, 2));
    Use((*weights)->Get(name, 0, 2));
    Use((*weights)->Get(name, 0, 1));
    Use((*weights)->GetFromStack(name, 2, 3, 2, 1));
  }
  return 0;
}
