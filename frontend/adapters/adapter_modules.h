#pragma once

// What --lora-modules names: adapters that are loaded before the server serves. Each item is
// name=path (an item with '=' and without ','), or a JSON object {"name", "path",
// "base_model_name"?, "is_3d_lora_weight"?}; empty items are skipped. Pure; any thread. Failure:
// INVALID_ARGUMENT that quotes the item.

#include <optional>
#include <string>
#include <vector>

#include "common/status.h"

namespace tandem {

// An adapter as somebody asks for it.
struct AdapterModule {
  std::string name;
  std::string path;
  std::optional<std::string> base_model_name = {};
  bool is_3d_lora_weight = false;

  friend bool operator==(const AdapterModule&, const AdapterModule&) = default;
};

// Paths become absolute (AbsoluteAdapterPath). base_names: the served names, which no adapter may
// have; nor may two adapters have one name.
StatusOr<std::vector<AdapterModule>> ParseAdapterModules(
    const std::vector<std::string>& items, const std::vector<std::string>& base_names);

// "~/x" in the home folder, others from the folder in which this process runs. The engines read
// the path too, and may run elsewhere.
std::string AbsoluteAdapterPath(const std::string& path);

// Changes when the files do that an engine reads from the folder. Empty: it is not to be seen from
// here.
std::string AdapterFilesIdentity(const std::string& path);

}  // namespace tandem
