#include "deploy/cli/hub/hub_listing.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "common/strings.h"
#include "common/utf8.h"
#include "deploy/cli/hub_name.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxTextBytes = 32 << 20;
constexpr int kMaxPages = 100;
constexpr size_t kMaxFiles = 100'000;
constexpr size_t kMaxPathBytes = 1024, kMaxNameBytes = 240;
constexpr int64_t kMaxFileBytes = int64_t{1} << 46;
// ModelScope cuts longer lists without saying so.
constexpr size_t kModelScopeLimit = 3000;

StatusOr<Json> ParseJson(std::string_view text) {
  Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) return DataLossError("the hub's list is not JSON");
  return json;
}

std::string TextOf(const Json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_string() ? it->get<std::string>() : "";
}

bool IsHash(std::string_view hash) {
  return (hash.size() == 40 || hash.size() == 64) && std::ranges::all_of(hash, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

Status AddFile(HubFile file, std::vector<HubFile>* files) {
  // The path itself may be anything and is not printed.
  if (!IsSafePath(file.path)) {
    return DataLossError("the hub lists a file whose name could leave its folder");
  }
  if (!IsHash(file.hash)) return DataLossError("the hub lists " + file.path + " without a hash");
  if (file.size < 0 || file.size > kMaxFileBytes) {
    return DataLossError("the hub lists " + file.path + " with a size that cannot be");
  }
  if (files->size() >= kMaxFiles) {
    return DataLossError("the hub lists more than " + WithCommas(kMaxFiles) + " files");
  }
  files->push_back(std::move(file));
  return OkStatus();
}

int64_t SizeOf(const Json& object, const char* key) {
  const auto it = object.find(key);
  if (it == object.end() || !it->is_number_integer()) return -1;
  const bool is_huge = it->is_number_unsigned() && it->get<uint64_t>() > uint64_t{kMaxFileBytes};
  return is_huge ? -1 : it->get<int64_t>();
}

Status CheckNames(const HubListing& listing) {
  std::set<std::string_view> paths;
  for (const HubFile& file : listing.files) {
    if (!paths.insert(file.path).second) {
      return DataLossError("the hub lists " + file.path + " twice");
    }
  }
  return OkStatus();
}

StatusOr<HubListing> ListHuggingFace(const HubClient& client, const std::string& repository,
                                     const std::string& revision) {
  const std::string prefix = client.settings().endpoint.target;
  const std::string api = prefix + "/api/models/" + repository;
  const std::string what = repository + " in revision " + revision;
  HubListing listing;
  ASSIGN_OR_RETURN(const HubText about, client.GetText(api + "/revision/" + PercentEncode(revision),
                                                       what, kMaxTextBytes));
  ASSIGN_OR_RETURN(listing.commit, ParseCommit(about.body));
  std::string page = api + "/tree/" + listing.commit + "?recursive=true";
  for (int i = 0; !page.empty(); ++i) {
    if (i == kMaxPages) return DataLossError("the hub's list of files has no end");
    ASSIGN_OR_RETURN(const HubText text, client.GetText(page, what, kMaxTextBytes));
    RETURN_IF_ERROR(ParseHuggingFaceTree(text.body, &listing.files));
    page = text.next_page;
  }
  for (HubFile& file : listing.files) {
    file.target = prefix + "/" + repository + "/resolve/" + listing.commit + "/" +
                  PercentEncode(file.path, "/");
  }
  return listing;
}

StatusOr<HubListing> ListModelScope(const HubClient& client, const std::string& repository,
                                    const std::string& revision) {
  const std::string api =
      client.settings().endpoint.target + "/api/v1/models/" + repository + "/repo";
  const std::string query = "?Revision=" + PercentEncode(revision);
  HubListing listing = {.commit = revision, .files = {}};
  ASSIGN_OR_RETURN(const HubText text,
                   client.GetText(api + "/files" + query + "&Recursive=True",
                                  repository + " in revision " + revision, kMaxTextBytes));
  RETURN_IF_ERROR(ParseModelScopeFiles(text.body, &listing.files));
  for (HubFile& file : listing.files) {
    file.target = api + query + "&FilePath=" + PercentEncode(file.path);
  }
  return listing;
}

}  // namespace

bool IsSafePath(std::string_view path) {
  if (path.empty() || path.size() > kMaxPathBytes || FindInvalidUtf8(path) != path.npos) {
    return false;
  }
  for (const char c : path) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F || c == '\\') return false;
  }
  for (const std::string_view part : Split(path, '/')) {
    if (part.empty() || part == "." || part == ".." || part.size() > kMaxNameBytes) return false;
  }
  return true;
}

StatusOr<std::string> ParseCommit(std::string_view json) {
  ASSIGN_OR_RETURN(const Json about, ParseJson(json));
  const std::string commit = about.is_object() ? TextOf(about, "sha") : "";
  if (!IsCommit(commit)) return DataLossError("the hub names no commit for the revision");
  return commit;
}

Status ParseHuggingFaceTree(std::string_view json, std::vector<HubFile>* files) {
  ASSIGN_OR_RETURN(const Json list, ParseJson(json));
  if (!list.is_array()) return DataLossError("the hub's list of files is no list");
  for (const Json& entry : list) {
    if (!entry.is_object()) return DataLossError("the hub's list of files has other things in it");
    if (TextOf(entry, "type") != "file") continue;
    HubFile file = {.path = TextOf(entry, "path"),
                    .size = SizeOf(entry, "size"),
                    .hash = TextOf(entry, "oid"),
                    .target = {}};
    const auto lfs = entry.find("lfs");
    if (lfs != entry.end() && lfs->is_object()) {
      file.hash = TextOf(*lfs, "oid");
      file.size = SizeOf(*lfs, "size");
      if (file.hash.size() != 64) file.hash.clear();
    }
    RETURN_IF_ERROR(AddFile(std::move(file), files));
  }
  return OkStatus();
}

Status ParseModelScopeFiles(std::string_view json, std::vector<HubFile>* files) {
  ASSIGN_OR_RETURN(const Json reply, ParseJson(json));
  const Json* list = reply.is_object() && reply.contains("Data") ? &reply["Data"] : nullptr;
  if (list != nullptr && list->is_object() && list->contains("Files")) list = &(*list)["Files"];
  if (list == nullptr || !list->is_array()) return DataLossError("the hub lists no files");
  if (list->size() >= kModelScopeLimit) {
    return UnimplementedError("ModelScope lists at most " + std::to_string(kModelScopeLimit) +
                              " files, and this model has more");
  }
  for (const Json& entry : *list) {
    if (!entry.is_object()) return DataLossError("the hub's list of files has other things in it");
    if (TextOf(entry, "Type") == "tree") continue;
    HubFile file = {.path = TextOf(entry, "Path"),
                    .size = SizeOf(entry, "Size"),
                    .hash = TextOf(entry, "Sha256"),
                    .target = {}};
    if (file.hash.size() != 64) file.hash.clear();
    RETURN_IF_ERROR(AddFile(std::move(file), files));
  }
  return OkStatus();
}

StatusOr<HubListing> ListHubFiles(const HubClient& client, const std::string& repository,
                                  const std::string& revision) {
  ASSIGN_OR_RETURN(HubListing listing, client.settings().is_model_scope
                                           ? ListModelScope(client, repository, revision)
                                           : ListHuggingFace(client, repository, revision));
  RETURN_IF_ERROR(CheckNames(listing));
  return listing;
}

}  // namespace tandem
