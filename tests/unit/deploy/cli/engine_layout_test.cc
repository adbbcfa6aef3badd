#include "deploy/cli/engine_layout.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Words = std::vector<std::string>;

ServeCommandLine Parse(Words args) {
  args.insert(args.begin(), "m");
  auto line = ParseServeCommandLine(args);
  INFO(line.status().message());
  REQUIRE(line.ok());
  return *std::move(line);
}

EngineLayout Layout(const Words& args) {
  const auto layout = LayoutOf(Parse(args));
  INFO(layout.status().message());
  REQUIRE(layout.ok());
  return *layout;
}

std::string Refusal(const Words& args) { return LayoutOf(Parse(args)).status().message(); }

std::vector<LocalEngine> Engines(const Words& args, const char* devices = nullptr) {
  const ServeCommandLine line = Parse(args);
  auto engines = LocalEngines(Layout(args), line, devices);
  INFO(engines.status().message());
  REQUIRE(engines.ok());
  return *std::move(engines);
}

EngineConfig ConfigOf(const LocalEngine& engine) {
  EngineConfig config;
  REQUIRE(ParseFlags(EngineFlags(config), engine.words, "").ok());
  return config;
}

FrontendConfig FrontendOf(const Words& args) {
  FrontendConfig config;
  REQUIRE(ParseFlags(FrontendFlags(config), FrontendWords(Layout(args), Parse(args)), "").ok());
  return config;
}

TEST_CASE("engine layout: one pair") {
  const EngineLayout layout = Layout({});
  CHECK(layout.has_frontend);
  CHECK(layout.num_engines == 1);
  CHECK(layout.handshake_address.empty());
  const auto engines = Engines({});
  REQUIRE(engines.size() == 1);
  CHECK(engines[0].name == "engine core");
  CHECK(engines[0].environment.empty());
}

TEST_CASE("engine layout: all replicas here need no port") {
  const Words args = {"-dp", "3", "--max-num-seqs", "5", "--data-parallel-address", "10.0.0.1"};
  CHECK(Layout(args).handshake_address.empty());
  const auto engines = Engines(args);
  REQUIRE(engines.size() == 3);
  for (int i = 0; i < 3; ++i) {
    const LocalEngine& engine = engines[static_cast<size_t>(i)];
    const EngineConfig config = ConfigOf(engine);
    CHECK(engine.name == "engine core " + std::to_string(i));
    CHECK(config.data_parallel_rank == i);
    CHECK(config.data_parallel_start_rank == 0);
    CHECK(config.data_parallel_size_local == 3);
    CHECK(config.max_num_seqs == 5);
  }
  CHECK(FrontendOf(args).data_parallel_size == 3);
}

TEST_CASE("engine layout: some here, the others by --headless") {
  const Words shared = {"-dp", "4", "-dpa", "10.0.0.1", "-dpp", "99"};
  Words head = shared, headless = shared;
  head.insert(head.end(), {"-dpl", "1", "--data-parallel-start-rank", "0"});
  headless.insert(headless.end(), {"--headless", "-dpl", "2", "-dpr", "1"});
  CHECK(Layout(head).handshake_address == "tcp://10.0.0.1:99");
  CHECK(Layout(head).num_local == 1);
  CHECK(FrontendOf(head).data_parallel_size == 4);
  CHECK_FALSE(Layout(headless).has_frontend);
  CHECK(Layout(headless).handshake_address == "tcp://10.0.0.1:99");
  const auto engines = Engines(headless);
  REQUIRE(engines.size() == 2);
  CHECK(ConfigOf(engines[1]).data_parallel_rank == 2);
  CHECK(ConfigOf(engines[1]).headless);
  CHECK(ConfigOf(engines[1]).data_parallel_start_rank == 0);  // the frontend counts from there
  Words none = shared;
  none.insert(none.end(), {"-dpl", "0"});
  CHECK(Engines(none).empty());
  headless.pop_back();
  headless.insert(headless.end(), {"3", "-dpl", "2"});
  CHECK(Refusal(headless) ==
        "--data-parallel-size 4 has ranks up to 3; this command would start 2 from rank 3 on");
}

TEST_CASE("engine layout: hybrid and external servers keep to their own ranks") {
  const Words hybrid = {"-dp", "4", "-dpl", "2", "-dpr", "2"};  // the start rank says so
  CHECK(FrontendOf(hybrid).data_parallel_size == 2);
  CHECK(FrontendOf(hybrid).data_parallel_start_rank == 2);
  CHECK(ConfigOf(Engines(hybrid)[1]).data_parallel_rank == 3);
  CHECK(ConfigOf(Engines(hybrid)[1]).data_parallel_start_rank == 2);
  CHECK(Layout({"-dp", "4", "-dpl", "2", "--data-parallel-hybrid-lb"}).num_engines == 2);
  for (const Words& external : {Words{"-dp", "4", "--data-parallel-rank", "3"},
                                Words{"-dp", "4", "-dpr", "3", "--data-parallel-external-lb"}}) {
    CHECK(FrontendOf(external).data_parallel_size == 1);
    CHECK(FrontendOf(external).data_parallel_start_rank == 3);
    REQUIRE(Engines(external).size() == 1);
    CHECK(ConfigOf(Engines(external)[0]).data_parallel_rank == 3);
    CHECK(ConfigOf(Engines(external)[0]).data_parallel_start_rank == 3);
  }
}

TEST_CASE("engine layout: flags that do not fit together are refused") {
  CHECK(Refusal({"--headless", "-dp", "2"}).starts_with("--headless: where is"));
  CHECK(Refusal({"-dp", "2", "-dpl", "1"}).starts_with("--data-parallel-address: at which"));
  CHECK(Refusal({"-dp", "2", "-dpl", "3"}).starts_with("--data-parallel-size 2 has ranks up to 1"));
  CHECK(Refusal({"--data-parallel-rank", "1"}).starts_with("--data-parallel-size 1 has ranks"));
  CHECK(Refusal({"-dp", "2", "--data-parallel-rank", "1", "-dpl", "2"})
            .starts_with("--data-parallel-size-local: with"));
  CHECK(Refusal({"-dp", "2", "--data-parallel-hybrid-lb"}).starts_with("--data-parallel-size-loc"));
  CHECK(Refusal({"-dp", "2", "-dpn", "0", "-dph"}).starts_with("--data-parallel-hybrid-lb: a ser"));
  CHECK(Refusal({"-dp", "2", "-dpn", "0", "--headless"}).starts_with("--headless: with"));
  CHECK(
      Refusal({"-dp", "2", "-dpa", "h", "--headless", "-dpl", "0"}).starts_with("--data-paralle"));
  CHECK(Refusal({"-dp", "2", "-dpa", "h", "--insecure-tcp", "--data-parallel-lockstep"})
            .starts_with("--data-parallel-lockstep: the engines are vLLM's"));
  CHECK(Refusal({"--handshake-address", "ipc:///x/y"}).starts_with("--handshake-address: this"));
  CHECK(
      Refusal({"-dp", "3", "-dpn", "1", "-dpr", "2"}).starts_with("--data-parallel-start-rank 2"));
  CHECK(Refusal({"--prefill", "1", "--decode", "1", "--data-parallel-lockstep"})
            .starts_with("--data-parallel-lockstep: --prefill and --decode"));
  CHECK(Refusal({"-dp", "2", "--data-parallel-routing", "prefix", "--no-enable-prefix-caching"})
            .starts_with("--no-enable-prefix-caching: --data-parallel-routing prefix"));
}

TEST_CASE("engine layout: flags without effect are named, once for each reason") {
  const auto idle = [](const Words& args) { return IdleFlags(Layout(args), Parse(args)); };
  CHECK(idle({"-dp", "2", "-dpl", "1", "-dpa", "127.0.0.1", "--data-parallel-routing", "prefix"}) ==
        Words());
  CHECK(idle({"--prefill", "1", "--decode", "1", "--prefill-min-tokens", "9"}) == Words());
  CHECK(
      idle({"-dp", "2", "--tcp-keys", "/k", "-dpp", "5"}) ==
      Words{"--data-parallel-rpc-port, --tcp-keys have no effect: all engines of the frontend are "
            "started here"});
  CHECK(idle({"--data-parallel-routing", "load", "--insecure-tcp", "--prefill-min-tokens", "9"}) ==
        Words{"--insecure-tcp has no effect: all engines of the frontend are started here",
              "--data-parallel-routing has no effect: the frontend has one engine",
              "--prefill-min-tokens has no effect: no engine computes prompts for others"});
  const Words headless = {"--headless",     "-dp", "2", "-dpa", "h", "--port", "5",
                          "--max-num-seqs", "9"};
  CHECK(idle(headless) == Words{"--port has no effect: with --headless there is no frontend here"});
}

TEST_CASE("engine layout: CPUs and devices are divided") {
  const auto bound = Engines({"-dp", "2", "-tp", "2", "--cpu-bind", "0|1|2-3|4"});
  CHECK(ConfigOf(bound[0]).cpu_bind == "0|1");
  CHECK(ConfigOf(bound[1]).cpu_bind == "2-3|4");
  const Words uneven = {"-dp", "2", "--cpu-bind", "0|1|2"};
  CHECK(LocalEngines(Layout(uneven), Parse(uneven), nullptr)
            .status()
            .message()
            .starts_with("--cpu-bind 0|1|2: has 3 lists of CPUs, must have one for each of 2"));

  CHECK(Engines({"-dp", "2"})[1].environment.empty());
  CHECK(Engines({"-dp", "2", "--device", "cuda"})[1].environment ==
        Words{"CUDA_VISIBLE_DEVICES=1"});
  CHECK(Engines({"-dp", "2"}, "5,GPU-ab")[1].environment == Words{"CUDA_VISIBLE_DEVICES=GPU-ab"});
  const Words two = {"-dp", "2"};
  CHECK(LocalEngines(Layout(two), Parse(two), "5").status().message() ==
        "CUDA_VISIBLE_DEVICES=5 has 1 devices for 2 engines");
  const Words split = {"-dp", "2", "-tp", "2", "--device", "cuda"};
  CHECK(Engines(split)[1].environment == Words{"CUDA_VISIBLE_DEVICES=2,3"});
  CHECK(Engines(split, "7,6,5,4,3")[1].environment == Words{"CUDA_VISIBLE_DEVICES=5,4"});
  CHECK(LocalEngines(Layout(split), Parse(split), "5,6,7").status().message() ==
        "CUDA_VISIBLE_DEVICES=5,6,7 has 3 devices for 4 ranks of all engines here");
  CHECK(Engines({"-dp", "2", "--device", "cpu"}, "5")[1].environment.empty());
}

TEST_CASE("engine layout: swaps and reloads leave it as it is") {
  FrontendConfig frontend;
  EngineConfig engine;
  frontend.data_parallel_size = 2;
  engine.data_parallel_rank = 1;
  CHECK(CheckSameLayout(FrontendConfig(), FrontendConfig()).ok());
  CHECK_FALSE(CheckSameLayout(FrontendConfig(), frontend).ok());
  CHECK(CheckSameLayout(EngineConfig(), EngineConfig()).ok());
  CHECK_FALSE(CheckSameLayout(EngineConfig(), engine).ok());
}

TEST_CASE("engine layout: prefill apart from decode") {
  const Words args = {"--prefill", "2", "--decode", "1"};
  const EngineLayout layout = Layout(args);
  CHECK(layout.num_engines == 3);
  CHECK(layout.handshake_address.empty());
  const FrontendConfig frontend = FrontendOf(args);
  CHECK(frontend.data_parallel_size == 3);
  CHECK(frontend.prefill_engines == 2);
  const auto engines = Engines(args);
  REQUIRE(engines.size() == 3);
  CHECK(engines[1].name == "prefill engine core 1");
  CHECK(engines[2].name == "decode engine core 2");
  CHECK(ConfigOf(engines[2]).data_parallel_size_local == 3);
  CHECK(KvTransferWord(layout, 1, "/run/x") ==
        R"(--kv-transfer-config={"kv_connector":"TandemConnector","kv_connector_extra_config":)"
        R"({"listen":"unix:/run/x/kv-1"},"kv_load_failure_policy":"recompute",)"
        R"("kv_role":"kv_producer"})");
  CHECK(KvTransferWord(layout, 2, "/run/x") ==
        R"(--kv-transfer-config={"kv_connector":"TandemConnector","kv_connector_extra_config":)"
        R"({"peers":["unix:/run/x/kv-0","unix:/run/x/kv-0-second","unix:/run/x/kv-1",)"
        R"("unix:/run/x/kv-1-second"]},"kv_load_failure_policy":"recompute",)"
        R"("kv_role":"kv_consumer"})");
  CHECK(FrontendOf({}).prefill_engines == 0);
}

TEST_CASE("engine layout: a prefill engine's successor listens where it does not") {
  const Words args = {"--prefill", "2", "--decode", "1"};
  const EngineLayout layout = Layout(args);
  const auto words_of = [&](int index, bool at_second) {
    Words words = Engines(args)[static_cast<size_t>(index)].words;
    words.push_back(KvTransferWord(layout, index, "/run/x", at_second));
    return words;
  };
  const auto successor_of = [&](const Words& words, const Words& more) {
    Words changed = words;
    changed.insert(changed.begin(), more.begin(), more.end());
    return WordsOfSuccessor(layout, words, changed, "/run/x");
  };
  for (const bool at_second : {false, true}) {
    const StatusOr<Words> next = successor_of(words_of(1, at_second), {"--max-num-seqs=5"});
    REQUIRE(next.ok());
    CHECK(next->front() == "--max-num-seqs=5");
    CHECK(next->back() == KvTransferWord(layout, 1, "/run/x", !at_second));
    CHECK(next->size() == words_of(1, at_second).size() + 1);
  }
  const StatusOr<Words> reader = successor_of(words_of(2, false), {});
  REQUIRE(reader.ok());
  CHECK(reader->back() == KvTransferWord(layout, 2, "/run/x"));
  const auto refusal = [&](const Words& more) {
    Words changed = words_of(0, false);
    changed.pop_back();
    changed.push_back(KvTransferWord(layout, 0, "/run/x"));
    for (const std::string& word : more) {
      if (word.starts_with("--kv-transfer-config")) changed.pop_back();
    }
    changed.insert(changed.end(), more.begin(), more.end());
    return std::string(
        WordsOfSuccessor(layout, words_of(0, false), changed, "/run/x").status().message());
  };
  CHECK(refusal({"--kv-transfer-config={}"}).starts_with("--kv-transfer-config: --prefill and"));
  CHECK(refusal({"--kv-offloading-size=1"}).starts_with("--kv-offloading-size: --prefill and"));
  CHECK(refusal({"--no-enable-prefix-caching"}).starts_with("--no-enable-prefix-caching: with"));
  CHECK(refusal({}).empty());
}

TEST_CASE("engine layout: what contradicts --prefill and --decode is refused by name") {
  const Words roles = {"--prefill", "1", "--decode", "1"};
  const auto refusal = [&roles](const Words& more) {
    Words args = roles;
    args.insert(args.end(), more.begin(), more.end());
    return Refusal(args);
  };
  CHECK(Refusal({"--prefill", "1"}).starts_with("--prefill and --decode need each other"));
  CHECK(Refusal({"--decode", "1"}).starts_with("--prefill and --decode need each other"));
  CHECK(refusal({"-dp", "2"}).starts_with("--data-parallel-size:"));
  CHECK(refusal({"--headless"}).starts_with("--headless:"));
  CHECK(refusal({"--data-parallel-rank", "0"}).starts_with("--data-parallel-rank:"));
  CHECK(refusal({"-tp", "2", "-pp", "2"}).empty());
  CHECK(refusal({"--enable-sleep-mode"}).starts_with("--enable-sleep-mode: is not built for the"));
  CHECK(refusal({"--kv-cache-dtype", "fp8"}).empty());
  CHECK(refusal({"--prefill-engines", "1"}).starts_with("--prefill-engines:"));
  CHECK(refusal({"--kv-transfer-config", "{}"}).starts_with("--kv-transfer-config:"));
  CHECK(refusal({"--kv-offloading-size", "1"}).starts_with("--kv-offloading-size:"));
  CHECK(refusal({"--no-enable-prefix-caching"}).starts_with("--no-enable-prefix-caching:"));
  CHECK(refusal({"--data-parallel-routing", "prefix"}).empty());
}

}  // namespace
}  // namespace tandem
