// main of a fuzz target in builds without libFuzzer, so that targets work wherever tests are built:
// runs the files of the folders that it is given as they are, cut, and damaged by a fixed seed.

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "common/random.h"
#include "tests/fuzz/fuzz_input.h"

namespace tandem {
namespace {

constexpr uint64_t kNumCuts = 40;
constexpr uint64_t kNumDamaged = 120;

void Run(const std::string& bytes) {
  // A copy of its own size, so that a read beyond its end is seen.
  const std::vector<uint8_t> exact(bytes.begin(), bytes.end());
  LLVMFuzzerTestOneInput(exact.data(), exact.size());
}

std::string Damaged(std::string bytes, uint64_t seed) {
  for (uint64_t i = 0; i <= seed % 4 && !bytes.empty(); ++i) {
    const uint64_t draw = MixBits(seed * 8 + i);
    const size_t at = draw % bytes.size();
    switch ((draw >> 32) % 4) {
      case 0:
        bytes[at] = static_cast<char>(draw >> 40);
        break;
      case 1:
        bytes.erase(at, (draw >> 40) % 16);
        break;
      case 2:
        bytes.insert(at, bytes.substr(at / 2, (draw >> 40) % 32));
        break;
      default:
        bytes[at] = static_cast<char>(static_cast<uint8_t>(bytes[at]) ^ (1u << (draw >> 40) % 8));
    }
  }
  return bytes;
}

void RunFile(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  Run(bytes);
  for (uint64_t i = 0; i < kNumCuts; ++i) Run(bytes.substr(0, bytes.size() * i / kNumCuts));
  for (uint64_t seed = 1; seed <= kNumDamaged; ++seed) Run(Damaged(bytes, seed));
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  size_t num_files = 0;
  for (int i = 1; i < argc; ++i) {
    std::vector<std::filesystem::path> paths;
    for (const auto& entry : std::filesystem::directory_iterator(argv[i])) {
      paths.push_back(entry.path());
    }
    std::sort(paths.begin(), paths.end());
    for (const auto& path : paths) {
      std::printf("%s\n", path.c_str());
      std::fflush(stdout);  // the last one is the one that failed
      tandem::RunFile(path);
    }
    num_files += paths.size();
  }
  return num_files > 0 ? 0 : 1;
}
