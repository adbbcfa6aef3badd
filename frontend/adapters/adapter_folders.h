#pragma once

// Adapters that requests may name before anybody has loaded them: the folders of one folder, by
// their names (--lora-resolver-cache-dir). Names come from strangers, so a name is one part of a
// path and never leads out of the folder; what a link in it leads to is the operator's affair.
// Thread: any; Find waits for the disk.

#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace tandem {

class AdapterFolders {
 public:
  // root: absolute; empty: there are none.
  explicit AdapterFolders(std::string root = {}) : root_(std::move(root)) {}

  // The folder of that name, if it has an adapter_config.json.
  std::optional<std::string> Find(std::string_view name) const;

 private:
  std::string root_;
};

}  // namespace tandem
