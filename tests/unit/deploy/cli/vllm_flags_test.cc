#include "deploy/cli/vllm_flags.h"

#include <set>

#include "common/read_file.h"
#include "common/strings.h"
#include "deploy/cli/arguments.h"
#include "deploy/cli/command_line.h"
#include "deploy/cli/serve_command_line.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Words = std::vector<std::string>;

// Of `tandem serve`, and of the processes that it starts.
struct OwnFlags {
  ServeFlags serve;
  FrontendConfig frontend;
  EngineConfig engine;
  std::vector<Flag> flags = ServeFlagTable(serve);

  OwnFlags() {
    for (const Flag& flag : PairFlags(frontend, engine)) flags.push_back(flag);
  }
};

std::string Judge(const Words& words) {
  const VllmFlag* flag = FindVllmFlag(words[0]);
  REQUIRE(flag != nullptr);
  const auto judged = JudgeVllmFlag(*flag, words[0], Words(words.begin() + 1, words.end()));
  return judged.ok() ? *judged : "refused: " + judged.status().message();
}

TEST_CASE("vllm flags: every flag of vLLM 0.33 is known") {
  OwnFlags own;
  const auto names = ReadFile(TANDEM_GOLDEN_DIR "/flags/vllm_serve.txt", 1 << 20);
  REQUIRE(names.ok());
  int num_names = 0;
  for (const std::string_view name : Split(*names, '\n')) {
    if (name.empty() || name[0] == '#') continue;
    ++num_names;
    CAPTURE(name);
    const std::string argument = "--" + FlagNameOf("--" + std::string(name), own.flags);
    CHECK((FindFlag(own.flags, argument) != nullptr || FindVllmFlag(argument) != nullptr));
  }
  CHECK(num_names > 300);
}

TEST_CASE("vllm flags: each has one row with a note") {
  std::set<std::string_view> names, short_names;
  for (const VllmFlag& flag : VllmFlags()) {
    CAPTURE(flag.name);
    CHECK(names.insert(flag.name).second);
    CHECK_FALSE(flag.note.empty());
    if (!flag.short_name.empty()) CHECK(short_names.insert(flag.short_name).second);
  }
}

TEST_CASE("vllm flags: none has a flag of ours, which would hide it") {
  OwnFlags own;
  for (const VllmFlag& row : VllmFlags()) {
    CAPTURE(row.name);
    CHECK(FindFlag(own.flags, "--" + std::string(row.name)) == nullptr);
  }
}

TEST_CASE("vllm flags: what happens anyway is a warning, anything else a refusal") {
  CHECK(Judge({"--enable-elastic-ep"}).starts_with("refused: --enable-elastic-ep cannot"));
  CHECK(Judge({"-dc", "{\"x\": 1}"}).starts_with("refused: "));
  CHECK(Judge({"--no-enable-elastic-ep"}).starts_with("--enable-elastic-ep false has no effect: "));
  CHECK(Judge({"--no-enable-elastic-ep=true"}).starts_with("--enable-elastic-ep false has no "));
  CHECK(Judge({"--no-enable_elastic-ep=false"}).starts_with("refused: --enable-elastic-ep cannot"));
  CHECK(Judge({"--enable-elastic-ep=0"}).starts_with("--enable-elastic-ep false has no effect: "));
  CHECK(Judge({"--enable_elastic_ep=maybe"}).starts_with("refused: "));
  CHECK(Judge({"--cpu-offload-gb", "0.0"}).starts_with("--cpu-offload-gb 0.0 has no effect: "));
  CHECK(
      Judge({"--cpu-offload-gb", "4"}).starts_with("refused: --cpu-offload-gb 4 cannot be done: "));
  CHECK(Judge({"--cpu-offload-gb="}).starts_with("refused: "));
  CHECK(Judge({"--config-format=Auto"}).starts_with("--config-format Auto has no effect: "));
  CHECK(Judge({"--lora-target-modules", "a", "b"})
            .starts_with("refused: --lora-target-modules a b cannot be done: "));
}

TEST_CASE("vllm flags: the value of a flag that may be secret is never shown") {
  CHECK(Judge({"--ignore-patterns", "secret"}).find("secret") == std::string::npos);
  CHECK(Judge({"--ignore-patterns=secret"}).find("secret") == std::string::npos);
}

TEST_CASE("vllm flags: no name that is unknown, and no bare word") {
  CHECK(FindVllmFlag("--enable-nothing") == nullptr);
  CHECK(FindVllmFlag("enable-elastic-ep") == nullptr);
  CHECK(FindVllmFlag("--") == nullptr);
  CHECK(FindVllmFlag("-") == nullptr);
  CHECK(FindVllmFlag("--dc") == nullptr);
}

}  // namespace
}  // namespace tandem
