#include "common/flags.h"

#include <cstdlib>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

struct Config {
  std::string model;
  bool prefix = true;
  int64_t max_num_seqs = 128;
  std::optional<int64_t> max_model_len;
  double watermark = 0;
  int64_t num_gpus = 1;
  std::string dtype = "auto";
  std::vector<std::string> served;
};

std::vector<Flag> Table(Config& c) {
  return {
      {"model", &c.model, "Model folder", {.positional = true}},
      {"enable-prefix-caching", &c.prefix, "Reuse blocks"},
      {"max-num-seqs",
       &c.max_num_seqs,
       "Running requests",
       {.min = 1, .max = 65536, .env = "TEST_SEQS"}},
      {"max-model-len", &c.max_model_len, "Context", {.min = 1}},
      {"watermark", &c.watermark, "Free share", {.min = 0, .max = 0.99, .short_name = "wm"}},
      {"num-gpus", &c.num_gpus, "GPUs", {.min = 1, .max = 1, .allowed = "1: there is one"}},
      {"dtype", &c.dtype, "Compute type", {.choices = {"auto", "bfloat16"}}},
      {"served-model-name", &c.served, "Names"},
  };
}

Status Parse(Config& c, std::vector<std::string> args) {
  return ParseFlags(Table(c), args, "about").status();
}

TEST_CASE("Flags: values, twins, underscores, human numbers, lists, positional") {
  Config c;
  REQUIRE(Parse(c, {"some/model", "--no-enable_prefix_caching", "--max-model-len=32k", "-wm", "0.5",
                    "--served_model_name", "a", "b", "--dtype", "bfloat16"})
              .ok());
  CHECK(c.model == "some/model");
  CHECK_FALSE(c.prefix);
  CHECK(c.max_model_len == 32000);
  CHECK(c.watermark == 0.5);
  CHECK(c.served == std::vector<std::string>{"a", "b"});
  CHECK(c.dtype == "bfloat16");
  CHECK(c.max_num_seqs == 128);
}

TEST_CASE("Flags: values in brackets are texts") {
  using Words = std::vector<std::string>;
  Config c;
  REQUIRE(Parse(c, {"--served-model-name", "[]", "--max-num-seqs", "4", "[m]"}).ok());
  CHECK(c.served == Words{"[]"});
  CHECK(c.max_num_seqs == 4);
  CHECK(c.model == "[m]");
  REQUIRE(Parse(c, {"--served-model-name=[a,b]", "[c]", "[", "]", "[d", "e]"}).ok());
  CHECK(c.served == Words{"[a,b]", "[c]", "[", "]", "[d", "e]"});
}

TEST_CASE("Flags: the last of a repeated flag counts, and a bool can have a value") {
  Config c;
  REQUIRE(Parse(c, {"--max-num-seqs", "4", "--max-num-seqs", "1K", "--enable-prefix-caching=false"})
              .ok());
  CHECK(c.max_num_seqs == 1024);
  CHECK_FALSE(c.prefix);
}

TEST_CASE("Flags: the short name of a bool turns it on, its twin off") {
  bool splits = false;
  const std::vector<Flag> table = {{"splits", &splits, "Splits", {.short_name = "sp"}}};
  CHECK(ParseFlags(table, {"-sp"}, "about").ok());
  CHECK(splits);
  CHECK(ParseFlags(table, {"--no-splits"}, "about").ok());
  CHECK_FALSE(splits);
  CHECK(ParseFlags(table, {"--no_splits=false"}, "about").ok());
  CHECK(splits);
  CHECK(ParseFlags(table, {"--no-splits=True"}, "about").ok());
  CHECK_FALSE(splits);
  CHECK(ParseFlags(table, {"--no-splits=maybe"}, "about").status().message() ==
        "--splits is 'maybe', must be true or false");
}

TEST_CASE("Flags: refusals name the flag, the value and what is allowed") {
  Config c;
  CHECK(Parse(c, {"--max-num-seqs", "0"}).message() ==
        "--max-num-seqs is '0', must be between 1 and 65536");
  CHECK(Parse(c, {"--max-num-seqs", "many"}).message() ==
        "--max-num-seqs is 'many', must be a whole number");
  CHECK(Parse(c, {"--num-gpus", "2"}).message() == "--num-gpus is '2', must be 1: there is one");
  CHECK(Parse(c, {"--num-gpus", "1"}).ok());
  CHECK(Parse(c, {"--dtype", "int3"}).message() ==
        "--dtype is 'int3', must be one of auto bfloat16");
  CHECK(Parse(c, {"--max-num-seq", "4"}).message() ==
        "unknown flag --max-num-seq; did you mean --max-num-seqs?");
  CHECK(Parse(c, {"--wholly-different"}).message() == "unknown flag --wholly-different");
  CHECK(Parse(c, {"m", "n"}).message() == "unexpected argument 'n'");
}

TEST_CASE("Flags: a missing value is an error that names the flag") {
  for (const std::vector<std::string>& args : {std::vector<std::string>{"--max-num-seqs"},
                                               {"--max_num_seqs="},
                                               {"m", "--max-num-seqs"},
                                               {"--max-num-seqs", "--max-num-seqs", "3"}}) {
    CAPTURE(args);
    Config config;
    CHECK(Parse(config, args).message() == "--max-num-seqs needs a value");
  }
}

TEST_CASE("Flags: the environment sets what the command line does not") {
  Config c;
  setenv("VLLM_TEST_SEQS", "7", 1);
  REQUIRE(Parse(c, {}).ok());
  CHECK(c.max_num_seqs == 7);
  setenv("TANDEM_TEST_SEQS", "8", 1);
  REQUIRE(Parse(c, {}).ok());
  CHECK(c.max_num_seqs == 8);
  REQUIRE(Parse(c, {"--max-num-seqs", "9"}).ok());
  CHECK(c.max_num_seqs == 9);
  setenv("TANDEM_TEST_SEQS", "", 1);
  REQUIRE(Parse(c, {}).ok());
  CHECK(c.max_num_seqs == 7);
  unsetenv("VLLM_TEST_SEQS");
  unsetenv("TANDEM_TEST_SEQS");
}

TEST_CASE("Flags: help lists name, type, default and choices") {
  Config c;
  const std::string help = FlagHelp(Table(c), "about", "");
  CHECK(help.find("--max-num-seqs INT") != help.npos);
  CHECK(help.find("[128]") != help.npos);
  CHECK(help.find("(auto|bfloat16)") != help.npos);
  CHECK(FlagHelp(Table(c), "about", "watermark").find("--dtype") == std::string::npos);
  CHECK(FlagHelp(Table(c), "about", "nosuch") ==
        "about\n\nno flag has 'nosuch' in its name or text\n");
}

TEST_CASE("secret values are taken out of a command line, and overwritten in place") {
  std::vector<std::string> keys;
  std::string model;
  const std::vector<Flag> flags = {
      {"model", &model, "Model folder", {.positional = true}},
      {"key", &keys, "Keys", {.env = "TEST_KEY", .secret = true}},
  };
  const std::vector<std::string> args = {"m", "--key", "a", "-12", "b", "--model", "x", "--key=cc"};
  CHECK(WithoutSecrets(flags, args) == std::vector<std::string>{"m", "--model", "x"});

  std::vector<std::string> words = args;
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  HideSecretArguments(flags, static_cast<int>(argv.size()), argv.data());
  CHECK(words ==
        std::vector<std::string>{"m", "--key", "*", "***", "*", "--model", "x", "--key=**"});
  REQUIRE(ParseFlags(flags, {"m", "--key", "a", "-12", "b", "--key=cc"}, "about").ok());
  CHECK(keys == std::vector<std::string>{"a", "-12", "b", "cc"});

  setenv("TANDEM_TEST_KEY", "secret", 1);
  REQUIRE(ParseFlags(flags, {"m"}, "about").ok());
  HideSecretVariables(flags);
  CHECK(std::string(getenv("TANDEM_TEST_KEY")) == "******");
  CHECK(keys == std::vector<std::string>{"secret"});
  unsetenv("TANDEM_TEST_KEY");
}

TEST_CASE("a settings file changes live flags only, and names the line that is wrong") {
  int64_t limit = 1;
  std::string level = "INFO", host = "h";
  const std::vector<Flag> flags = {
      {"limit", &limit, "Most", {.min = 0, .max = 9, .live = true}},
      {"log-level", &level, "Level", {.choices = {"INFO", "DEBUG"}, .live = true}},
      {"host", &host, "Address"},
  };
  REQUIRE(ApplySettings(flags, "# tonight\nlog_level: DEBUG\n\n  limit :  7 \n").ok());
  CHECK(limit == 7);
  CHECK(level == "DEBUG");
  const auto wrong = [&](std::string_view text) { return ApplySettings(flags, text).message(); };
  CHECK(wrong("\nhost: x") == "line 2: --host is for the command line only");
  CHECK(wrong("limi: 1") == "line 1: unknown flag --limi; did you mean --limit?");
  CHECK(wrong("limit: 10") == "line 1: --limit is '10', must be between 0 and 9");
  CHECK(wrong("log-level: LOUD") == "line 1: --log-level is 'LOUD', must be one of INFO DEBUG");
  CHECK(wrong("limit 3") == "line 1: must be \"name: value\"");
  CHECK(wrong("limit:") == "line 1: --limit needs a value");
  CHECK(host == "h");
}

}  // namespace
}  // namespace tandem
