#include "deploy/cli/serve_command_line.h"

#include <algorithm>
#include <cstdlib>

#include "tests/support/files/temp_folder.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Words = std::vector<std::string>;

ServeCommandLine Parse(const Words& args) {
  auto line = ParseServeCommandLine(args);
  INFO(line.status().message());
  REQUIRE(line.ok());
  return *std::move(line);
}

std::string Refusal(const Words& args) { return ParseServeCommandLine(args).status().message(); }

std::string Origin(const ServeCommandLine& line, const std::string& name) {
  FrontendConfig frontend;
  EngineConfig engine;
  return OriginOf(*FindFlag(PairFlags(frontend, engine), "--" + name), line);
}

TEST_CASE("serve command line: a key that is a flag here has the origin of its object") {
  const TempFolder folder;
  folder.Write("f.yaml", "logging-config: {formatter: json}\n");
  const std::string file = folder.PathOf("f.yaml");
  const ServeCommandLine from_file = Parse({"bare", "--config", file});
  CHECK(from_file.frontend.log_format == "json");
  CHECK(Origin(from_file, "log-format") == file + ":1");
  const Words given = {"bare", "--logging-config", R"({"formatter": "json"})"};
  CHECK(Origin(Parse(given), "log-format") == "command line");
  CHECK(Parse({"bare", "--config", file, "--log-format=text"}).frontend.log_format == "text");
}

TEST_CASE("serve command line: an error about a file's value names its line") {
  const TempFolder folder;
  const std::string file = folder.PathOf("f.yaml");
  folder.Write("f.yaml", "model: m\nport: many\nmax-num-seqs: -1\nrevision: [a, b]\n");
  CHECK(Refusal({"--config", file, "--port=1", "--revision=a"}).starts_with(file + ":3: --max-"));
  CHECK(Refusal({"--config", file, "--max-num-seqs=1"}).starts_with(file + ":2: --port is "));
  CHECK(Refusal({"--config", file, "--port=x", "--max-num-seqs=1"}).starts_with("--port is 'x'"));
}

TEST_CASE(
    "serve command line: the command line wins over the file, the file over the environment") {
  const TempFolder folder;
  folder.Write("f.yaml",
               "model: from-file\nport: 1\nhost: h\nserved-model-name: [a, b]\n"
               "compilation-config: {cudagraph_mode: NONE, level: 3}\nstream-interval: 4\n");
  const std::string file = folder.PathOf("f.yaml");
  ::setenv("TANDEM_MAX_N_SEQUENCES", "7", 1);
  ::setenv("TANDEM_MODEL", "from-environment", 1);
  const ServeCommandLine line = Parse({"--config", file, "bare", "--port=2", "--served_model_name",
                                       "c", "--compilation-config.level", "1"});
  ::unsetenv("TANDEM_MODEL");
  CHECK(line.frontend.model == "bare");
  CHECK(line.engine.model == "bare");
  CHECK(line.frontend.server.port == 2);
  CHECK(line.frontend.server.host == "h");
  CHECK(line.frontend.api.served_model_names == Words{"c"});
  CHECK(line.frontend.input.max_n_sequences == 7);
  CHECK(line.engine.compilation_config == R"({"cudagraph_mode":"NONE","level":1})");
  CHECK(Origin(line, "model") == "command line");
  CHECK(Origin(line, "port") == "command line");
  CHECK(Origin(line, "host") == file + ":3");
  CHECK(Origin(line, "compilation-config") == file + ":5 and command line");
  CHECK(Origin(line, "max-n-sequences") == "environment TANDEM_MAX_N_SEQUENCES");
  CHECK(Origin(line, "uds") == "default");
  CHECK(Parse({"--config=" + file}).engine.model == "from-file");
  // The file ends with a list, and the model is the next word.
  folder.Write("list.yaml", "served-model-name: [a, b]\n");
  const ServeCommandLine listed = Parse({"bare", "--config", folder.PathOf("list.yaml")});
  CHECK(listed.engine.model == "bare");
  CHECK(listed.frontend.api.served_model_names == Words{"a", "b"});
  const ServeCommandLine last = Parse({"--config", folder.PathOf("list.yaml"), "bare"});
  CHECK(last.engine.model == "bare");
  CHECK(last.frontend.api.served_model_names == Words{"a", "b"});
  // As does a list of the command line with a flag of serve's own after it.
  const ServeCommandLine own = Parse({"--api-key", "k", "--revision", "main", "bare"});
  CHECK(own.engine.model == "bare");
  CHECK(own.frontend.api_keys == Words{"k"});
  folder.Write("keys.yaml", "api-key: ['-abc', --port, '[x]', '-1', def]\nmodel: m\n");
  const ServeCommandLine keys = Parse({"--config", folder.PathOf("keys.yaml")});
  CHECK(keys.frontend.api_keys == Words{"-abc", "--port", "[x]", "-1", "def"});
  CHECK(keys.engine.model == "m");
  ::unsetenv("TANDEM_MAX_N_SEQUENCES");
}

TEST_CASE("serve command line: the dashboard is on where only this machine reaches it") {
  for (const char* host : {"127.0.0.1", "127.1.2.3", "::1", "localhost"}) {
    CAPTURE(host);
    CHECK(Parse({"m", "--host", host}).frontend.enable_dashboard);
    CHECK(Origin(Parse({"m", "--host", host}), "enable-dashboard") ==
          "default with --host " + std::string(host));
    CHECK_FALSE(Parse({"m", "--no-enable-dashboard", "--host", host}).frontend.enable_dashboard);
  }
  CHECK_FALSE(Parse({"m"}).frontend.enable_dashboard);
  CHECK_FALSE(Parse({"m", "--host", "0.0.0.0"}).frontend.enable_dashboard);
  CHECK_FALSE(Parse({"m", "--host", "127.example.com"}).frontend.enable_dashboard);
  CHECK(Parse({"m", "--enable-dashboard"}).frontend.enable_dashboard);
}

TEST_CASE("serve command line: the effective configuration reads back as a file, without secrets") {
  const ServeCommandLine given =
      Parse({"m", "--port", "9000", "--api-key", "k3y", "--served-model-name", "a b", "c",
             "--chat-template", "{{ \"x\" }}\nü", "--dtype=float32"});
  ServeCommandLine line = given;
  const std::string text = EffectiveConfig(line);
  CHECK(text.find("k3y") == std::string::npos);
  CHECK(text.find("# api-key: set  # command line\n") != std::string::npos);
  CHECK(text.find("port: 9000  # command line\n") != std::string::npos);
  CHECK(text.find("max-model-len: null  # default\n") != std::string::npos);

  const TempFolder folder;
  folder.Write("f.yaml", text);
  const ServeCommandLine again = Parse({"--config", folder.PathOf("f.yaml")});
  CHECK(again.frontend.server.port == 9000);
  CHECK(again.frontend.api.served_model_names == Words{"a b", "c"});
  CHECK(again.frontend.chat_template == given.frontend.chat_template);
  CHECK(again.engine.dtype == "float32");
  CHECK(again.frontend.api_keys.empty());

  const std::string changed = ChangedValues(line);
  CHECK(changed.find("port=9000 (command line)") != std::string::npos);
  CHECK(changed.find("api-key=*** (command line)") != std::string::npos);
  CHECK(changed.find("uds") == std::string::npos);
}

TEST_CASE(
    "serve command line: vLLM's flags warn or are refused, unknown ones have a nearest name") {
  const ServeCommandLine line = Parse({"m", "--trust-remote-code", "--config-format", "auto"});
  REQUIRE(line.warnings.size() == 2);
  CHECK(line.warnings[0].starts_with("--trust-remote-code has no effect: "));
  const TempFolder folder;
  folder.Write("list.yaml", "ignore-patterns: [a, b]\nmodel: m\n");
  const ServeCommandLine listed = Parse({"--config", folder.PathOf("list.yaml")});
  REQUIRE(listed.warnings.size() == 1);
  CHECK(listed.warnings[0].starts_with("--ignore-patterns has no effect: "));
  CHECK(Refusal({"m", "--enable-elastic-ep"}).starts_with("--enable-elastic-ep cannot be done: "));
  CHECK(Refusal({"m", "--prot", "1"}) == "unknown flag --prot; did you mean --port?");
  CHECK(Refusal({"m", "--port", "x"}) == "--port is 'x', must be a whole number");
  CHECK(Refusal({}) == "no model: tandem serve MODEL");
  // As of `--api-key "$KEY"` without KEY: a server without keys serves everybody.
  CHECK(Refusal({"m", "--api-key", ""}) == "--api-key is empty");
  CHECK(Refusal({"m", "--api-key", "", "k"}) == "--api-key is empty");
  CHECK(Refusal({"m", "--config", "/nonexistent.yaml"}).starts_with("--config: "));
  CHECK(Refusal({"m", "--config", "a", "--config=b"}).starts_with("--config is given twice"));
}

TEST_CASE("serve command line: adapters are the frontend's, in both forms") {
  const std::string object = R"({"name": "b", "path": "/p, q", "base_model_name": "m"})";
  const ServeCommandLine line =
      Parse({"m", "--served-model-name", "m", "--lora-modules", "a=/p/a", object, "--port", "1"});
  CHECK(line.frontend.lora_module_items == Words{"a=/p/a", object});
  CHECK(std::find(line.engine_words.begin(), line.engine_words.end(), object) ==
        line.engine_words.end());
  CHECK(Parse({"m", "--lora-modules=a=/p/a"}).frontend.lora_module_items == Words{"a=/p/a"});
}

TEST_CASE("serve command line: a model of the hub is found in the local cache") {
  const TempFolder folder;
  folder.Write("models--org--name/refs/main", "abc");
  folder.Write("models--org--name/snapshots/abc/config.json", "{}");
  folder.Write("models--org--name/snapshots/abc/model.safetensors", "");
  const ServeCommandLine line = Parse({"org/name", "--download-dir", folder.path()});
  const std::string snapshot = folder.PathOf("models--org--name/snapshots/abc");
  CHECK(line.frontend.model == snapshot);
  CHECK(line.engine.model == snapshot);
  CHECK(line.frontend.api.served_model_names == Words{"org/name"});
  CHECK(Refusal({"org/name", "--download-dir", folder.path(), "--revision", "v9"})
            .starts_with("revision v9 of org/name is not in "));
  CHECK(Parse({folder.path(), "--revision", "v9"}).warnings ==
        Words{"--revision has no effect: the model is a folder"});
}

TEST_CASE("serve command line: what the cache lacks is pulled once, where that is allowed") {
  const TempFolder folder;
  std::vector<ModelPull> pulls;
  const ModelPuller puller = [&](const ModelPull& pull) {
    pulls.push_back(pull);
    folder.Write("models--org--name/snapshots/v1/config.json", "{}");
    if (pull.with_weights) folder.Write("models--org--name/snapshots/v1/model.safetensors", "");
    return OkStatus();
  };
  const std::string cache = "--download-dir=" + folder.path();
  CHECK_FALSE(ParseServeCommandLine({"org/name:v1", cache, "--check-config"}, puller).ok());
  CHECK(pulls.empty());
  CHECK(ParseServeCommandLine({"org/name:v1", cache, "--load-format", "dummy"}, puller).ok());
  REQUIRE(pulls.size() == 1);
  CHECK_FALSE(pulls[0].with_weights);
  const auto line = ParseServeCommandLine({"org/name", "--revision", "v1", cache}, puller);
  REQUIRE(line.ok());
  CHECK(line->engine.model == folder.PathOf("models--org--name/snapshots/v1"));
  REQUIRE(pulls.size() == 2);
  CHECK(pulls[1].revision == "v1");
  CHECK(pulls[1].cache == folder.path());
  CHECK(ParseServeCommandLine({"org/name:v1", cache}, puller).ok());
  CHECK(pulls.size() == 2);
}

TEST_CASE("serve command line: a flag of both processes goes to both") {
  const ServeCommandLine line =
      Parse({"m", "--log-level", "DEBUG", "--hf-overrides.vocab_size", "7"});
  CHECK(line.frontend.log_level == "DEBUG");
  CHECK(line.engine.log_level == "DEBUG");
  CHECK(line.frontend.hf_overrides == R"({"vocab_size":7})");
  CHECK(line.engine.hf_overrides == R"({"vocab_size":7})");
}

}  // namespace
}  // namespace tandem
