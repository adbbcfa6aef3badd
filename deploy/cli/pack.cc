#include "deploy/cli/pack.h"

#include <filesystem>
#include <optional>

#include "deploy/cli/model_pull.h"

namespace tandem {

StatusOr<std::vector<std::string>> PackWords(const std::vector<std::string>& args) {
  if (!args.empty() && (args[0] == "-h" || args[0].starts_with("--help"))) {
    return std::vector<std::string>{args[0]};
  }
  if (!args.empty() && args[0] == "--verify") {
    if (args.size() != 2) {
      return InvalidArgumentError("give a folder that was packed: tandem pack --verify OUT");
    }
    std::filesystem::path folder = args[1];
    if (folder.filename() == "model.tandem") folder = folder.parent_path();
    return std::vector<std::string>{folder.empty() ? "." : folder.string(), "--verify-packed"};
  }
  if (args.size() < 2 || args[0].starts_with('-') || args[1].starts_with('-')) {
    return InvalidArgumentError("give a model and the folder to make: tandem pack MODEL OUT");
  }
  ASSIGN_OR_RETURN(const std::optional<std::string> found,
                   FindOrPullModel(args[0], {.folder = {}, .revision = {}, .needs_weights = true},
                                   PullModelByName));
  std::vector<std::string> words = {found.value_or(args[0]), "--pack-to=" + args[1]};
  words.insert(words.end(), args.begin() + 2, args.end());
  return words;
}

}  // namespace tandem
