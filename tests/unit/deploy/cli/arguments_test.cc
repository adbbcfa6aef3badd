#include "deploy/cli/arguments.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Words = std::vector<std::string>;

struct Table {
  std::string compilation, speculation, attention, port;
  bool caching = true;
  std::vector<Flag> flags = {{"compilation-config", &compilation, "", {.short_name = "cc"}},
                             {"speculative-config", &speculation, ""},
                             {"attention-backend", &attention, ""},
                             {"port", &port, ""},
                             {"enable-caching", &caching, ""}};
  Words Expand(const Words& args) {
    const auto expanded = ExpandArguments(args, flags);
    return expanded.ok() ? *expanded : Words{"refused: " + expanded.status().message()};
  }
};

TEST_CASE("arguments: words without dots stay as they are") {
  const Words args = {"m", "--port", "1",  "--enable_caching=0", "-1",     "-0.5",
                      "",  "-",      "--", "--file=a.b",         "--host", "10.0.0.1"};
  CHECK(Table().Expand(args) == args);
}

TEST_CASE("arguments: keys of a flag become one JSON object where the first one stood") {
  CHECK(
      Table().Expand({"--compilation-config.level", "3", "m", "--compilation_config.pass_config.x",
                      "true", "-cc.cudagraph_mode=NONE", "--port", "1"}) ==
      Words{R"(--compilation-config={"level":3,"pass_config":{"x":true},"cudagraph_mode":"NONE"})",
            "m", "--port", "1"});
  CHECK(Table().Expand({"--x.list+", "a,b", "--x.list+=c"}) ==
        Words{R"(--x={"list":["a","b","c"]})"});
  CHECK(Table().Expand({"--x.size", "80g", "--x.text", "8 g", "--x.none", "null"}) ==
        Words{R"(--x={"size":80000000000,"text":"8 g","none":null})"});
}

TEST_CASE("arguments: keys are added to the JSON given beside them, the later one wins") {
  CHECK(Table().Expand({"-cc", R"({"level": 1, "a": {"b": 1}})", "-cc.level=2",
                        "--compilation-config.a.c", "3"}) ==
        Words{R"(--compilation-config={"level":2,"a":{"b":1,"c":3}})"});
  CHECK(Table().Expand({"--compilation-config.level", "2", "-cc", "nonsense"})[0].starts_with(
      "refused: --compilation-config nonsense: must be a JSON object"));
  CHECK(Table().Expand({"--compilation-config.level"}) ==
        Words{"refused: --compilation-config.level needs a value"});
}

TEST_CASE("arguments: the optimization level in all its spellings") {
  const Words level = {"--optimization-level=2"};
  CHECK(Table().Expand({"-O2"}) == level);
  CHECK(Table().Expand({"-O=2"}) == level);
  CHECK(Table().Expand({"-O", "2"}) == level);
  CHECK(Table().Expand({"-O", "m"}) == Words{"--optimization-level=", "m"});
}

TEST_CASE("arguments: a flag that means the same as another takes its place") {
  CHECK(Table().Expand({"--spec-method", "ngram", "--spec_tokens=3"}) ==
        Words{R"(--speculative-config={"method":"ngram","num_speculative_tokens":3})"});
  CHECK(Table().Expand({"--logging-config.formatter", "json"}) == Words{"--log-format", "json"});
  CHECK(Table().Expand({"--logging_config.formatter=text"}) == Words{"--log-format=text"});
  CHECK(Table().Expand({"--attention-config.backend", "FLASHINFER"}) ==
        Words{"--attention-backend", "FLASHINFER"});
  CHECK(Table().Expand({"--renderer-num-workers=4"}) == Words{"--text-threads=4"});
}

TEST_CASE("arguments: keys that are flags here are taken out of the JSON that has them") {
  CHECK(Table().Expand({"--logging-config", R"({"formatter": "json"})", "m"}) ==
        Words{"--log-format=json", "m"});
  CHECK(Table().Expand({R"(--attention_config={"backend": "FLASHINFER", "x": 1})"}) ==
        Words{"--attention-backend=FLASHINFER", R"(--attention-config={"x":1})"});
  for (const Words& whole : {Words{"--logging-config={}"}, Words{"--logging-config", "nonsense"},
                             Words{"--logging-config", "--port", "1"}, Words{"--logging-config"}}) {
    CAPTURE(whole);
    CHECK(Table().Expand(whole) == whole);
  }
}

TEST_CASE("arguments: the longest context that fits may be called auto") {
  CHECK(Table().Expand({"--max-model-len", "auto", "m"}) == Words{"--max-model-len=-1", "m"});
  CHECK(Table().Expand({"--max_model_len=Auto"}) == Words{"--max-model-len=-1"});
  CHECK(Table().Expand({"--max-model-len", "4k"}) == Words{"--max-model-len", "4k"});
}

TEST_CASE("arguments: a key takes no flag for its value") {
  CHECK(Table().Expand({"--spec-method", "--port", "1"}) ==
        Words{"refused: --spec-method needs a value"});
}

TEST_CASE("arguments: the name that a word sets") {
  const Table t;
  CHECK(FlagNameOf("-cc.level=1", t.flags) == "compilation-config");
  CHECK(FlagNameOf("--no-enable_caching", t.flags) == "enable-caching");
  CHECK(FlagNameOf("--spec-model", t.flags) == "speculative-config");
  CHECK(FlagNameOf("-O3", t.flags) == "optimization-level");
  CHECK(FlagNameOf("word", t.flags) == "");
  CHECK(FlagNameOf("-3", t.flags) == "");
}

}  // namespace
}  // namespace tandem
