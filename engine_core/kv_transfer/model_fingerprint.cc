// The low-level calls are enough, and need no allocation.
#define OPENSSL_SUPPRESS_DEPRECATED

#include "engine_core/kv_transfer/model_fingerprint.h"

#include <fcntl.h>
#include <openssl/sha.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <vector>

#include "common/strings.h"
#include "common/unique_fd.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr int kNumSamples = 64;
constexpr int64_t kSampleBytes = 4096;

class Digest {
 public:
  Digest() { SHA256_Init(&state_); }
  // With its length, so that neighbours cannot be taken for one text.
  void Add(std::string_view text) {
    const uint64_t size = text.size();
    SHA256_Update(&state_, &size, sizeof(size));
    SHA256_Update(&state_, text.data(), text.size());
  }
  std::string Hex(size_t num_digits) {
    std::array<uint8_t, SHA256_DIGEST_LENGTH> bytes{};
    SHA256_Final(bytes.data(), &state_);
    return HexEncode({reinterpret_cast<const char*>(bytes.data()), bytes.size()})
        .substr(0, num_digits);
  }

 private:
  SHA256_CTX state_;
};

Status AddFile(const std::string& path, Digest* digest) {
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat facts {};
  if (!file || fstat(file.get(), &facts) != 0) return ErrnoError(errno, path);
  digest->Add(std::to_string(facts.st_size));
  const int64_t last = std::max<int64_t>(facts.st_size - kSampleBytes, 0);
  std::array<char, kSampleBytes> sample;
  for (int i = 0; i < kNumSamples; ++i) {
    const ssize_t count =
        pread(file.get(), sample.data(), sample.size(), last * i / (kNumSamples - 1));
    if (count < 0) return ErrnoError(errno, path);
    digest->Add({sample.data(), static_cast<size_t>(count)});
  }
  return OkStatus();
}

}  // namespace

StatusOr<std::string> ModelFingerprint(const std::string& model, std::string_view facts) {
  std::vector<std::string> files;
  std::error_code error;
  if (fs::is_directory(model, error)) {
    for (fs::directory_iterator next(model, error), end; !error && next != end;
         next.increment(error)) {
      const fs::path& path = next->path();
      const bool counts = path.filename() == "config.json" || path.extension() == ".safetensors" ||
                          path.extension() == ".gguf";
      if (counts) files.push_back(path.filename().string());
    }
    if (error) return ErrnoError(error.value(), model);
    std::ranges::sort(files);
  } else {
    files.emplace_back();
  }
  Digest digest;
  digest.Add(facts);
  for (const std::string& file : files) {
    digest.Add(file);
    RETURN_IF_ERROR(AddFile(file.empty() ? model : model + "/" + file, &digest));
  }
  return digest.Hex(16);
}

}  // namespace tandem
