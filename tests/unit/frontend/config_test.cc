#include "frontend/config.h"

#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "common/version.h"
#include "tests/support/files/temp_folder.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

const std::string kFolder = std::filesystem::temp_directory_path();

StatusOr<FrontendConfig> Parse(std::vector<std::string> args) {
  FrontendConfig config;
  auto outcome = ParseFlags(FrontendFlags(config), args, "test");
  if (!outcome.ok()) return outcome.status();
  RETURN_IF_ERROR(Finish(config));
  return config;
}

TEST_CASE("each flag has one row, a help text and a target of its own") {
  FrontendConfig config;
  std::set<std::string_view> names;
  std::set<const void*> targets;
  for (const Flag& flag : FrontendFlags(config)) {
    CAPTURE(flag.name);
    CHECK(names.insert(flag.name).second);
    CHECK_FALSE(flag.help.empty());
    CHECK(
        targets.insert(std::visit([](auto* target) -> const void* { return target; }, flag.target))
            .second);
  }
}

TEST_CASE("defaults follow from the flags that are set") {
  ::unsetenv("TANDEM_API_KEY");
  const TempFolder runtime;
  ::setenv("XDG_RUNTIME_DIR", runtime.path().c_str(), 1);
  const auto config = Parse({kFolder});
  REQUIRE(config.ok());
  CHECK(config->model == kFolder);
  CHECK(config->tokenizer == kFolder);
  CHECK(config->api.served_model_names == std::vector<std::string>{kFolder});
  CHECK(config->handshake_address == "ipc://" + runtime.path() + "/tandem/handshake");
  CHECK(DataAddress(config->handshake_address) == "ipc://" + runtime.path() + "/tandem");

  const auto far =
      Parse({kFolder, "--data-parallel-address", "10.0.0.1", "--data-parallel-rpc-port", "1234",
             "--served-model-name", "a", "--insecure-tcp"});
  REQUIRE(far.ok());
  CHECK(far->handshake_address == "tcp://10.0.0.1:1234");
  CHECK(DataAddress(far->handshake_address) == "tcp://10.0.0.1");
}

TEST_CASE("a group of engines needs an address, several engines and no keys") {
  const auto refusal = [](std::vector<std::string> more) {
    more.insert(more.begin(), {kFolder, "--data-parallel-lockstep"});
    return std::string(Parse(more).status().message());
  };
  CHECK(refusal({}).ends_with("needs a --data-parallel-size of at least 2"));
  CHECK(
      refusal({"-dp", "2"}).starts_with("--data-parallel-lockstep: needs --data-parallel-address"));
  CHECK(refusal({"-dp", "2", "-dpa", "10.0.0.1", "--tcp-keys", "/k"})
            .starts_with("--data-parallel-lockstep: the engines are vLLM's"));
  CHECK(refusal({"-dp", "2", "-dpa", "10.0.0.1", "--insecure-tcp"}).empty());
}

TEST_CASE("adapters are named in both forms, and not as the model") {
  const auto config =
      Parse({kFolder, "--served-model-name", "m", "--lora-modules", "a=/p/a",
             R"({"name": "b", "path": "/p/b", "base_model_name": "m"})", "--enable-runtime-lora"});
  REQUIRE(config.ok());
  CHECK(config->lora_modules == std::vector<AdapterModule>{{"a", "/p/a"}, {"b", "/p/b", "m"}});
  CHECK(config->enable_runtime_lora);
  CHECK(Parse({kFolder, "--lora-modules=a=/p=a"})->lora_modules[0].path == "/p=a");
  CHECK(Parse({kFolder, "--served-model-name", "m", "--lora-modules", "m=/p"}).status().message() ==
        "--lora-modules m=/p: m is a name of the model itself");
  CHECK(Parse({kFolder, "--lora-modules", "x"}).status().code() == StatusCode::kInvalidArgument);
}

TEST_CASE("the environment allows adapters at run time, as vLLM's does") {
  CHECK_FALSE(Parse({kFolder})->enable_runtime_lora);
  ::setenv("VLLM_ALLOW_RUNTIME_LORA_UPDATING", "1", 1);
  CHECK(Parse({kFolder})->enable_runtime_lora);
  CHECK_FALSE(Parse({kFolder, "--no-enable-runtime-lora"})->enable_runtime_lora);
  ::unsetenv("VLLM_ALLOW_RUNTIME_LORA_UPDATING");
}

TEST_CASE("a folder of adapters must be there, also where the environment names it") {
  CHECK(Parse({kFolder})->lora_resolver_cache_dir.empty());
  CHECK(Parse({kFolder, "--lora-resolver-cache-dir", kFolder})->lora_resolver_cache_dir == kFolder);
  CHECK(Parse({kFolder, "--lora-resolver-cache-dir", "/nowhere/at/all"}).status().message() ==
        "--lora-resolver-cache-dir /nowhere/at/all: no such folder");
  ::setenv("VLLM_LORA_RESOLVER_CACHE_DIR", "/nowhere/at/all", 1);
  CHECK_FALSE(Parse({kFolder}).ok());
  ::unsetenv("VLLM_LORA_RESOLVER_CACHE_DIR");
}

TEST_CASE("the model may come before or after the flags") {
  CHECK(Parse({"--port", "1", kFolder})->model == kFolder);
  CHECK(Parse({"--port", "1", kFolder, "--host", "h"})->server.host == "h");
  CHECK_FALSE(Parse({kFolder, "--port", "1", "other"}).ok());
}

TEST_CASE("keys come from the environment when no flag sets them") {
  ::setenv("TANDEM_API_KEY", "secret", 1);
  CHECK(Parse({kFolder})->server.api_keys == std::vector<std::string>{"secret"});
  CHECK(Parse({kFolder, "--api-key", "other"})->server.api_keys ==
        std::vector<std::string>{"other"});
  ::unsetenv("TANDEM_API_KEY");
}

TEST_CASE("keys come from a file too, and from systemd's credentials where no file is named") {
  const TempFolder folder;
  folder.Write("keys", "# for the dashboard\none\n\n  two \n");
  folder.Write("api-keys", "three\n");
  folder.Write("empty", "# none yet\n");
  const std::string path = folder.path() + "/keys";
  using Keys = std::vector<std::string>;
  CHECK(Parse({kFolder, "--api-key-file", path})->server.api_keys == Keys{"one", "two"});
  CHECK(Parse({kFolder, "--api-key", "a", "--api-key-file", path})->server.api_keys ==
        Keys{"a", "one", "two"});
  CHECK(Parse({kFolder, "--api-key", "a\nb"})->server.api_keys == Keys{"a", "b"});
  ::setenv("CREDENTIALS_DIRECTORY", folder.path().c_str(), 1);
  CHECK(Parse({kFolder})->server.api_keys == Keys{"three"});
  CHECK(Parse({kFolder, "--api-key-file", path})->server.api_keys == Keys{"one", "two"});
  ::setenv("CREDENTIALS_DIRECTORY", kFolder.c_str(), 1);
  CHECK(Parse({kFolder})->server.api_keys.empty());
  ::unsetenv("CREDENTIALS_DIRECTORY");
  // A file that was emptied by mistake must not open the server.
  CHECK_THAT(Parse({kFolder, "--api-key-file", folder.path() + "/empty"}).status().message(),
             Catch::Contains("--api-key-file") && Catch::Contains("has no key"));
  CHECK_FALSE(Parse({kFolder, "--api-key-file", "/no/such/file"}).ok());
}

TEST_CASE("folders that are not there are the model's fault, not the command line's") {
  CHECK(CheckModelFolders(*Parse({kFolder})).ok());
  CHECK_THAT(CheckModelFolders(*Parse({"/no/such/folder"})).message(),
             Catch::Contains("/no/such/folder"));
  CHECK_THAT(CheckModelFolders(*Parse({kFolder, "--tokenizer", "/no/such"})).message(),
             Catch::Contains("--tokenizer"));
}

TEST_CASE("the description of the configuration hides the keys") {
  auto config = Parse({kFolder, "--api-key", "hidden", "--port", "9", "--served-model-name", "a",
                       "b", "--max-stop-strings", "7"});
  REQUIRE(config.ok());
  std::map<std::string, std::string> described;
  for (auto& [flag, value] : DescribeConfig(*config)) described[flag] = value;
  CHECK(described["api-key"] == "***");
  CHECK(described["port"] == "9");
  CHECK(described["served-model-name"] == "a b");
  CHECK(described["max-stop-strings"] == "7");
  CHECK(described["server-dev-mode"] == "false");
}

TEST_CASE("flags that need or contradict each other") {
  const auto refusal = [](std::vector<std::string> args) {
    args.insert(args.begin(), kFolder);
    return Parse(args).status().message();
  };
  CHECK(Parse({kFolder, "--root-path", "/llm/"})->server.root_path == "/llm");
  CHECK_THAT(refusal({"--root-path", "llm"}), Catch::Contains("must begin with a slash"));
  CHECK_THAT(refusal({"--enable-log-outputs"}), Catch::Contains("needs --enable-log-requests"));
  CHECK_THAT(refusal({"--ssl-cert-reqs", "2"}), Catch::Contains("needs --ssl-ca-certs"));
  CHECK_THAT(refusal({"--ssl-certfile", "c", "--ssl-ca-certs", "a", "--ssl-cert-reqs", "0"}),
             Catch::Contains("it must be 2"));
  CHECK(Parse({kFolder, "--ssl-cert-reqs", "0"}).ok());
  CHECK(Parse({kFolder})->api.system_fingerprint.starts_with("tandem-"));
  CHECK(Parse({kFolder, "--fingerprint-mode", "none"})->api.system_fingerprint.empty());
  CHECK(Parse({kFolder, "--fingerprint-mode", "custom", "--fingerprint-value", "x"})
            ->api.system_fingerprint == "x");
  CHECK_THAT(refusal({"--fingerprint-value", "x"}), Catch::Contains("need each other"));
  CHECK_THAT(refusal({"--fingerprint-mode", "custom"}), Catch::Contains("need each other"));
  CHECK(Parse({kFolder, "--reasoning-effort-map", R"({"max": "high"})"})
            ->input.reasoning_efforts.at("max") == "high");
  CHECK_THAT(refusal({"--reasoning-effort-map", R"({"most": "high"})"}),
             Catch::Contains("most is no effort"));
  CHECK_THAT(refusal({"--reasoning-effort-map", R"({"max": 1})"}),
             Catch::Contains("must be a text"));
  CHECK_THAT(refusal({"--reasoning-effort-map", "{"}), Catch::Contains("must be a JSON object"));
}

TEST_CASE("vLLM's variables set the limits of a request") {
  ::setenv("VLLM_MAX_STOP_STRINGS", "9", 1);
  ::setenv("VLLM_MAX_N_SEQUENCES", "3", 1);
  ::setenv("TANDEM_MAX_N_SEQUENCES", "4", 1);
  const auto config = Parse({kFolder});
  for (const char* name :
       {"VLLM_MAX_STOP_STRINGS", "VLLM_MAX_N_SEQUENCES", "TANDEM_MAX_N_SEQUENCES"}) {
    ::unsetenv(name);
  }
  REQUIRE(config.ok());
  CHECK(config->input.max_stop_strings == 9);
  CHECK(config->input.max_n_sequences == 4);
  CHECK(config->input.max_bad_words == 128);
}

TEST_CASE("texts of flags become what the server and the API take") {
  const auto plain = Parse({kFolder});
  REQUIRE(plain.ok());
  CHECK(plain->server.cors.origins.empty());
  CHECK(plain->server.cors.methods == std::vector<std::string>{"*"});
  CHECK(plain->server.access_log_excluded.empty());
  CHECK(plain->api.enable_prompt_tokens_details);
  CHECK(plain->api.system_fingerprint == "tandem-" + std::string(kVersion));
  CHECK(plain->input.default_chat_template_kwargs.is_null());
  CHECK(plain->engine_health.hang_timeout_s == 60);

  const auto config =
      Parse({kFolder, "--allowed-origins", R"(["https://a", "https://b"])", "--allowed-headers",
             "[]", "--disable-access-log-for-endpoints", "/health, /metrics",
             "--default-chat-template-kwargs", R"({"enable_thinking": false})"});
  REQUIRE(config.ok());
  CHECK(config->server.cors.origins == std::vector<std::string>{"https://a", "https://b"});
  CHECK(config->server.cors.headers.empty());
  CHECK(config->server.access_log_excluded == std::vector<std::string>{"/health", "/metrics"});
  CHECK((*config->input.default_chat_template_kwargs)["enable_thinking"] == false);
  for (const char* host : {"[::1]", "::1"}) {
    CHECK(Parse({kFolder, "--host", host})->server.host == "::1");
  }
}

TEST_CASE("an error names the bad flag") {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{}, "model"},
      {{kFolder, "--port", "65536"}, "port"},
      {{kFolder, "--port", "x"}, "port"},
      {{kFolder, "--api-server-count", "0"}, "api-server-count"},
      {{kFolder, "--allowed-origins", "*"}, "allowed-origins"},
      {{kFolder, "--allowed-origins", "[1]"}, "allowed-origins"},
      {{kFolder, "--default-chat-template-kwargs", "{"}, "default-chat-template-kwargs"},
      {{kFolder, "--default-chat-template-kwargs", "1"}, "must be a JSON object"},
      {{kFolder, "--default-chat-template-kwargs", R"(["a"])"}, "must be a JSON object"},
      {{kFolder, "--reasoning-config", "[]"}, "reasoning-config"},
      {{kFolder, "--reasoning-config", R"({"reasoning_end_str": ""})"}, "reasoning-config"},
      {{kFolder, "--reasoning-config", R"({"end": "x"})"}, "reasoning-config"},
      {{kFolder, "--handshake-address", "http://x"}, "handshake-address"},
      {{kFolder, "--ssl-keyfile", "key.pem"}, "ssl-certfile"},
      {{kFolder, "--log-level", "LOUD"}, "log-level"},
      {{kFolder, "--prot", "1"}, "port"},
  };
  for (const auto& [args, words] : cases) {
    CAPTURE(args);
    const auto config = Parse(args);
    REQUIRE_FALSE(config.ok());
    CHECK(config.status().message().find(words) != std::string::npos);
  }
}

}  // namespace
}  // namespace tandem
