// A GGUF file: refused with a message, or keys and tensors whose every byte can be read, a config
// in range, and a tokenizer whose texts are UTF-8.

#include <string>

#include "common/check.h"
#include "common/strings.h"
#include "engine_core/models/registry.h"
#include "engine_core/weights/open_weights.h"
#include "engine_core/weights/stored_matrix.h"
#include "frontend/text/tokenizer.h"
#include "gguf/end_tokens.h"
#include "gguf/gguf_file.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/support/files/temp_folder.h"

namespace tandem {
namespace {

void UseTensors(const GgufFile& file) {
  for (const auto& [name, tensor] : file.tensors()) {
    const auto* bytes = reinterpret_cast<const volatile uint8_t*>(tensor.bytes.data());
    for (size_t i = 0; i < tensor.bytes.size(); ++i) (void)bytes[i];
  }
}

void UseWeights(const std::string& path) {
  const auto config = ReadModelConfig(path);
  if (!config.ok()) {
    CHECK(!config.status().message().empty());
    return;
  }
  CHECK(config->num_layers > 0 && config->vocab_size > 0 && config->head_dim > 0);
  const auto weights = OpenWeights(path, "auto", *config);
  if (!weights.ok()) return;
  for (const char* name :
       {"model.embed_tokens", "model.layers.0.self_attn.q_proj", "model.layers.0.mlp.up_proj",
        "model.layers.0.mlp.experts.1.up_proj", "model.layers.0.input_layernorm"}) {
    const std::string tensor = std::string(name) + ".weight";
    (void)(*weights)->GetStored(tensor);
    (void)(*weights)->Get(tensor, 0, config->hidden_size);
    (void)LoadMatrix(**weights, config->quantization,
                     {.name = name, .rows = config->hidden_size, .columns = config->hidden_size});
  }
}

void UseTokenizer(const std::string& path) {
  const auto tokenizer = Tokenizer::Load(path);
  if (!tokenizer.ok()) {
    CHECK(!tokenizer.status().message().empty());
    return;
  }
  const auto ids = (*tokenizer)->Encode("Hi <|im_start|>12 don't \xC3\xA9\n\n x", true);
  if (!ids.ok()) return;
  for (const TokenId id : *ids) CHECK(id >= 0 && id < (*tokenizer)->vocab_size()) << id;
  CHECK(FindInvalidUtf8((*tokenizer)->Decode(*ids, false)) == std::string::npos);
}

}  // namespace
}  // namespace tandem

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem;
  static const TempFolder folder;
  const std::string path = folder.PathOf("a.gguf");
  folder.Write("a.gguf", FuzzInput(data, size).Rest());
  const auto file = GgufFile::Open(path);
  if (!file.ok()) {
    CHECK(!file.status().message().empty());
    return 0;
  }
  UseTensors(**file);
  (void)GgufEndTokens((*file)->metadata());
  UseWeights(path);
  UseTokenizer(path);
  return 0;
}
