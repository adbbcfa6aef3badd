// main of a fuzz target in builds without libFuzzer, so that targets work wherever tests are built:
// runs the files of the folders that it is given as they are, cut, and damaged by a fixed seed;
// then for TANDEM_FUZZ_SECONDS (5) files that are damaged more, drawn by a seed that it prints and
// that TANDEM_SEED repeats.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "common/random.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/support/environment.h"

namespace tandem {
namespace {

constexpr uint64_t kNumCuts = 40;
constexpr uint64_t kNumDamaged = 120;
constexpr uint64_t kMaxRounds = 16;  // of damage to one input

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

void RunFile(const std::string& bytes) {
  Run(bytes);
  for (uint64_t i = 0; i < kNumCuts; ++i) Run(bytes.substr(0, bytes.size() * i / kNumCuts));
  for (uint64_t seed = 1; seed <= kNumDamaged; ++seed) Run(Damaged(bytes, seed));
}

void RunDrawn(const std::vector<std::string>& files) {
  const uint64_t seed = FromEnvironment("TANDEM_SEED", std::random_device()());
  const std::chrono::seconds time(FromEnvironment("TANDEM_FUZZ_SECONDS", 5));
  std::printf("TANDEM_SEED=%llu\n", static_cast<unsigned long long>(seed));
  std::fflush(stdout);
  const auto end = std::chrono::steady_clock::now() + time;
  uint64_t num_runs = 0;
  for (uint64_t draw = MixBits(seed); std::chrono::steady_clock::now() < end; ++num_runs) {
    draw = MixBits(draw);
    std::string bytes = files[draw % files.size()];
    for (uint64_t round = 0; round <= (draw >> 32) % kMaxRounds; ++round) {
      bytes = Damaged(std::move(bytes), draw + round);
    }
    Run(bytes);
  }
  std::printf("%llu runs\n", static_cast<unsigned long long>(num_runs));
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  std::vector<std::string> files;
  for (int i = 1; i < argc; ++i) {
    std::vector<std::filesystem::path> paths;
    for (const auto& entry : std::filesystem::directory_iterator(argv[i])) {
      paths.push_back(entry.path());
    }
    std::sort(paths.begin(), paths.end());
    for (const auto& path : paths) {
      std::printf("%s\n", path.c_str());
      std::fflush(stdout);  // the last one is the one that failed
      std::ifstream in(path, std::ios::binary);
      tandem::RunFile(
          files.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()));
    }
  }
  if (files.empty()) return 1;
  tandem::RunDrawn(files);
  return 0;
}
