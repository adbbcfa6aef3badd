#include "engine_core/models/registry.h"

#include <string_view>

namespace tandem {
namespace {

struct ArchitectureRow {
  std::string_view name;  // config.json's architectures[0]
  StatusOr<std::unique_ptr<Model>> (*load)(const LoadContext&);
};

constexpr ArchitectureRow kArchitectures[] = {
    // clang-format off
    {"GemmaForCausalLM", LoadGemma},
    {"Gemma2ForCausalLM", LoadGemma2},
    {"Gemma3ForCausalLM", LoadGemma3},
    {"GPT2LMHeadModel", LoadGpt2},
    {"LlamaForCausalLM", LoadLlama},
    {"MistralForCausalLM", LoadLlama},
    {"MixtralForCausalLM", LoadMixtral},
    {"Olmo2ForCausalLM", LoadOlmo2},
    {"Phi3ForCausalLM", LoadPhi3},
    {"Qwen2ForCausalLM", LoadQwen2},
    {"Qwen3ForCausalLM", LoadQwen3},
    {"Qwen3MoeForCausalLM", LoadQwen3Moe},
    // clang-format on
};

const ArchitectureRow* FindArchitecture(const ModelConfig& config) {
  for (const ArchitectureRow& row : kArchitectures) {
    if (row.name == config.architecture) return &row;
  }
  return nullptr;
}

}  // namespace

std::string KnownArchitectures() {
  std::string names;
  for (const ArchitectureRow& row : kArchitectures) {
    names += (names.empty() ? "" : ", ") + std::string(row.name);
  }
  return names;
}

Status CheckArchitecture(const ModelConfig& config) {
  if (FindArchitecture(config) != nullptr) return OkStatus();
  return InvalidArgumentError("architecture " + config.architecture +
                              " is not known, must be one of " + KnownArchitectures());
}

StatusOr<std::unique_ptr<Model>> LoadModel(const LoadContext& context) {
  RETURN_IF_ERROR(CheckArchitecture(context.config));
  return FindArchitecture(context.config)->load(context);
}

}  // namespace tandem
