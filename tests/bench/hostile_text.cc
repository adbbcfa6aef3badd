// What encoding costs on text that was made to be slow: 1 MB without a place to cut, of characters
// that no token knows, of everything at once. Bytes per second must not depend on the length.
// Run: build/release/bench/bench_text --benchmark_filter=Hostile
// TANDEM_BENCH_TOKENIZERS names a folder of tokenizer folders to measure instead of the goldens.

#include <benchmark/benchmark.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "common/utf8.h"
#include "frontend/text/tokenizer.h"

namespace tandem {
namespace {

std::string Repeat(std::string_view unit, size_t num_bytes) {
  std::string text;
  while (text.size() < num_bytes) text += unit;
  return text;
}

// Characters drawn by `draw` from its own numbers.
template <typename Draw>
std::string Random(size_t num_bytes, Draw draw) {
  std::mt19937 random(7);
  std::string text;
  while (text.size() < num_bytes) AppendUtf8(draw(random), &text);
  return text;
}

char32_t AnyCharacter(std::mt19937& random) {
  while (true) {
    const char32_t c = random() % 0x110000;
    if (c < 0xD800 || c > 0xDFFF) return c;
  }
}

struct HostileText {
  const char* name;
  std::string (*make)(size_t num_bytes);
};

constexpr HostileText kTexts[] = {
    {"one_letter", [](size_t n) { return Repeat("a", n); }},
    {"blanks", [](size_t n) { return Repeat(" ", n); }},
    {"line_ends", [](size_t n) { return Repeat("\n", n); }},
    {"digits",
     [](size_t n) {
       return Random(n, [](auto& random) { return char32_t{'0'} + random() % 10; });
     }},
    {"letters",
     [](size_t n) {
       return Random(n, [](auto& random) { return char32_t{'a'} + random() % 26; });
     }},
    {"punctuation",
     [](size_t n) {
       return Random(n, [](auto& random) { return U"!#$%&()*=-_<>"[random() % 13]; });
     }},
    {"unicode", [](size_t n) { return Random(n, AnyCharacter); }},
    {"replacement", [](size_t n) { return Repeat("\uFFFD", n); }},
    {"han",
     [](size_t n) {
       return Random(n, [](auto& random) { return char32_t{0x4E00} + random() % 0x5200; });
     }},
    {"ascii",
     [](size_t n) {
       return Random(n, [](auto& random) { return char32_t{' '} + random() % 95; });
     }},
};

void EncodeHostile(benchmark::State& state, const std::string& folder, const HostileText& hostile) {
  const auto tokenizer = Tokenizer::Load(folder);
  if (!tokenizer.ok()) return state.SkipWithError(tokenizer.status().message().c_str());
  const std::string text = hostile.make(static_cast<size_t>(state.range(0)));
  int64_t num_tokens = 0;
  for (auto _ : state) {
    const auto ids = (*tokenizer)->Encode(text, false);
    if (!ids.ok()) return state.SkipWithError(ids.status().message().c_str());
    num_tokens += static_cast<int64_t>(ids->size());
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(text.size()));
  state.SetItemsProcessed(num_tokens);
}

const bool kRegistered = [] {
  const char* const other = std::getenv("TANDEM_BENCH_TOKENIZERS");
  const std::filesystem::path root = other != nullptr ? other : TANDEM_GOLDEN_DIR "/tokenizers";
  for (const auto& entry : std::filesystem::directory_iterator(root)) {
    if (!entry.is_directory()) continue;
    for (const HostileText& text : kTexts) {
      const std::string name = "Hostile/" + entry.path().filename().string() + "/" + text.name;
      benchmark::RegisterBenchmark(name.c_str(), EncodeHostile, entry.path().string(), text)
          ->Arg(1 << 17)
          ->Arg(1 << 20);
    }
  }
  return true;
}();

}  // namespace
}  // namespace tandem
