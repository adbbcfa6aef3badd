#include "deploy/cli/config_file.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Words = std::vector<std::string>;

struct Table {
  std::string model, compilation;
  Words names;
  bool caching = true;
  int64_t port = 0;
  double share = 0;
  std::vector<Flag> flags = {{"model", &model, "", {.positional = true}},
                             {"compilation-config", &compilation, ""},
                             {"served-model-name", &names, ""},
                             {"enable-caching", &caching, ""},
                             {"port", &port, ""},
                             {"share", &share, ""}};

  StatusOr<std::vector<ConfigEntry>> Parse(const std::string& text) {
    return ParseConfigFile(text, "f.yaml", flags);
  }
  Words WordsOf(const std::string& text) {
    Words words;
    const auto entries = Parse(text);
    INFO(entries.status().message());
    REQUIRE(entries.ok());
    for (const ConfigEntry& entry : *entries) {
      words.insert(words.end(), entry.words.begin(), entry.words.end());
    }
    return words;
  }
  std::string Refusal(const std::string& text) { return Parse(text).status().message(); }
};

TEST_CASE("config file: numbers, texts, booleans, lists and mappings become words") {
  Table t;
  CHECK(t.WordsOf("model: some/folder\nport: 9000\nshare: 0.5\nenable_caching: no\n") ==
        Words{"--model=some/folder", "--port=9000", "--share=0.5", "--enable_caching=false"});
  CHECK(t.WordsOf("served-model-name: [a, 'b c', 12]\n") ==
        Words{"--served-model-name=a", "--served-model-name=b c", "--served-model-name=12"});
  // A word of its own that begins with a dash would be a flag.
  CHECK(t.WordsOf("served-model-name: [a, '-b']\n") ==
        Words{"--served-model-name=a", "--served-model-name=-b"});
  CHECK(t.WordsOf("compilation-config:\n  level: 3\n  pass_config: {x: true, y: '1'}\n") ==
        Words{R"(--compilation-config={"level":3,"pass_config":{"x":true,"y":"1"}})"});
  CHECK(t.WordsOf("compilation-config.level: 3") == Words{"--compilation-config.level=3"});
  CHECK(t.WordsOf("trust-remote-code: true") == Words{"--trust-remote-code=true"});
}

TEST_CASE("config file: what gives nothing") {
  Table t;
  CHECK(t.WordsOf("").empty());
  CHECK(t.WordsOf("# only a comment\n").empty());
  CHECK(t.WordsOf("port: null\nmodel: ~\nserved-model-name: []\nshare:\n").empty());
}

TEST_CASE("config file: quoted texts stay texts, others are read as YAML 1.1") {
  Table t;
  CHECK(t.WordsOf("model: 'yes'") == Words{"--model=yes"});
  CHECK(t.WordsOf("model: yes") == Words{"--model=true"});
  CHECK(t.WordsOf("model: \"007\"") == Words{"--model=007"});
  CHECK(t.WordsOf("model: 007") == Words{"--model=7"});
  // No double has these digits, and these words are numbers in C++ alone.
  CHECK(t.WordsOf("model: 12345678901234567890123") == Words{"--model=12345678901234567890123"});
  CHECK(t.WordsOf("served-model-name: [nan, Infinity]") ==
        Words{"--served-model-name=nan", "--served-model-name=Infinity"});
  CHECK(t.WordsOf("share: 1.5e3") == Words{"--share=1500.0"});
  CHECK(t.WordsOf("model: \"snow \\u2603 and \\\"quotes\\\"\"") ==
        Words{"--model=snow \xE2\x98\x83 and \"quotes\""});
}

TEST_CASE("config file: each entry has its place") {
  Table t;
  const auto entries = t.Parse("# comment\nport: 1\n\nmodel: m\n");
  REQUIRE(entries.ok());
  CHECK(entries->at(0).origin == "f.yaml:2");
  CHECK(entries->at(1).origin == "f.yaml:4");
}

TEST_CASE("config file: refusals name the place and the nearest flag") {
  Table t;
  CHECK(t.Refusal("port: 1\nserved-modl-name: x\n") ==
        "f.yaml:2: unknown flag --served-modl-name; did you mean --served-model-name?");
  CHECK(t.Refusal("enable-elastc-ep: true") ==
        "f.yaml:1: unknown flag --enable-elastc-ep; did you mean --enable-elastic-ep?");
  CHECK(t.Refusal("port: 1\nport: 2\n") == "f.yaml:2: port is given twice");
  CHECK(t.Refusal("enable-caching: true\nno_enable_caching: true\n") ==
        "f.yaml:2: no_enable_caching is given twice");
  CHECK(t.Refusal("config: other.yaml") == "f.yaml:1: config is for the command line only");
  CHECK(t.Refusal("- a\n- b\n") == "f.yaml: must be a mapping of flags to values");
  CHECK(t.Refusal("port: 1\n---\nshare: 0.5\n") ==
        "f.yaml:3: a second document; the file must be one mapping");
  CHECK(t.Refusal("just text") == "f.yaml: must be a mapping of flags to values");
  CHECK(t.Refusal("port: [1\n").starts_with("f.yaml:"));
  CHECK(t.Refusal("a: *nothing\n").starts_with("f.yaml:1: "));
  CHECK(t.Refusal(std::string("port: \x01\x02\xFF\xFE")).starts_with("f.yaml"));
}

TEST_CASE("config file: depth and number of values are limited") {
  Table t;
  std::string deep = "compilation-config: ";
  for (int i = 0; i < 20; ++i) deep += "[";
  for (int i = 0; i < 20; ++i) deep += "]";
  CHECK(t.Refusal(deep) == "f.yaml:1: is nested deeper than 16 levels");
  // Each line doubles the one before.
  std::string laughs = "a: &l0 [x, x]\n";
  for (int i = 1; i < 24; ++i) {
    laughs += "b" + std::to_string(i) + ": &l" + std::to_string(i) + " [*l" +
              std::to_string(i - 1) + ", *l" + std::to_string(i - 1) + "]\n";
  }
  const std::string nested = "compilation-config:\n  " + [&] {
    std::string text;
    for (const char c : laughs) text += c == '\n' ? std::string("\n  ") : std::string(1, c);
    return text;
  }();
  CHECK(t.Refusal(nested) == "f.yaml:1: has more than 10,000 values");
}

}  // namespace
}  // namespace tandem
