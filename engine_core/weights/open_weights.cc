#include "engine_core/weights/open_weights.h"

#include <utility>

#include "engine_core/weights/gguf_weights.h"
#include "gguf/gguf_file.h"

namespace tandem {

StatusOr<std::unique_ptr<Weights>> OpenWeights(const std::string& model,
                                               std::string_view load_format,
                                               const ModelConfig& config, uint64_t seed) {
  if (load_format == "dummy") return MakeDummyWeights(seed);
  ASSIGN_OR_RETURN(const std::string gguf, FindGgufFile(model));
  if (load_format != "auto" && (load_format == "gguf") == gguf.empty()) {
    return InvalidArgumentError(
        "--load-format " + std::string(load_format) + ": " + model +
        (gguf.empty() ? " is no .gguf file, nor a folder of one" : " is a GGUF file"));
  }
  if (gguf.empty()) return OpenSafetensors(model);
  ASSIGN_OR_RETURN(std::unique_ptr<GgufFile> file, GgufFile::Open(gguf));
  return OpenGguf(std::move(file), config);
}

}  // namespace tandem
