#include "deploy/cli/engine_layout.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "common/strings.h"
#include "deploy/cli/command_line.h"
#include "proto_msgpack/handshake_address.h"

namespace tandem {
namespace {

using Words = std::vector<std::string>;

constexpr const char* kRolesChoose = ": --prefill and --decode choose the KV connector";
constexpr const char* kRolesNeedPrefixes =
    "--no-enable-prefix-caching: with --prefill and --decode KV goes from one prefix cache to "
    "another";

bool IsGiven(const ServeCommandLine& line, const std::string& name) {
  return line.origins.contains(name);
}

Status Refusal(const std::string& text) { return InvalidArgumentError(text); }

// One engine, which something before the servers knows by its rank.
StatusOr<EngineLayout> ExternalLayout(const ServeCommandLine& line) {
  if (line.engine.data_parallel_size_local.value_or(1) != 1) {
    return Refusal(
        "--data-parallel-size-local: with --data-parallel-rank or "
        "--data-parallel-external-lb each command starts one engine");
  }
  const int64_t start_rank = line.engine.data_parallel_start_rank;
  if (IsGiven(line, "data-parallel-rank") && IsGiven(line, "data-parallel-start-rank") &&
      line.engine.data_parallel_rank != start_rank) {
    return Refusal("--data-parallel-start-rank " + std::to_string(start_rank) +
                   ": --data-parallel-rank " + std::to_string(line.engine.data_parallel_rank) +
                   " names this command's engine");
  }
  EngineLayout layout;
  layout.first_rank = static_cast<int>(
      IsGiven(line, "data-parallel-rank") ? line.engine.data_parallel_rank : start_rank);
  layout.start_rank = layout.first_rank;
  return layout;
}

StatusOr<EngineLayout> HybridLayout(const ServeCommandLine& line) {
  if (!line.engine.data_parallel_size_local || *line.engine.data_parallel_size_local == 0) {
    return Refusal("--data-parallel-size-local: how many of the engines are this frontend's?");
  }
  EngineLayout layout;
  layout.num_local = static_cast<int>(*line.engine.data_parallel_size_local);
  layout.num_engines = layout.num_local;
  layout.first_rank = static_cast<int>(line.engine.data_parallel_start_rank);
  layout.start_rank = layout.first_rank;
  return layout;
}

// All engines are one frontend's, which may be elsewhere.
StatusOr<EngineLayout> InternalLayout(const ServeCommandLine& line) {
  const int64_t size = line.frontend.data_parallel_size;
  EngineLayout layout;
  layout.has_frontend = !line.engine.headless;
  layout.num_engines = static_cast<int>(size);
  layout.first_rank = static_cast<int>(line.engine.data_parallel_start_rank);
  layout.num_local =
      static_cast<int>(line.engine.data_parallel_size_local.value_or(size - layout.first_rank));
  const bool has_address = !line.frontend.data_parallel_address.empty();
  if (line.engine.headless && !has_address) {
    return Refusal("--headless: where is the frontend? --data-parallel-address names its host");
  }
  if (line.engine.headless && layout.num_local == 0) {
    return Refusal("--data-parallel-size-local 0: with --headless nothing would be started");
  }
  if (!has_address && layout.num_local < layout.num_engines) {
    return Refusal("--data-parallel-address: at which of this host's addresses do the other " +
                   std::to_string(layout.num_engines - layout.num_local) +
                   " engines meet the frontend?");
  }
  // Engines that are all here need no port.
  if (line.engine.headless || layout.num_local < layout.num_engines) {
    layout.handshake_address =
        wire::TcpAddress(line.frontend.data_parallel_address, line.frontend.data_parallel_rpc_port);
  }
  return layout;
}

// What the connector lacks, by the flag that is given: the engines would name the connector's.
Status CheckConnectorHas(const EngineConfig& config) {
  const std::pair<const char*, bool> lacks[] = {{"enable-sleep-mode", config.enable_sleep_mode},
                                                {"device cuda", config.device == "cuda"}};
  for (const auto& [flag, is_asked] : lacks) {
    if (is_asked) {
      return Refusal("--" + std::string(flag) +
                     ": is not built for the KV connector of --prefill and --decode");
    }
  }
  return OkStatus();
}

// Engines of two roles, all of which are here.
StatusOr<EngineLayout> RolesLayout(const ServeCommandLine& line) {
  if (line.own.prefill == 0 || line.own.decode == 0) {
    return Refusal("--prefill and --decode need each other: how many engines of each?");
  }
  for (const char* flag :
       {"data-parallel-size", "data-parallel-size-local", "data-parallel-rank",
        "data-parallel-start-rank", "data-parallel-address", "data-parallel-rpc-port",
        "data-parallel-external-lb", "data-parallel-hybrid-lb", "data-parallel-lockstep",
        "headless", "prefill-engines"}) {
    if (IsGiven(line, flag)) {
      return Refusal("--" + std::string(flag) +
                     ": --prefill and --decode name all engines, which are on this host");
    }
  }
  for (const char* flag : {"kv-transfer-config", "kv-offloading-size"}) {
    if (IsGiven(line, flag)) {
      return Refusal("--" + std::string(flag) + kRolesChoose);
    }
  }
  if (!line.engine.enable_prefix_caching) {
    return Refusal(kRolesNeedPrefixes);
  }
  RETURN_IF_ERROR(CheckConnectorHas(line.engine));
  EngineLayout layout;
  layout.num_prefill = static_cast<int>(line.own.prefill);
  layout.num_engines = layout.num_prefill + static_cast<int>(line.own.decode);
  layout.num_local = layout.num_engines;
  return layout;
}

// Each engine's CPUs: as many of the lists as it has ranks.
StatusOr<Words> ShareCpus(const EngineConfig& engine, int num_engines) {
  Words shares(static_cast<size_t>(num_engines), engine.cpu_bind);
  if (engine.cpu_bind.empty() || num_engines == 1) return shares;
  const std::vector<std::string_view> lists = Split(engine.cpu_bind, '|');
  const auto num_ranks =
      static_cast<size_t>(engine.tensor_parallel_size * engine.pipeline_parallel_size);
  if (lists.size() != shares.size() * num_ranks) {
    return Refusal("--cpu-bind " + engine.cpu_bind + ": has " + std::to_string(lists.size()) +
                   " lists of CPUs, must have one for each of " +
                   std::to_string(shares.size() * num_ranks) +
                   " ranks of all engines here, separated by |");
  }
  for (size_t i = 0; i < lists.size(); ++i) {
    std::string& share = shares[i / num_ranks];
    if (i % num_ranks == 0) share.clear();
    share += (i % num_ranks == 0 ? "" : "|") + std::string(lists[i]);
  }
  return shares;
}

// The devices of each engine, one for each of its ranks, as CUDA_VISIBLE_DEVICES has them; empty:
// none are chosen for them.
StatusOr<Words> ShareDevices(const EngineConfig& engine, int num_engines,
                             const char* visible_devices) {
  Words shares;
  const bool is_unknown = engine.device != "cuda" && visible_devices == nullptr;
  if (num_engines == 1 || engine.device == "cpu" || is_unknown) return shares;
  const auto num_ranks =
      static_cast<size_t>(engine.tensor_parallel_size * engine.pipeline_parallel_size);
  const size_t wanted = num_ranks * static_cast<size_t>(num_engines);
  Words devices;
  if (visible_devices == nullptr) {
    for (size_t i = 0; i < wanted; ++i) devices.push_back(std::to_string(i));
  } else {
    for (const std::string_view device : Split(visible_devices, ',')) devices.emplace_back(device);
  }
  if (devices.size() < wanted) {
    return Refusal("CUDA_VISIBLE_DEVICES=" + std::string(visible_devices) + " has " +
                   std::to_string(devices.size()) + " devices for " + std::to_string(wanted) +
                   (num_ranks == 1 ? " engines" : " ranks of all engines here"));
  }
  for (size_t i = 0; i < wanted; ++i) {
    if (i % num_ranks == 0) shares.emplace_back();
    shares.back() += (i % num_ranks == 0 ? "" : ",") + devices[i];
  }
  return shares;
}

Status CheckSame(std::string_view flag, bool is_same) {
  if (is_same) return OkStatus();
  return Refusal("--" + std::string(flag) +
                 ": which engines there are, and where they meet the frontend, stays as it is");
}

// Names of the flags that neither engines nor this command read.
Words FrontendsOwnFlags() {
  constexpr std::string_view kOfServe[] = {"data-parallel-size", "engine-hang-timeout"};
  FrontendConfig frontend;
  EngineConfig engine;
  const std::vector<Flag> of_engines = EngineFlags(engine);
  Words names;
  for (const Flag& flag : FrontendFlags(frontend)) {
    const bool is_of_engines =
        std::ranges::find(of_engines, flag.name, &Flag::name) != of_engines.end();
    const bool is_of_serve = std::ranges::find(kOfServe, flag.name) != std::end(kOfServe);
    if (!is_of_engines && !is_of_serve) names.emplace_back(flag.name);
  }
  return names;
}

std::string Given(std::string_view flag, int value) {
  return "--" + std::string(flag) + "=" + std::to_string(value);
}

}  // namespace

StatusOr<EngineLayout> LayoutOf(const ServeCommandLine& line) {
  if (!line.frontend.handshake_address.empty()) {
    return Refusal(
        "--handshake-address: this command chooses it; for a socket of your own start "
        "tandem-frontend and each tandem-engine-core yourself");
  }
  if (line.own.prefill > 0 || line.own.decode > 0) return RolesLayout(line);
  if (line.frontend.data_parallel_lockstep &&
      line.engine.data_parallel_size_local.value_or(1) != 0) {
    return Refusal(
        "--data-parallel-lockstep: the engines are vLLM's and are started elsewhere, so it needs "
        "--data-parallel-size-local 0");
  }
  const bool is_external = line.own.external_lb || IsGiven(line, "data-parallel-rank");
  const bool is_hybrid =
      line.own.hybrid_lb || (!line.engine.headless && line.engine.data_parallel_start_rank > 0);
  if (is_external && line.own.hybrid_lb) {
    return Refusal(
        "--data-parallel-hybrid-lb: a server has one engine with --data-parallel-rank "
        "or --data-parallel-external-lb");
  }
  if (line.engine.headless && (is_external || line.own.hybrid_lb)) {
    return Refusal(
        "--headless: with --data-parallel-rank, --data-parallel-external-lb and "
        "--data-parallel-hybrid-lb each host has a frontend");
  }
  ASSIGN_OR_RETURN(EngineLayout layout, is_external ? ExternalLayout(line)
                                        : is_hybrid ? HybridLayout(line)
                                                    : InternalLayout(line));
  const int64_t size = line.frontend.data_parallel_size;
  if (layout.num_local < 0 || layout.first_rank + layout.num_local > size) {
    return Refusal("--data-parallel-size " + std::to_string(size) + " has ranks up to " +
                   std::to_string(size - 1) + "; this command would start " +
                   std::to_string(layout.num_local) + " from rank " +
                   std::to_string(layout.first_rank) + " on");
  }
  if (layout.has_frontend && layout.num_engines > 1 && !line.engine.enable_prefix_caching &&
      line.frontend.data_parallel_routing == "prefix") {
    return Refusal(
        "--no-enable-prefix-caching: --data-parallel-routing prefix sends requests to the engine "
        "that has their prefix in its cache");
  }
  return layout;
}

Words IdleFlags(const EngineLayout& layout, const ServeCommandLine& line) {
  const struct {
    bool is_so;
    Words flags;
    const char* why;
  } reasons[] = {
      {!layout.has_frontend, FrontendsOwnFlags(), "with --headless there is no frontend here"},
      {layout.handshake_address.empty(),
       {"data-parallel-address", "data-parallel-rpc-port", "tcp-keys", "insecure-tcp"},
       "all engines of the frontend are started here"},
      {layout.has_frontend && layout.num_engines == 1,
       {"data-parallel-routing"},
       "the frontend has one engine"},
      {layout.has_frontend && layout.num_prefill == 0 && line.frontend.prefill_engines == 0,
       {"prefill-min-tokens"},
       "no engine computes prompts for others"}};
  Words sentences;
  for (const auto& [is_so, flags, why] : reasons) {
    std::string names;
    for (const std::string& flag : flags) {
      if (is_so && IsGiven(line, flag)) names += (names.empty() ? "--" : ", --") + flag;
    }
    if (names.empty()) continue;
    const bool is_one = names.find(',') == names.npos;
    sentences.push_back(names + (is_one ? " has" : " have") + " no effect: " + why);
  }
  return sentences;
}

Words FrontendWords(const EngineLayout& layout, const ServeCommandLine& line) {
  FrontendConfig config;
  // Engines that were started elsewhere may have roles that are not given here.
  const int64_t num_prefill =
      layout.num_prefill > 0 ? layout.num_prefill : line.frontend.prefill_engines;
  return ChangedFlags(FrontendFlags(config), line.frontend_words,
                      {Given("data-parallel-size", layout.num_engines),
                       Given("data-parallel-start-rank", layout.start_rank),
                       Given("prefill-engines", num_prefill)});
}

std::string KvTransferWord(const EngineLayout& layout, int engine_index, const std::string& folder,
                           bool at_second_address) {
  nlohmann::json config = {{"kv_connector", "TandemConnector"},
                           {"kv_role", "kv_consumer"},
                           {"kv_load_failure_policy", "recompute"}};
  const auto address_of = [&](int prefill_engine, bool is_second) {
    const std::string address = "unix:" + folder + "/kv-" + std::to_string(prefill_engine);
    return is_second ? address + "-second" : address;
  };
  nlohmann::json& extra = config["kv_connector_extra_config"];
  if (engine_index < layout.num_prefill) {
    config["kv_role"] = "kv_producer";
    extra["listen"] = address_of(engine_index, at_second_address);
  } else {
    for (int i = 0; i < layout.num_prefill; ++i) {
      for (const bool is_second : {false, true}) extra["peers"].push_back(address_of(i, is_second));
    }
  }
  return "--kv-transfer-config=" + config.dump();
}

StatusOr<Words> WordsOfSuccessor(const EngineLayout& layout, const Words& before,
                                 const Words& changed, const std::string& folder) {
  if (layout.num_prefill == 0) return changed;
  EngineConfig config_before, config;
  const std::vector<Flag> flags = EngineFlags(config);
  RETURN_IF_ERROR(ParseFlags(EngineFlags(config_before), before, "").status());
  RETURN_IF_ERROR(ParseFlags(flags, changed, "").status());
  if (config.kv_transfer_config != config_before.kv_transfer_config) {
    return Refusal(std::string("--kv-transfer-config") + kRolesChoose);
  }
  if (config.kv_offloading_size != config_before.kv_offloading_size) {
    return Refusal(std::string("--kv-offloading-size") + kRolesChoose);
  }
  if (!config.enable_prefix_caching) return Refusal(kRolesNeedPrefixes);
  const auto engine_index = static_cast<int>(config.data_parallel_rank);
  const bool was_at_first =
      std::ranges::find(before, KvTransferWord(layout, engine_index, folder)) != before.end();
  return ChangedFlags(flags, changed, {KvTransferWord(layout, engine_index, folder, was_at_first)});
}

StatusOr<std::vector<LocalEngine>> LocalEngines(const EngineLayout& layout,
                                                const ServeCommandLine& line,
                                                const char* visible_devices) {
  ASSIGN_OR_RETURN(const Words cpus, ShareCpus(line.engine, layout.num_local));
  ASSIGN_OR_RETURN(const Words devices,
                   ShareDevices(line.engine, layout.num_local, visible_devices));
  EngineConfig config;
  const std::vector<Flag> flags = EngineFlags(config);
  std::vector<LocalEngine> engines;
  for (int i = 0; i < layout.num_local; ++i) {
    const auto index = static_cast<size_t>(i);
    Words changes = {Given("data-parallel-rank", layout.first_rank + i),
                     Given("data-parallel-start-rank", layout.start_rank),
                     Given("data-parallel-size-local", layout.num_local)};
    if (!cpus[index].empty()) changes.push_back("--cpu-bind=" + cpus[index]);
    LocalEngine& engine = engines.emplace_back();
    engine.name = "engine core";
    if (layout.num_prefill > 0) {
      engine.name = i < layout.num_prefill ? "prefill engine core" : "decode engine core";
    }
    if (layout.num_local > 1) engine.name += " " + std::to_string(layout.first_rank + i);
    engine.words = ChangedFlags(flags, line.engine_words, changes);
    if (!devices.empty()) engine.environment = {"CUDA_VISIBLE_DEVICES=" + devices[index]};
  }
  return engines;
}

Status CheckSameLayout(const FrontendConfig& before, const FrontendConfig& after) {
  RETURN_IF_ERROR(
      CheckSame("handshake-address", before.handshake_address == after.handshake_address));
  RETURN_IF_ERROR(
      CheckSame("data-parallel-size", before.data_parallel_size == after.data_parallel_size));
  RETURN_IF_ERROR(CheckSame("data-parallel-start-rank",
                            before.data_parallel_start_rank == after.data_parallel_start_rank));
  RETURN_IF_ERROR(CheckSame("prefill-engines", before.prefill_engines == after.prefill_engines));
  RETURN_IF_ERROR(CheckSame("data-parallel-address",
                            before.data_parallel_address == after.data_parallel_address));
  return CheckSame("data-parallel-rpc-port",
                   before.data_parallel_rpc_port == after.data_parallel_rpc_port);
}

Status CheckSameLayout(const EngineConfig& before, const EngineConfig& after) {
  RETURN_IF_ERROR(
      CheckSame("handshake-address", before.handshake_address == after.handshake_address));
  RETURN_IF_ERROR(
      CheckSame("data-parallel-rank", before.data_parallel_rank == after.data_parallel_rank));
  RETURN_IF_ERROR(CheckSame("data-parallel-start-rank",
                            before.data_parallel_start_rank == after.data_parallel_start_rank));
  RETURN_IF_ERROR(CheckSame("data-parallel-size-local",
                            before.data_parallel_size_local == after.data_parallel_size_local));
  return CheckSame("data-parallel-address",
                   before.data_parallel_address == after.data_parallel_address);
}

}  // namespace tandem
