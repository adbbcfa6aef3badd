#include "deploy/cli/command_line.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Words = std::vector<std::string>;

struct Tables {
  std::string model, host;
  Words names;
  bool prefix = true;
  int64_t seqs = 1, max_len = 1;
  std::vector<Flag> frontend = {{"model", &model, "", {.positional = true}},
                                {"host", &host, ""},
                                {"served-model-name", &names, ""},
                                {"max-model-len", &max_len, ""}};
  std::vector<Flag> engine = {{"model", &model, "", {.positional = true}},
                              {"enable-prefix-caching", &prefix, ""},
                              {"max-num-seqs", &seqs, ""},
                              {"max-model-len", &max_len, ""}};

  StatusOr<PairCommandLine> Split(const Words& args) {
    return SplitCommandLine(args, frontend, engine);
  }
};

TEST_CASE("SplitCommandLine gives each flag with its values to the process that has its row") {
  Tables t;
  const PairCommandLine pair =
      *t.Split({"m", "--host", "::1", "--no-enable_prefix_caching", "--max-model-len=4k",
                "--served-model-name", "a", "b", "--max-num-seqs", "-1"});
  CHECK(pair.frontend ==
        Words{"m", "--host", "::1", "--max-model-len=4k", "--served-model-name", "a", "b"});
  CHECK(pair.engine_core ==
        Words{"m", "--no-enable_prefix_caching", "--max-model-len=4k", "--max-num-seqs", "-1"});
  CHECK(pair.warnings.empty());
}

TEST_CASE("SplitCommandLine takes out vLLM's flags that have no effect, values included") {
  Tables t;
  const PairCommandLine pair =
      *t.Split({"--swap_space", "0.9", "--trust-remote-code", "m", "--max-lora-cls-labels=4"});
  CHECK(pair.frontend == Words{"m"});
  CHECK(pair.engine_core == Words{"m"});
  REQUIRE(pair.warnings.size() == 3);
  CHECK(pair.warnings[0].starts_with("--swap-space has no effect: "));
  CHECK(pair.warnings[2].starts_with("--max-lora-cls-labels has no effect: "));
  CHECK(t.Split({"m", "--cpu-offload-gb", "4"})
            .status()
            .message()
            .starts_with("--cpu-offload-gb 4 cannot be done: "));
}

TEST_CASE("SplitCommandLine takes no flag for the value of one of vLLM's") {
  Tables t;
  for (const Words& words :
       {Words{"--swap-space", "--port", "1", "m"}, Words{"m", "--swap-space"}}) {
    CAPTURE(words);
    CHECK(t.Split(words).status().message() == "--swap-space needs a value");
  }
}

TEST_CASE("SplitCommandLine takes no flag of the other process for a value") {
  Tables t;
  const std::pair<Words, std::string> cases[] = {
      {{"m", "--served-model-name", "--max-num-seqs", "3"}, "--served-model-name needs a value"},
      {{"m", "--max-num-seqs", "--host=x"}, "--max-num-seqs needs a value"},
      {{"m", "--max-num-seqs", "--no-enable-prefix-caching"}, "--max-num-seqs needs a value"},
      {{"m", "--host", "--trust-remote-code"}, "--host needs a value"},
      {{"m", "--host"}, "--host needs a value"}};
  for (const auto& [words, refusal] : cases) {
    CAPTURE(words);
    CHECK(t.Split(words).status().message() == refusal);
  }
  CHECK(t.Split({"m", "--host", "-secret-"})->frontend == Words{"m", "--host", "-secret-"});
}

TEST_CASE("SplitCommandLine refuses an unknown flag and names the nearest of both tables") {
  Tables t;
  CHECK(t.Split({"m", "--max-num-seq", "3"}).status().message() ==
        "unknown flag --max-num-seq; did you mean --max-num-seqs?");
  CHECK(t.Split({"--hots", "x"}).status().message() == "unknown flag --hots; did you mean --host?");
}

TEST_CASE("ChangedFlags replaces flags however they are spelled, and keeps the others") {
  Tables t;
  const auto changed = [&t](const Words& words, const Words& changes) {
    return ChangedFlags(t.engine, words, changes);
  };
  CHECK(changed({"m", "--max-num-seqs", "-1", "--enable_prefix_caching"},
                {"--max_num_seqs=4", "--no-enable-prefix-caching"}) ==
        Words{"--model", "m", "--max_num_seqs=4", "--no-enable-prefix-caching"});
  CHECK(changed({"m", "--max-model-len", "4k"}, {"other"}) ==
        Words{"--max-model-len", "4k", "--model", "other"});
  CHECK(changed({"--model=m"}, {"--model", "n"}) == Words{"--model", "n"});
  CHECK(ChangedFlags(t.frontend, {"--served-model-name", "a", "b", "--host", "::1"},
                     {"--served-model-name", "c"}) ==
        Words{"--host", "::1", "--served-model-name", "c"});
}

}  // namespace
}  // namespace tandem
