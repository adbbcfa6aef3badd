#include "deploy/cli/hub/pull.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "common/exit_status.h"
#include "common/flags.h"
#include "common/read_file.h"
#include "deploy/cli/hub/file_choice.h"
#include "deploy/cli/hub/file_download.h"
#include "deploy/cli/hub/model_store.h"
#include "deploy/cli/hub/pull_progress.h"
#include "deploy/cli/hub_cache.h"
#include "deploy/cli/report_failure.h"

namespace tandem {
namespace {

constexpr int64_t kMaxIndexBytes = 64 << 20;

constexpr std::string_view kAboutPull =
    "tandem pull org/name[:revision] | org/name:Q4_K_M [flags]: download a model into the cache.\n"
    "What is there is not downloaded again; a pull that was cut off goes on where it was.";
constexpr std::string_view kAboutList = "tandem list [flags]: the models in the cache";
constexpr std::string_view kAboutRemove =
    "tandem rm org/name[:revision] | org/name:Q4_K_M [flags]: remove a model, or one revision or "
    "quant of it, from the cache";

struct StoreFlags {
  std::string name;
  std::string cache;
};

Flag NameRow(std::string* name) {
  return {"name", name, "org/name, with a revision or a quant after a colon", {.positional = true}};
}
Flag CacheRow(std::string* cache) {
  return {"download-dir", cache, "Folder of the cache. Default: as Python's huggingface_hub"};
}

StatusOr<HubName> NameOf(const std::string& text) {
  if (const std::optional<HubName> name = ParseHubName(text)) return *name;
  return InvalidArgumentError("'" + text +
                              "' is no name of a model: must be org/name, "
                              "org/name:revision or org/name:Q4_K_M");
}

std::string CacheOr(const std::string& folder) {
  return std::filesystem::absolute(folder.empty() ? HubCacheFolder() : folder).string();
}

void PrintJson(const std::vector<StoredModel>& models) {
  nlohmann::json list = nlohmann::json::array();
  for (const StoredModel& model : models) {
    list.push_back({{"name", model.name},
                    {"revision", model.revision},
                    {"bytes", model.bytes},
                    {"has_weights", model.is_whole}});
  }
  std::printf("%s\n", list.dump(2).c_str());
}

}  // namespace

StatusOr<std::string> PullModel(const HubClient& client, const HubName& name,
                                const PullOptions& options) {
  ASSIGN_OR_RETURN(const std::string revision, HubRevision(name, options.revision));
  const std::string cache = CacheOr(options.cache);
  const std::string repository = HubRepositoryFolder(cache, name.repository);
  const DownloadOptions download = {.cache = cache,
                                    .repository_folder = repository,
                                    .num_connections = options.num_connections,
                                    .part_bytes = options.part_bytes};
  ASSIGN_OR_RETURN(const HubListing listing, ListHubFiles(client, name.repository, revision));
  FileChoice choice;
  if (options.with_weights) {
    StatusOr<FileChoice> chosen = ChooseFiles(listing, name.quant);
    if (!chosen.ok()) return chosen.status().WithContext(name.repository);
    choice = *std::move(chosen);
    if (!choice.note.empty()) {
      std::fprintf(stderr, "%s: %s\n", name.repository.c_str(), choice.note.c_str());
    }
  } else {
    choice.files = ChooseDescription(listing);
  }
  RETURN_IF_ERROR(DownloadFiles(client, choice.files, download));
  if (!choice.shard_index.empty()) {
    const auto index = std::ranges::find(choice.files, choice.shard_index, &HubFile::path)->hash;
    ASSIGN_OR_RETURN(const std::string text,
                     ReadFile(repository + "/blobs/" + index, kMaxIndexBytes));
    ASSIGN_OR_RETURN(const std::vector<HubFile> shards, ChooseShards(listing, text));
    RETURN_IF_ERROR(DownloadFiles(client, shards, download));
    choice.files.insert(choice.files.end(), shards.begin(), shards.end());
  }
  RETURN_IF_ERROR(LinkSnapshot(repository, listing.commit, revision, choice.files));
  const std::string snapshot = repository + "/snapshots/" + listing.commit;
  return choice.gguf.empty() ? snapshot : snapshot + "/" + choice.gguf;
}

int RunPull(const std::vector<std::string>& args) {
  StoreFlags words;
  PullOptions options;
  int64_t num_connections = options.num_connections;
  bool tokenizer_only = false, quiet = false;
  std::string token;
  const std::vector<Flag> flags = {
      NameRow(&words.name),
      {"revision", &options.revision, "Branch, tag or commit. Default: main"},
      CacheRow(&options.cache),
      {"tokenizer-only", &tokenizer_only, "Config, tokenizer and templates, no weights"},
      {"hf-token",
       &token,
       "The hub's token. Default: HF_TOKEN, or the one of a login",
       {.secret = true}},
      {"quiet", &quiet, "Do not print where it is"},
      {"connections", &num_connections, "Connections at once", {.min = 1, .max = 64}},
      {"part-size",
       &options.part_bytes,
       "Bytes that a connection fetches at a time",
       {.min = 4096, .max = 1 << 30}}};
  const StatusOr<FlagOutcome> parsed = ParseFlags(flags, args, kAboutPull);
  if (!parsed.ok()) return ReportFailure("pull", parsed.status());
  if (*parsed == FlagOutcome::kHelpShown) return kExitOk;
  options.with_weights = !tokenizer_only;
  options.num_connections = static_cast<int>(num_connections);
  const StatusOr<HubName> name = NameOf(words.name);
  if (!name.ok()) return ReportFailure("pull", name.status());
  StatusOr<HubSettings> settings = HubSettingsOfEnvironment(token);
  if (!settings.ok()) return ReportFailure("pull", settings.status());
  const auto client = HubClient::Create(*std::move(settings));
  if (!client.ok()) return ReportFailure("pull", client.status());
  const StatusOr<std::string> path = PullModel(**client, *name, options);
  if (!path.ok()) return ReportFailure("pull", path.status());
  if (!quiet) std::printf("%s\n", path->c_str());
  return kExitOk;
}

int RunList(const std::vector<std::string>& args) {
  StoreFlags words;
  bool as_json = false;
  const std::vector<Flag> flags = {CacheRow(&words.cache),
                                   {"json", &as_json, "A JSON list, with sizes in bytes"}};
  const StatusOr<FlagOutcome> parsed = ParseFlags(flags, args, kAboutList);
  if (!parsed.ok()) return ReportFailure("list", parsed.status());
  if (*parsed == FlagOutcome::kHelpShown) return kExitOk;
  const auto models = ListStoredModels(CacheOr(words.cache));
  if (!models.ok()) return ReportFailure("list", models.status());
  if (as_json) {
    PrintJson(*models);
    return kExitOk;
  }
  size_t width = 4;
  for (const StoredModel& model : *models) width = std::max(width, model.name.size());
  for (const StoredModel& model : *models) {
    std::printf("%-*s  %10s  %s%s\n", static_cast<int>(width), model.name.c_str(),
                BytesText(model.bytes).c_str(), model.revision.c_str(),
                model.is_whole ? "" : "  (without weights)");
  }
  return kExitOk;
}

int RunRemove(const std::vector<std::string>& args) {
  StoreFlags words;
  std::string revision;
  const std::vector<Flag> flags = {NameRow(&words.name),
                                   {"revision", &revision, "Branch, tag or commit. Default: all"},
                                   CacheRow(&words.cache)};
  const StatusOr<FlagOutcome> parsed = ParseFlags(flags, args, kAboutRemove);
  if (!parsed.ok()) return ReportFailure("rm", parsed.status());
  if (*parsed == FlagOutcome::kHelpShown) return kExitOk;
  StatusOr<HubName> name = NameOf(words.name);
  if (!name.ok()) return ReportFailure("rm", name.status());
  if (!revision.empty()) {
    StatusOr<std::string> meant = HubRevision(*name, revision);
    if (!meant.ok()) return ReportFailure("rm", meant.status());
    name->revision = *std::move(meant);
  }
  const StatusOr<int64_t> bytes = RemoveStoredModel(CacheOr(words.cache), *name);
  if (!bytes.ok()) return ReportFailure("rm", bytes.status().WithContext(words.name));
  std::printf("%s: %s freed\n", words.name.c_str(), BytesText(*bytes).c_str());
  return kExitOk;
}

}  // namespace tandem
