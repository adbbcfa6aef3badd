#include "engine_core/tokenizer_hash.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <string_view>
#include <vector>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "common/read_file.h"
#include "gguf/gguf_file.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxFileBytes = int64_t{256} << 20;

bool StandsIn(const std::string& name) {
  constexpr std::string_view kNames[] = {"tokenizer.model", "tiktoken.model", "tekken.json",
                                         "spiece.model",    "vocab.json",     "merges.txt",
                                         "vocab.txt"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames) ||
         name.ends_with(".tiktoken");
}

// tokenizer.json, else those that stand in for it, in order of their names.
std::vector<fs::path> TokenizerFiles(const fs::path& folder) {
  std::error_code error;
  if (fs::exists(folder / "tokenizer.json", error)) return {folder / "tokenizer.json"};
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (StandsIn(entry.path().filename())) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

bool HashFiles(const fs::path& folder, XXH3_state_t* state) {
  const std::vector<fs::path> files = TokenizerFiles(folder);
  for (const fs::path& path : files) {
    const StatusOr<std::string> text = ReadFile(path, kMaxFileBytes);
    if (!text.ok()) return false;
    XXH3_128bits_update(state, text->data(), text->size());
  }
  return !files.empty();
}

// False for a folder that has another tokenizer.
bool HashGguf(const std::string& model, XXH3_state_t* state) {
  std::error_code error;
  if (fs::exists(fs::path(model) / "tokenizer.json", error)) return false;
  const StatusOr<std::string> path = FindGgufFile(model);
  if (!path.ok() || path->empty()) return false;
  const auto file = GgufFile::Open(*path);
  if (!file.ok()) return false;
  for (const auto& [key, value] : (*file)->metadata().values()) {
    if (!key.starts_with("tokenizer.ggml.")) continue;
    XXH3_128bits_update(state, key.data(), key.size());
    XXH3_128bits_update(state, value.bytes.data(), value.bytes.size());
  }
  return true;
}

}  // namespace

std::optional<std::string> TokenizerHash(const std::string& model_folder) {
  XXH3_state_t state;
  XXH3_128bits_reset(&state);
  const bool is_hashed = HashGguf(model_folder, &state) || HashFiles(model_folder, &state);
  if (!is_hashed) return std::nullopt;
  const XXH128_hash_t hash = XXH3_128bits_digest(&state);
  char digits[33];
  std::snprintf(digits, sizeof digits, "%016llx%016llx",
                static_cast<unsigned long long>(hash.high64),
                static_cast<unsigned long long>(hash.low64));
  return digits;
}

}  // namespace tandem
