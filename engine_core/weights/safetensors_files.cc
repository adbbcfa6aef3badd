#include "engine_core/weights/safetensors_files.h"

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "common/part_suffix.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEnd = ".safetensors";

std::string PartEnd(size_t part, size_t num_parts) {
  return PartSuffix(static_cast<int64_t>(part), static_cast<int64_t>(num_parts), kEnd);
}

// `names` in order.
bool AreAllParts(const std::vector<std::string>& names) {
  const std::string first = PartEnd(1, names.size());
  if (!names[0].ends_with(first)) return false;
  const std::string stem = names[0].substr(0, names[0].size() - first.size());
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] != stem + PartEnd(i + 1, names.size())) return false;
  }
  return true;
}

bool IsOfAnotherFormat(std::string_view name) {
  constexpr std::string_view kEnds[] = {".bin", ".pt", ".pth", ".ckpt", ".msgpack", ".h5"};
  return name.starts_with("consolidated") ||
         std::any_of(std::begin(kEnds), std::end(kEnds),
                     [name](std::string_view end) { return name.ends_with(end); });
}

}  // namespace

StatusOr<std::vector<std::string>> FindSafetensors(const std::string& model_dir) {
  std::vector<std::string> names;
  std::string other;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(model_dir, error)) {
    const std::string name = entry.path().filename().string();
    if (IsOfAnotherFormat(name)) {
      other = name;
    } else if (name.ends_with(kEnd) && !name.starts_with("adapter_")) {
      names.push_back(name);
    }
  }
  if (names.empty()) {
    return NotFoundError(model_dir +
                         ": contains neither model.safetensors nor model.safetensors.index.json" +
                         (other.empty() ? "" : "; " + other + " is of a format that is not read"));
  }
  std::sort(names.begin(), names.end());
  if (names.size() == 1 || AreAllParts(names)) return names;
  return InvalidArgumentError(model_dir + ": which of " + std::to_string(names.size()) +
                              " files are the model, such as " + names[0] + " and " + names[1] +
                              ", no model.safetensors.index.json says, and they are not all parts "
                              "of one");
}

}  // namespace tandem
