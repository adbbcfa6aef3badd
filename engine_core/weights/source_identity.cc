#include "engine_core/weights/source_identity.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <vector>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tandem {
namespace {

namespace fs = std::filesystem;

// NAME-00001-of-00003.gguf: the files whose names begin as NAME- does.
std::vector<fs::path> PartsOf(const fs::path& file) {
  const std::string name = file.filename();
  const size_t begin = name.rfind("-00001-of-");
  if (begin == std::string::npos) return {file};
  std::vector<fs::path> parts;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(file.parent_path(), error)) {
    const std::string other = entry.path().filename();
    if (other.starts_with(name.substr(0, begin + 1)) && other.ends_with(".gguf")) {
      parts.push_back(entry.path());
    }
  }
  return parts;
}

std::vector<fs::path> FilesOf(const std::string& model) {
  std::error_code error;
  if (!fs::is_directory(model, error)) return PartsOf(fs::path(model));
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(model, error)) {
    const std::string extension = entry.path().extension();
    if (extension == ".safetensors" || extension == ".json" || extension == ".gguf") {
      files.push_back(entry.path());
    }
  }
  return files;
}

}  // namespace

StatusOr<std::string> SourceIdentity(const std::string& model) {
  std::vector<fs::path> files = FilesOf(model);
  std::sort(files.begin(), files.end());
  XXH3_state_t state;
  XXH3_128bits_reset(&state);
  bool has_any = false;
  for (const fs::path& path : files) {
    struct stat facts;
    if (stat(path.c_str(), &facts) != 0) continue;
    const std::string name = path.filename();
    const int64_t numbers[] = {static_cast<int64_t>(name.size()), facts.st_size,
                               facts.st_mtim.tv_sec, facts.st_mtim.tv_nsec};
    XXH3_128bits_update(&state, numbers, sizeof numbers);
    XXH3_128bits_update(&state, name.data(), name.size());
    has_any = true;
  }
  if (!has_any) return NotFoundError(model + ": no model's files");
  const XXH128_hash_t hash = XXH3_128bits_digest(&state);
  char digits[33];
  std::snprintf(digits, sizeof digits, "%016llx%016llx",
                static_cast<unsigned long long>(hash.high64),
                static_cast<unsigned long long>(hash.low64));
  return std::string(digits);
}

}  // namespace tandem
