#include "deploy/cli/hub/file_choice.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "deploy/cli/hub_name.h"

namespace tandem {
namespace {

constexpr std::string_view kWeights = "model.safetensors";
constexpr std::string_view kIndex = "model.safetensors.index.json";
constexpr std::string_view kAdapter = "adapter_model.safetensors";

const HubFile* FindFile(const HubListing& listing, std::string_view path) {
  const auto it = std::ranges::find(listing.files, path, &HubFile::path);
  return it == listing.files.end() ? nullptr : &*it;
}

// Files at the top that describe the model. Indexes of other weights are none of them.
bool IsDescription(std::string_view path) {
  if (path.starts_with("additional_chat_templates/")) return path.ends_with(".jinja");
  if (path.find('/') != path.npos || path.ends_with(".index.json")) return false;
  return std::ranges::any_of(
      std::initializer_list<std::string_view>{".json", ".jinja", ".model", ".tiktoken", ".txt"},
      [path](std::string_view ending) { return path.ends_with(ending); });
}

// By their first parts.
std::vector<std::string> FindGgufs(const HubListing& listing, const std::string& quant) {
  std::vector<std::string> paths;
  for (const HubFile& file : listing.files) paths.push_back(file.path);
  return GgufFilesOf(std::move(paths), quant);
}

// The first of several, with all its parts.
StatusOr<FileChoice> ChooseGguf(const HubListing& listing, const std::vector<std::string>& ggufs) {
  const HubFile& first = *FindFile(listing, ggufs[0]);
  FileChoice choice = {.files = {first}, .shard_index = {}, .gguf = first.path};
  if (ggufs.size() > 1) {
    choice.note = "it has " + std::to_string(ggufs.size()) + " such GGUF files; " + ggufs[0] +
                  " is taken, not " + ggufs[1];
  }
  const auto part = ParseGgufPart(first.path);
  if (!part) return choice;
  for (const HubFile& file : listing.files) {
    const auto other = ParseGgufPart(file.path);
    if (!other || other->stem != part->stem || other->count != part->count) continue;
    if (other->index != 1) choice.files.push_back(file);
  }
  if (std::cmp_not_equal(choice.files.size(), part->count)) {
    return NotFoundError(first.path + ": the hub has " + std::to_string(choice.files.size()) +
                         " of its " + std::to_string(part->count) + " parts");
  }
  return choice;
}

std::string KnownQuants(const HubListing& listing) {
  std::set<std::string> quants;
  for (const HubFile& file : listing.files) {
    const std::string quant = IsGgufOf(file.path, "") ? QuantOf(file.path) : "";
    if (!quant.empty()) quants.insert(quant);
  }
  std::string text;
  for (const std::string& quant : quants) text += (text.empty() ? "" : ", ") + quant;
  return text;
}

Status NoWeights(const HubListing& listing) {
  for (const HubFile& file : listing.files) {
    if (!file.path.ends_with(".safetensors")) continue;
    return NotFoundError(
        "it has neither model.safetensors nor an index of shards, only files of "
        "other names, such as " +
        file.path);
  }
  for (const HubFile& file : listing.files) {
    for (const std::string_view ending : {".bin", ".pt", ".pth", ".onnx", ".h5", ".msgpack"}) {
      if (file.path.ends_with(ending)) {
        return NotFoundError("its weights are neither safetensors nor GGUF files but " + file.path +
                             ", which is not read");
      }
    }
  }
  return NotFoundError("it has no weights: neither safetensors nor GGUF files");
}

}  // namespace

std::vector<HubFile> ChooseDescription(const HubListing& listing) {
  std::vector<HubFile> files;
  for (const HubFile& file : listing.files) {
    if (IsDescription(file.path)) files.push_back(file);
  }
  return files;
}

StatusOr<FileChoice> ChooseFiles(const HubListing& listing, const std::string& quant) {
  if (!quant.empty()) {
    const std::vector<std::string> ggufs = FindGgufs(listing, quant);
    if (!ggufs.empty()) return ChooseGguf(listing, ggufs);
    const std::string known = KnownQuants(listing);
    return NotFoundError(known.empty() ? "it has no GGUF files"
                                       : "it has no GGUF file of " + quant + ", only " + known);
  }
  FileChoice choice = {.files = ChooseDescription(listing), .shard_index = {}, .gguf = {}};
  const HubFile* weights = FindFile(listing, kWeights);
  if (const HubFile* index = FindFile(listing, kIndex); weights == nullptr && index != nullptr) {
    weights = index;
    choice.shard_index = kIndex;
  }
  if (weights == nullptr) weights = FindFile(listing, kAdapter);
  if (weights != nullptr) {
    choice.files.push_back(*weights);
    return choice;
  }
  for (const char* usual : {"Q4_K_M", "Q8_0", ""}) {
    const std::vector<std::string> ggufs = FindGgufs(listing, usual);
    if (!ggufs.empty()) return ChooseGguf(listing, ggufs);
  }
  return NoWeights(listing);
}

StatusOr<std::vector<HubFile>> ChooseShards(const HubListing& listing, std::string_view index) {
  const nlohmann::json json = nlohmann::json::parse(index, nullptr, false);
  const auto map = json.is_object() ? json.find("weight_map") : json.end();
  if (!json.is_object() || map == json.end() || !map->is_object()) {
    return DataLossError(std::string(kIndex) + " has no weight_map");
  }
  std::set<std::string> names;
  for (const auto& name : *map) {
    if (!name.is_string()) return DataLossError(std::string(kIndex) + " names no file");
    names.insert(name.get<std::string>());
  }
  std::vector<HubFile> files;
  for (const std::string& name : names) {
    const HubFile* file = FindFile(listing, name);
    if (file == nullptr) {
      return DataLossError(std::string(kIndex) + " names a file that the hub does not list");
    }
    files.push_back(*file);
  }
  return files;
}

}  // namespace tandem
