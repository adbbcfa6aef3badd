#include "deploy/cli/hub_name.h"

#include <algorithm>
#include <cctype>
#include <functional>

#include "common/strings.h"
#include "gguf/gguf_file.h"

namespace tandem {
namespace {

constexpr size_t kMaxPartLength = 96;
constexpr size_t kMaxRevisionLength = 200;
constexpr std::string_view kGguf = ".gguf";
constexpr size_t kPartSuffix = 15;  // "-00001-of-00003"

bool IsAlnum(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }

bool IsNamePart(std::string_view part) {
  return !part.empty() && part.size() <= kMaxPartLength && IsAlnum(part.front()) &&
         part.find("..") == part.npos && part.find("--") == part.npos &&
         std::ranges::all_of(part,
                             [](char c) { return IsAlnum(c) || c == '-' || c == '_' || c == '.'; });
}

std::string ToUpper(std::string_view text) {
  std::string upper(text);
  for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return upper;
}

bool IsQuant(std::string_view text) {
  const std::string upper = ToUpper(text);
  std::string_view word = upper;
  if (word.starts_with("UD-")) word.remove_prefix(3);
  if (word == "BF16" || word == "F16" || word == "F32" || word.starts_with("MXFP4")) return true;
  for (const std::string_view kind : {"IQ", "TQ", "Q"}) {
    if (!word.starts_with(kind)) continue;
    word.remove_prefix(kind.size());
    return word.size() >= 3 && IsDigit(word[0]) && word[1] == '_';
  }
  return false;
}

std::string_view FileOf(std::string_view path) { return path.substr(path.rfind('/') + 1); }

}  // namespace

bool IsRevision(std::string_view revision) {
  return !revision.empty() && revision.size() <= kMaxRevisionLength && IsAlnum(revision.front()) &&
         revision.back() != '/' && revision.find("..") == revision.npos &&
         revision.find("//") == revision.npos && std::ranges::all_of(revision, [](char c) {
           return IsAlnum(c) || c == '-' || c == '_' || c == '.' || c == '/' || c == '+';
         });
}

bool IsCommit(std::string_view revision) {
  return revision.size() == 40 &&
         std::ranges::all_of(revision, [](char c) { return IsDigit(c) || (c >= 'a' && c <= 'f'); });
}

std::optional<HubName> ParseHubName(std::string_view name) {
  const size_t colon = std::min(name.find(':'), name.size());
  const std::string_view repository = name.substr(0, colon);
  const size_t slash = repository.find('/');
  const bool has_organisation = slash != repository.npos;
  if ((has_organisation && !IsNamePart(repository.substr(0, slash))) ||
      !IsNamePart(repository.substr(has_organisation ? slash + 1 : 0)) ||
      repository.ends_with(kGguf)) {
    return std::nullopt;
  }
  HubName parsed = {.repository = std::string(repository), .revision = {}, .quant = {}};
  if (colon == name.size()) return parsed;
  const std::string_view tag = name.substr(colon + 1);
  if (!IsRevision(tag)) return std::nullopt;
  (IsQuant(tag) ? parsed.quant : parsed.revision) = tag;
  return parsed;
}

std::optional<GgufPart> ParseGgufPart(std::string_view path) {
  if (!path.ends_with(kGguf)) return std::nullopt;
  const std::string_view stem = path.substr(0, path.size() - kGguf.size());
  if (stem.size() <= kPartSuffix) return std::nullopt;
  const std::string_view suffix = stem.substr(stem.size() - kPartSuffix);
  const auto index = ParseNumber<int>(suffix.substr(1, 5));
  const auto count = ParseNumber<int>(suffix.substr(10, 5));
  if (suffix[0] != '-' || suffix.substr(6, 4) != "-of-" || !index || !count || *index < 1 ||
      *index > *count) {
    return std::nullopt;
  }
  return GgufPart{.stem = std::string(stem.substr(0, stem.size() - kPartSuffix)),
                  .index = *index,
                  .count = *count};
}

std::string QuantOf(std::string_view path) {
  if (!path.ends_with(kGguf)) return "";
  const std::optional<GgufPart> part = ParseGgufPart(path);
  const std::string stem =
      part ? part->stem : std::string(path.substr(0, path.size() - kGguf.size()));
  const std::string_view file = FileOf(stem);
  // The longest word of its end that is one: "UD-Q4_K_XL" before "Q4_K_XL".
  std::string quant;
  for (size_t i = file.size(); i-- > 0;) {
    const bool begins = i == 0 || file[i - 1] == '-' || file[i - 1] == '.';
    if (begins && IsQuant(file.substr(i))) quant = ToUpper(file.substr(i));
  }
  return quant;
}

bool IsGgufOf(std::string_view path, std::string_view quant) {
  const std::string_view file = FileOf(path);
  if (!IsGgufModelName(file)) return false;
  if (quant.empty()) return true;
  const std::string text = ToLower(path), word = ToLower(quant);
  for (size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) {
    const size_t end = at + word.size();
    const bool begins = at == 0 || !IsAlnum(text[at - 1]);
    if (begins && end < text.size() && (text[end] == '.' || text[end] == '-')) return true;
  }
  return false;
}

std::vector<std::string> GgufFilesOf(std::vector<std::string> paths, std::string_view quant) {
  std::erase_if(paths, [&](const std::string& path) {
    const std::optional<GgufPart> part = ParseGgufPart(path);
    return !IsGgufOf(path, quant) || (part && part->index != 1);
  });
  std::ranges::sort(paths);
  const auto is_exact = [&](const std::string& path) { return QuantOf(path) == ToUpper(quant); };
  if (!quant.empty() && std::ranges::any_of(paths, is_exact)) {
    std::erase_if(paths, std::not_fn(is_exact));
  }
  return paths;
}

}  // namespace tandem
