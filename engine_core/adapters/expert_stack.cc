#include "engine_core/adapters/expert_stack.h"

#include <array>
#include <cstring>
#include <utility>

#include "common/shape_text.h"
#include "engine_core/weights/nested_weights.h"

namespace tandem {
namespace {

struct ProjectionNames {
  const char *gate, *up, *down;
};
constexpr ProjectionNames kProjectionNames[] = {{"gate_proj", "up_proj", "down_proj"},
                                                {"w1", "w3", "w2"}};

// The names that the model may have for a file's "<mlp>.experts": transformers 5 calls Mixtral's
// block "mlp", too.
std::array<std::string, 3> NamesOf(std::string_view experts) {
  constexpr std::string_view kEnd = ".mlp.experts";
  const std::string name(experts), text_name = TextName(experts);
  std::string mixtral = text_name;
  if (mixtral.ends_with(kEnd)) {
    mixtral.replace(mixtral.size() - kEnd.size(), kEnd.size(), ".block_sparse_moe.experts");
  }
  return {name, text_name, mixtral};
}

// Rows of the part, and of each row the columns first, first + step, ...
AdapterTensor CopyOf(const Tensor& part, int64_t first, int64_t step) {
  const int64_t columns = (part.shape[1] - first + step - 1) / step;
  AdapterTensor copy = AdapterTensor::Make(part.dtype, part.rows(), columns);
  const auto size = static_cast<size_t>(SizeOf(part.dtype));
  auto* to = static_cast<std::byte*>(copy.view().data);
  for (int64_t r = 0; r < part.rows(); ++r) {
    const auto* row = static_cast<const std::byte*>(part.Rows(r, 1).data);
    for (int64_t c = first; c < part.shape[1]; c += step, to += size) {
      std::memcpy(to, row + static_cast<size_t>(c) * size, size);
    }
  }
  return copy;
}

}  // namespace

std::optional<ExpertStack> FindExpertStack(const AdaptableModules& modules, std::string_view module,
                                           StackShape pair) {
  constexpr std::string_view kBase = ".base_layer", kExperts = ".experts";
  const bool has_base = module.ends_with(kBase);
  if (has_base) module.remove_suffix(kBase.size());
  if (!module.ends_with(kExperts)) return std::nullopt;
  for (const std::string& experts : NamesOf(module)) {
    for (const ProjectionNames& names : kProjectionNames) {
      const auto has = [&](int64_t e, const char* projection) {
        return modules.contains(experts + "." + std::to_string(e) + "." + projection);
      };
      if (!has(0, names.down) || !has(0, names.up)) continue;
      ExpertStack stack = {.experts = experts,
                           .projections = {names.down},
                           .parameter = std::string(module) + ".down_proj"};
      while (has(stack.num_experts, names.down)) ++stack.num_experts;
      const bool is_gated = has(0, names.gate);
      const auto shape_of = [&](const char* projection) {
        return modules.find(experts + ".0." + projection)->second;
      };
      const AdaptableModule down = shape_of(names.down), up = shape_of(names.up);
      const bool is_down = pair.rows == down.rows && pair.columns == down.columns;
      const bool is_up = pair.rows == up.rows * (is_gated ? 2 : 1) && pair.columns == up.columns;
      if (!has_base && (is_down || !is_up)) return stack;
      stack.projections = {names.up};
      if (is_gated) stack.projections.insert(stack.projections.begin(), names.gate);
      stack.parameter = std::string(module) + (is_gated ? ".gate_up_proj" : ".up_proj");
      return stack;
    }
  }
  return std::nullopt;
}

StatusOr<std::vector<ExpertPart>> SplitStack(const ExpertStack& stack, const std::string& name,
                                             const Tensor& tensor, bool is_b) {
  const int64_t experts = stack.num_experts;
  const auto num_projections = static_cast<int64_t>(stack.projections.size());
  const bool divides = is_b ? tensor.shape[1] % experts == 0 && tensor.rows() % num_projections == 0
                            : tensor.rows() % experts == 0;
  if (!divides) {
    const std::vector<int64_t> shape = {tensor.rows(), tensor.shape[1]};
    return InvalidArgumentError(name + " has shape " + ShapeText(shape) +
                                ", which is no stack of " + std::to_string(experts) + " experts");
  }
  const int64_t rank = tensor.rows() / experts, rows = tensor.rows() / num_projections;
  std::vector<ExpertPart> parts;
  for (int64_t e = 0; e < experts; ++e) {
    const std::string prefix = stack.experts + "." + std::to_string(e) + ".";
    for (int64_t p = 0; p < num_projections; ++p) {
      parts.push_back({prefix + stack.projections[static_cast<size_t>(p)],
                       is_b ? CopyOf(tensor.Rows(p * rows, rows), e, experts)
                            : CopyOf(tensor.Rows(e * rank, rank), 0, 1)});
    }
  }
  return parts;
}

}  // namespace tandem
