#pragma once

// Pairs of all experts of a layer in one tensor each, as PEFT saves those of a parameter [E, ...]:
// "<mlp>.experts.base_layer" is the pair of gate and up, "<mlp>.experts" that of down, or of gate
// and up where down has none. Of E experts with rank r
//   lora_A [E r, K], expert after expert;  lora_B [N, r E], the experts' columns in turns
// and N of gate and up is gate's rows, then up's, which share A. As vLLM reads them.
// Thread: any; values. Failure: shapes that do not divide.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"
#include "engine_core/adapters/adapter_tensor.h"
#include "engine_core/models/adaptable_modules.h"

namespace tandem {

struct StackShape {
  int64_t rows = 0;     // of lora_B
  int64_t columns = 0;  // of lora_A
};

struct ExpertStack {
  std::string experts;  // the model's name of them, as adapters of single experts have it
  int64_t num_experts = 0;
  std::vector<std::string> projections;  // of an expert: gate and up; up alone; or down
  std::string parameter;  // the file's name of what it changes: "<mlp>.experts.gate_up_proj"
};

// nullopt: the module of the file is no stack of experts that the model has.
std::optional<ExpertStack> FindExpertStack(const AdaptableModules& modules, std::string_view module,
                                           StackShape pair);

// What one expert's module has of the stack.
struct ExpertPart {
  std::string module;
  AdapterTensor tensor;
};
// name: of the tensor, for messages; is_b: it is lora_B, else lora_A.
StatusOr<std::vector<ExpertPart>> SplitStack(const ExpertStack& stack, const std::string& name,
                                             const Tensor& tensor, bool is_b);

}  // namespace tandem
