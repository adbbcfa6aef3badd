#include "deploy/cli/bench/sweep_params.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Words = CommandWords;

std::vector<ParameterSet> Sets(std::string_view json) { return *ParseParameterSets(json); }

std::vector<std::string> Names(const std::vector<ParameterSet>& sets) {
  std::vector<std::string> names;
  for (const ParameterSet& set : sets) names.push_back(set.name);
  return names;
}

TEST_CASE("Parameter sets become flags, in the order they are written") {
  const auto sets = Sets(R"([{"max_num_seqs": 64, "enable-prefix-caching": false, "x": true},
                             {"names": ["a", "b c"], "config": {"k": 1}, "gone": null}])");
  REQUIRE(sets.size() == 2);
  CHECK(sets[0].name == "max-num-seqs=64,enable-prefix-caching=false,x=true");
  CHECK(WithSettings({"serve"}, sets[0]) ==
        Words{"serve", "--max-num-seqs", "64", "--no-enable-prefix-caching", "--x"});
  CHECK(WithSettings({"serve"}, sets[1]) ==
        Words{"serve", "--names", "a", "b c", "--config", "{\"k\":1}"});
}

TEST_CASE("A setting replaces the flag in the command") {
  const Words command = {"serve", "model", "--max_num_seqs", "8",      "--gone=3", "--x", "--names",
                         "p",     "q",     "--no-y",         "--rate", "-1",       "end"};
  CHECK(WithSettings(command, Sets(R"([{"max-num-seqs": 16}])")[0]) ==
        Words{"serve", "model", "--gone=3", "--x", "--names", "p", "q", "--no-y", "--rate", "-1",
              "end", "--max-num-seqs", "16"});
  CHECK(WithSettings(command, Sets(R"([{"x": false, "y": true, "gone": null}])")[0]) ==
        Words{"serve", "model", "--max_num_seqs", "8", "--names", "p", "q", "--rate", "-1", "end",
              "--no-x", "--y"});
  CHECK(WithSettings(command, Sets(R"([{"names": ["z", "w"], "rate": 2}])")[0]) ==
        Words{"serve", "model", "--max_num_seqs", "8", "--gone=3", "--x", "--no-y", "end",
              "--names", "z", "w", "--rate", "2"});
}

TEST_CASE("Parameter sets: names, the empty list, and what is refused") {
  CHECK(Names(Sets("")) == Words{""});
  CHECK(Names(Sets(R"({"small": {"a": 1}, "large": {"a": 2}})")) == Words{"small", "large"});
  CHECK(Names(Sets(R"([{"_benchmark_name": "n", "a": 1}])")) == Words{"n"});
  CHECK(Sets(R"([{"_benchmark_name": "n", "a": 1}])")[0].settings.size() == 1);
  CHECK(ParseParameterSets("[]").status().message() == "the list of parameters is empty");
  CHECK(ParseParameterSets("[1]").status().message() ==
        "a set of parameters is 1, must be an object of flags");
  CHECK(ParseParameterSets("[{]").status().message() ==
        "parameters must be a JSON list of objects");
  CHECK(ParseParameterSets("/no/such/file").status().message() ==
        "'/no/such/file' is neither JSON nor a file");
}

TEST_CASE("Crossing pairs all sets, links keep those with equal values") {
  const auto serve = Sets(R"([{"max-num-seqs": 8}, {"max-num-seqs": 16}, {"max-num-seqs": 32}])");
  const auto bench = Sets(R"([{"max-concurrency": 16, "n": 1}, {"max-concurrency": 8, "n": 2},
                              {"max-concurrency": 16, "n": 3}])");
  const auto all = *CrossParameters(serve, bench, {});
  REQUIRE(all.size() == 3);
  CHECK(all[2].serve_idx == 2);
  CHECK(all[2].bench_idx == std::vector<size_t>{0, 1, 2});

  const auto links = *ParseLinks("max_num_seqs=max_concurrency");
  const auto linked = *CrossParameters(serve, bench, links);
  REQUIRE(linked.size() == 2);  // none of 32
  CHECK(linked[0].bench_idx == std::vector<size_t>{1});
  CHECK(linked[1].serve_idx == 1);
  CHECK(linked[1].bench_idx == std::vector<size_t>{0, 2});

  CHECK(CrossParameters(serve, bench, *ParseLinks("max-num-seqs=rate")).status().message() ==
        "--link-vars has 'rate', which a set of --bench-params does not have");
  CHECK(ParseLinks("a=b,c").status().message() ==
        "--link-vars has 'c', must be SERVE_FLAG=BENCH_FLAG");
  CHECK(ParseLinks("")->empty());
}

TEST_CASE("Command lines are split as a shell does, and joined again") {
  CHECK(*SplitShellWords("  a  'b c' \"d \\\" $e\" f\\ g '' h'i'\"j\" ") ==
        Words{"a", "b c", "d \" $e", "f g", "", "hij"});
  CHECK(*SplitShellWords(R"("a\nb" 'c\d')") == Words{"a\\nb", "c\\d"});
  CHECK(SplitShellWords("").value().empty());
  CHECK_FALSE(SplitShellWords("a 'b").ok());
  const Words words = {"a b", "", "it's", "x=1", "{\"k\": [1]}", "--flag"};
  CHECK(*SplitShellWords(ShellCommand(words)) == words);
  CHECK(ShellCommand({"tandem", "--port", "1"}) == "tandem --port 1");
}

TEST_CASE("FlagValue finds both ways of writing, the last one counts") {
  const Words command = {"bench", "--port", "1", "--base_url=http://x", "--port=2", "--last"};
  CHECK(FlagValue(command, "port") == "2");
  CHECK(FlagValue(command, "base-url") == "http://x");
  CHECK_FALSE(FlagValue(command, "last").has_value());
  CHECK_FALSE(FlagValue(command, "host").has_value());
}

}  // namespace
}  // namespace tandem
