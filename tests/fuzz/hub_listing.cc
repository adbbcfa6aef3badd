// What a hub of models responds: lists of files, a revision's commit, an index of shards, and where
// redirects lead. Refused with a message, or nothing that leaves its folder or breaks a request.

#include <string>

#include "common/check.h"
#include "common/strings.h"
#include "deploy/cli/hub/file_choice.h"
#include "deploy/cli/hub/hub_listing.h"
#include "deploy/cli/hub_name.h"
#include "frontend/web/web_url.h"
#include "tests/fuzz/fuzz_input.h"

namespace tandem {
namespace {

constexpr int64_t kMostBytes = int64_t{1} << 46;

void CheckFiles(const std::vector<HubFile>& files) {
  for (const HubFile& file : files) {
    CHECK(!file.path.empty() && file.path[0] != '/' && file.path.find('\0') == file.path.npos);
    for (const std::string_view part : Split(file.path, '/')) CHECK(!part.empty() && part != "..");
    CHECK(file.size >= 0 && file.size <= kMostBytes);
    CHECK(file.hash.size() == 40 || file.hash.size() == 64);
    CHECK(HexDecode(file.hash).has_value());
  }
}

void UseListing(const HubListing& listing) {
  CheckFiles(listing.files);
  CheckFiles(ChooseDescription(listing));
  for (const char* quant : {"", "Q4_K_M"}) {
    const auto choice = ChooseFiles(listing, quant);
    if (!choice.ok()) {
      CHECK(!choice.status().message().empty());
      continue;
    }
    CHECK(!choice->files.empty());
    if (!choice->gguf.empty()) CHECK(IsGgufOf(choice->gguf, quant));
  }
}

void UseShards(std::string_view index) {
  HubListing listing;
  for (const char* path : {"a.safetensors", "b.safetensors"}) {
    listing.files.push_back({.path = path, .size = 1, .hash = std::string(64, '0'), .target = ""});
  }
  const auto shards = ChooseShards(listing, index);
  if (shards.ok()) CHECK(shards->size() <= 2);
}

void CheckUrl(const WebUrl& url) {
  CHECK(!url.host.empty() && !url.target.empty() && url.target[0] == '/');
  for (const char c : url.Text()) CHECK(c > 0x20 && c < 0x7F);
  const auto again = ParseWebUrl(url.Text());
  CHECK(again.ok());
  CHECK(again->Origin() == url.Origin());
}

void UseLocation(std::string_view base, std::string_view location) {
  const auto url = ParseWebUrl(base);
  if (!url.ok()) return;
  CheckUrl(*url);
  const auto next = ResolveLocation(*url, location);
  if (next.ok()) CheckUrl(*next);
}

void UseName(std::string_view text) {
  const auto name = ParseHubName(text);
  if (!name) return;
  const auto parts = Split(name->repository, '/');
  CHECK(parts.size() <= 2);
  for (const auto& part : parts) CHECK(!part.empty());
  CHECK(text.find("..") == text.npos);
}

}  // namespace
}  // namespace tandem

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem;
  FuzzInput input(data, size);
  const std::string_view kind = input.Until('\n');
  HubListing listing;
  if (kind == "tree" && ParseHuggingFaceTree(input.Rest(), &listing.files).ok())
    UseListing(listing);
  if (kind == "scope" && ParseModelScopeFiles(input.Rest(), &listing.files).ok()) {
    UseListing(listing);
  }
  if (kind == "commit") {
    const auto commit = ParseCommit(input.Rest());
    if (commit.ok()) CHECK(IsCommit(*commit));
  }
  if (kind == "index") UseShards(input.Rest());
  if (kind == "name") UseName(input.Rest());
  if (kind == "location") {
    const std::string_view base = input.Until('\n');
    UseLocation(base, input.Rest());
  }
  return 0;
}
