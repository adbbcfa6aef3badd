// Times xgrammar as tandem-grammar uses it: bench_grammars MODEL VOCAB_SIZE CASES [CASES is
// tests/golden/fsm/cases.json or its like]. Each spec is compiled in a process forked from one that
// holds the vocabulary, as when serving. Prints CPU and wall times and the time of a mask.

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/strings.h"
#include "frontend/text/tokenizer.h"
#include "grammar/compiler/token_matcher.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

struct Times {
  double wall_ms = 0;
  double cpu_ms = 0;
  double mask_us = 0;
};

double CpuSeconds() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

GrammarSpec SpecOf(const Json& recorded) {
  const Json& spec = recorded["spec"];
  if (recorded["type"] == "json_schema") {
    return {GrammarKind::kJsonSchema, JsonBlanks::kAny, spec.dump()};
  }
  if (recorded["type"] == "regex") return {GrammarKind::kRegex, JsonBlanks::kAny, spec};
  return {GrammarKind::kGrammar, JsonBlanks::kAny, spec};
}

// One mask for each token of a text that the grammar accepts.
double MaskMicroseconds(const xgrammar::CompiledGrammar& grammar,
                        const GrammarVocabulary& vocabulary, const std::vector<TokenId>& text) {
  const SystemClock clock;
  std::vector<int32_t> mask((static_cast<size_t>(vocabulary.size()) + 31) / 32);
  double seconds = 0;
  int count = 0;
  for (int round = 0; round < 20; ++round) {
    TokenMatcher matcher(grammar, &vocabulary);
    for (const TokenId token : text) {
      const double started = clock.Monotonic();
      matcher.FillMask(false, mask);
      seconds += clock.Monotonic() - started;
      ++count;
      if (!matcher.Accept(token)) break;
    }
  }
  return count == 0 ? 0 : seconds * 1e6 / count;
}

Times Measure(const GrammarSpec& spec, const std::vector<TokenId>& text,
              GrammarVocabulary* vocabulary) {
  const SystemClock clock;
  const double wall = clock.Monotonic(), cpu = CpuSeconds();
  const StatusOr<xgrammar::CompiledGrammar> grammar = CompileGrammar(spec, vocabulary);
  Times times = {.wall_ms = (clock.Monotonic() - wall) * 1e3, .cpu_ms = (CpuSeconds() - cpu) * 1e3};
  if (grammar.ok()) times.mask_us = MaskMicroseconds(*grammar, *vocabulary, text);
  return times;
}

Times MeasureForked(const GrammarSpec& spec, const std::vector<TokenId>& text,
                    GrammarVocabulary* vocabulary) {
  int ends[2];
  if (pipe(ends) != 0) return {};
  std::fflush(stdout);  // the forked process would write it again
  if (fork() == 0) {
    const Times times = Measure(spec, text, vocabulary);
    _exit(write(ends[1], &times, sizeof times) == sizeof times ? 0 : 1);
  }
  close(ends[1]);
  Times times;
  if (read(ends[0], &times, sizeof times) != sizeof times) times = {};
  close(ends[0]);
  wait(nullptr);
  return times;
}

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return values.empty() ? 0 : values[values.size() / 2];
}

int Run(const std::string& model, int32_t vocab_size, const std::string& cases_path) {
  const SystemClock clock;
  const double started = clock.Monotonic(), cpu = CpuSeconds();
  StatusOr<GrammarVocabulary> vocabulary = GrammarVocabulary::Load(model, vocab_size);
  const auto tokenizer = Tokenizer::Load(model);
  std::ifstream file(cases_path);
  const Json cases = Json::parse(file, nullptr, false);
  if (!vocabulary.ok() || !tokenizer.ok() || !cases.is_object()) {
    std::fprintf(stderr, "%s %s or no cases\n", vocabulary.status().message().c_str(),
                 tokenizer.status().message().c_str());
    return 1;
  }
  std::printf("vocabulary of %d tokens: %.0f ms, %.0f ms of CPU\n", vocab_size,
              (clock.Monotonic() - started) * 1e3, (CpuSeconds() - cpu) * 1e3);
  std::vector<double> wall, cpu_times, masks;
  for (const Json& recorded : cases["cases"]) {
    if (recorded["type"] != "json_schema") continue;
    const auto text = (*tokenizer)->Encode(recorded["accept"][0].get<std::string>(), false);
    const Times times = MeasureForked(SpecOf(recorded), *text, &*vocabulary);
    std::printf("  %-22s %7.1f ms %7.1f ms of CPU, a mask %6.1f us\n",
                recorded["name"].get<std::string>().c_str(), times.wall_ms, times.cpu_ms,
                times.mask_us);
    wall.push_back(times.wall_ms);
    cpu_times.push_back(times.cpu_ms);
    masks.push_back(times.mask_us);
  }
  std::printf("p50 of %zu schemas: compile %.1f ms, %.1f ms of CPU; a mask %.1f us\n", wall.size(),
              Median(wall), Median(cpu_times), Median(masks));
  return 0;
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  const auto size = argc == 4 ? tandem::ParseNumber<int32_t>(argv[2]) : std::nullopt;
  if (!size) {
    std::fputs("bench_grammars MODEL VOCAB_SIZE CASES\n", stderr);
    return 2;
  }
  return tandem::Run(argv[1], *size, argv[3]);
}
