#include "deploy/cli/model_pull.h"

#include <csignal>
#include <vector>

#include "deploy/cli/child_process.h"

namespace tandem {

Status PullModelByName(const ModelPull& pull) {
  ASSIGN_OR_RETURN(const std::string program, ProgramBeside("tandem-hub"));
  std::vector<std::string> argv = {program, "pull", pull.name, "--quiet"};
  if (!pull.revision.empty()) argv.push_back("--revision=" + pull.revision);
  if (!pull.cache.empty()) argv.push_back("--download-dir=" + pull.cache);
  if (!pull.with_weights) argv.emplace_back("--tokenizer-only");
  // Not among its words, which others may see.
  std::vector<std::string> environment;
  if (!pull.token.empty()) {
    environment.push_back((UsesModelScope() ? "MODELSCOPE_API_TOKEN=" : "HF_TOKEN=") + pull.token);
  }
  ASSIGN_OR_RETURN(
      ChildProcess child,
      ChildProcess::Start(argv, environment, {.signal_at_our_death = SIGTERM, .output_path = {}}));
  const ChildProcess::Exit exit = child.Reap();
  if (exit.clean()) return OkStatus();
  return FailedPreconditionError(pull.name + " cannot be downloaded");
}

StatusOr<std::optional<std::string>> FindOrPullModel(const std::string& name,
                                                     const HubCacheOptions& options,
                                                     const ModelPuller& pull) {
  StatusOr<std::optional<std::string>> found = FindInHubCache(name, options);
  const bool is_missing = found.status().code() == StatusCode::kNotFound;
  if (!is_missing || !pull || IsHubOffline()) return found;
  RETURN_IF_ERROR(pull({.name = name,
                        .revision = options.revision,
                        .cache = options.folder,
                        .with_weights = options.needs_weights}));
  return FindInHubCache(name, options);
}

}  // namespace tandem
