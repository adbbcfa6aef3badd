#include "engine_core/weights/open_weights.h"

#include <algorithm>
#include <utility>

#include "engine_core/weights/dummy_weights.h"
#include "engine_core/weights/gguf_weights.h"
#include "engine_core/weights/nested_weights.h"
#include "engine_core/weights/packed_file.h"
#include "gguf/gguf_file.h"

namespace tandem {

StatusOr<std::unique_ptr<Weights>> OpenWeights(const std::string& model,
                                               std::string_view load_format,
                                               const ModelConfig& config, uint64_t seed) {
  if (load_format == "dummy") return MakeDummyWeights(seed);
  if (const std::string packed = FindPackedFile(model); !packed.empty()) {
    if (load_format != "auto") {
      return InvalidArgumentError("--load-format " + std::string(load_format) + ": " + model +
                                  " is a folder of packed matrices");
    }
    RETURN_IF_ERROR(CheckNotMarked(packed));
    ASSIGN_OR_RETURN(std::unique_ptr<PackedFile> file, PackedFile::Open(packed));
    RETURN_IF_ERROR(CheckSourceUnchanged(file->facts(), packed));
    return std::unique_ptr<Weights>(std::move(file));
  }
  ASSIGN_OR_RETURN(const std::string gguf, FindGgufFile(model));
  if (load_format != "auto" && (load_format == "gguf") == gguf.empty()) {
    return InvalidArgumentError(
        "--load-format " + std::string(load_format) + ": " + model +
        (gguf.empty() ? " is no .gguf file, nor a folder of one" : " is a GGUF file"));
  }
  if (gguf.empty()) {
    ASSIGN_OR_RETURN(std::unique_ptr<Weights> weights, OpenSafetensors(model));
    return TextWeights(std::move(weights));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<GgufFile> file, GgufFile::Open(gguf));
  return OpenGguf(std::move(file), config);
}

namespace {

// Keys and values that a checkpoint has for a layer that reads those of another.
bool IsOfSharing(const std::string& name, const ModelConfig& config) {
  for (int64_t i = config.num_layers - config.uneven.num_sharing_layers; i < config.num_layers;
       ++i) {
    for (const std::string& prefix : {"model.layers." + std::to_string(i) + ".self_attn.",
                                      "blk." + std::to_string(i) + ".attn_"}) {
      const std::string_view rest =
          std::string_view(name).substr(name.starts_with(prefix) ? prefix.size() : name.size());
      if (rest.starts_with("k_") || rest.starts_with("k.") || rest.starts_with("v_") ||
          rest.starts_with("v.")) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace

std::vector<std::string> UnusedTensors(const Weights& weights, const ModelConfig& config) {
  constexpr std::string_view kKnownEnds[] = {
      ".rotary_emb.inv_freq",   ".attn.bias",   ".attn.masked_bias", ".attention.bias",
      ".attention.masked_bias", ".input_scale", ".input_zero_point", ".input_global_scale"};
  std::vector<std::string> names = weights.Unread();
  std::erase_if(names, [&](const std::string& name) {
    const bool is_tied_head = config.tie_word_embeddings && name == "lm_head.weight";
    // GGUF: these are read with the keys.
    const bool is_of_rope = name.starts_with("rope_");
    // Layers that predict tokens further ahead, after the model's own.
    const bool is_ahead =
        name.starts_with("mtp.") || name.starts_with("model.mtp_") ||
        name.starts_with("model.layers." + std::to_string(config.num_layers) + ".") ||
        name.starts_with("blk." + std::to_string(config.num_layers) + ".");
    // Of models beside the text model.
    const bool is_other = name.starts_with("visual.") || name.starts_with("model.visual.") ||
                          name.starts_with("vision_tower.") ||
                          name.starts_with("multi_modal_projector.");
    return is_other || is_tied_head || is_of_rope || is_ahead || IsOfSharing(name, config) ||
           std::any_of(std::begin(kKnownEnds), std::end(kKnownEnds),
                       [&](std::string_view end) { return name.ends_with(end); });
  });
  return names;
}

}  // namespace tandem
