#include "deploy/cli/vllm_flags.h"

#include <algorithm>

#include "common/flag_word.h"
#include "common/parse_bool.h"
#include "common/strings.h"

namespace tandem {
namespace {

// clang-format off
constexpr std::string_view kOneDevice = "an engine core computes on the devices, or the CPUs, of one host, by --tensor-parallel-size; --data-parallel-size starts several engine cores";
constexpr std::string_view kNuma = "--cpu-bind binds each rank; numactl, or NUMAPolicy= of the unit, binds a process";
constexpr std::string_view kNoPython = "there is no Python that could import it";
constexpr std::string_view kNoModelCode = "code that comes with a model is never run";
constexpr std::string_view kNoVideo = "video and audio are not served";
constexpr std::string_view kOwnImages = "images are prepared on CPUs by tandem-media, and kept in the frontend's memory";
constexpr std::string_view kOwnTower = "the tower of images is computed as the model is, at once with its steps";
constexpr std::string_view kFloatStates = "states are float32";
constexpr std::string_view kBlockStates = "each block has a state for each recurrent layer, that at its end; --block-size is its length";
constexpr std::string_view kNoCompiler = "kernels are compiled with the program, not when it starts";
constexpr std::string_view kNoOffload = "weights stay in the memory that computes; --quantization makes them smaller";
constexpr std::string_view kOwnLoader = "only the folder's safetensors files are read, mapped and once";
constexpr std::string_view kNoMultiPort = "each command has one port: start one for each rank, with --data-parallel-rank and a --port of its own";
constexpr std::string_view kHttpOnly = "the API is HTTP only";
constexpr std::string_view kOwnKernels = "kernels are chosen by device and data type";
// clang-format on

bool IsHarmless(const VllmFlag& flag, std::string_view value) {
  const std::string lower = ToLower(value);
  const std::vector<std::string_view> values = Split(flag.harmless, ',');
  return std::any_of(values.begin(), values.end(), [&lower](std::string_view harmless) {
    if (ToLower(harmless) == lower && !lower.empty()) return true;
    const std::optional<double> number = ParseNumber<double>(harmless);
    return number && number == ParseNumber<double>(lower);
  });
}

// "true" or "false" of "--x", "--no-x", "--x=0" and "--no-x=1"; another word of "--x=word" as it
// is.
std::string SwitchValue(const VllmFlag& flag, std::string_view argument) {
  const size_t equals = argument.find('=');
  const bool is_twin = WithDashes(argument.substr(0, equals)) == "--no-" + std::string(flag.name);
  const std::string value = equals == argument.npos ? "true" : ToLower(argument.substr(equals + 1));
  const std::optional<bool> is_true = ParseBool(value);
  if (!is_true) return value;
  return *is_true != is_twin ? "true" : "false";
}

}  // namespace

// clang-format off
const std::vector<VllmFlag>& VllmFlags() {
  using enum VllmFlagKind;
  static const std::vector<VllmFlag> flags = {
      {"additional-config", kValue, "{}", "there is no other platform that could read it"},
      {"aggregate-engine-logging", kSwitch, "*", "each engine has its own statistics line"},
      {"all2all-backend", kValue, "*", kOneDevice},
      {"allow-deprecated-quantization", kSwitch, "*", "the methods that are read are named in docs/user/models.md"},
      {"attention-config", kValue, "{}", "--attention-backend chooses the kernels of attention", "ac"},
      {"aux-output-config", kValue, "{}", "routed experts are not reported"},
      {"code-revision", kValue, "*", kNoModelCode},
      {"cohere-format", kValue, "*", "there is no /cohere API"},
      {"cohere-is-reasoning-model", kSwitch, "*", "there is no /cohere API"},
      {"collect-detailed-traces", kList, "*", "spans have the phases of a request; vLLM 0.33 takes the flag and adds nothing to its spans either"},
      {"config-format", kValue, "auto,hf", "config.json of Hugging Face's form is what is read"},
      {"cp-kv-cache-interleave-size", kValue, "*", kOneDevice},
      {"cpu-distributed-timeout-seconds", kValue, "*", kOneDevice},
      {"cpu-offload-gb", kValue, "0", kNoOffload},
      {"cpu-offload-params", kList, "*", kNoOffload},
      {"cudagraph-metrics", kSwitch, "false", "captured steps are not counted"},
      {"data-parallel-backend", kValue, "mp", "engines on other hosts are started there, by commands with --headless", "dpb"},
      {"data-parallel-multi-port-external-lb", kSwitch, "false", kNoMultiPort, "dpm"},
      {"data-parallel-supervisor-port", kValue, "*", kNoMultiPort},
      {"dbo-decode-token-threshold", kValue, "*", kOneDevice},
      {"dbo-prefill-token-threshold", kValue, "*", kOneDevice},
      {"dcp-comm-backend", kValue, "*", kOneDevice},
      {"dcp-kv-cache-interleave-size", kValue, "*", kOneDevice},
      {"dcp-q-replicate", kSwitch, "false", kOneDevice},
      {"decode-context-parallel-size", kValue, "1", kOneDevice, "dcp"},
      {"default-mm-loras", kValue, "{}", "adapters are of the text model"},
      {"device-ids", kValue, "", "CUDA_VISIBLE_DEVICES chooses the GPU"},
      {"diffusion-config", kValue, "{}", "diffusion models are not served", "dc"},
      {"disable-cascade-attn", kSwitch, "*", "there is no cascade attention"},
      {"disable-frontend-multiprocessing", kSwitch, "*", "the frontend is always a process of its own"},
      {"disable-nccl-for-dp-synchronization", kSwitch, "*", kOneDevice},
      {"disable-sliding-window", kSwitch, "false", "a window belongs to the model; --max-model-len limits the context"},
      {"distributed-executor-backend", kValue, "mp,uni", kOneDevice},
      {"distributed-timeout-seconds", kValue, "*", kOneDevice},
      {"dp-supervisor-probe-failure-threshold", kValue, "*", kNoMultiPort},
      {"dp-supervisor-probe-interval-s", kValue, "*", kNoMultiPort},
      {"dp-supervisor-probe-timeout-s", kValue, "*", kNoMultiPort},
      {"dp-sync-interval", kValue, "*", kOneDevice},
      {"ec-manager-config", kValue, "{}", kOwnTower},
      {"ec-transfer-config", kValue, "{}", kOwnTower},
      {"elastic-ep-max-dp-size", kValue, "1", kOneDevice},
      {"enable-batch-sharded-sampling", kSwitch, "*", kOneDevice},
      {"enable-cumem-allocator", kSwitch, "*", "all memory is allocated at the start"},
      {"enable-dbo", kSwitch, "false", kOneDevice},
      {"enable-elastic-ep", kSwitch, "false", kOneDevice},
      {"enable-ep-weight-filter", kSwitch, "*", kOneDevice},
      {"enable-eplb", kSwitch, "false", kOneDevice},
      {"enable-fault-tolerance", kSwitch, "*", "requests survive their engine without it; see --max-engine-restarts-per-request"},
      {"enable-flash-late-interaction", kSwitch, "*", "rows of tokens are compared in the frontend"},
      {"enable-flashinfer-autotune", kSwitch, "*", kNoCompiler},
      {"enable-hc-sp", kSwitch, "false", kOneDevice},
      {"enable-layerwise-nvtx-tracing", kSwitch, "false", "Nsight shows the kernels by their names"},
      {"enable-log-deltas", kSwitch, "*", "outputs are logged once they are whole"},
      {"enable-logging-iteration-details", kSwitch, "false", "--log-level DEBUG has a line for each step"},
      {"enable-mamba-cache-stochastic-rounding", kSwitch, "false", kFloatStates},
      {"enable-mamba-shared-prefix-checkpoint", kSwitch, "*", kBlockStates},
      {"enable-mfu-metrics", kSwitch, "false", "floating-point operations are not counted"},
      {"enable-mixed-moe-lora-format", kSwitch, "false", "adapters have a pair for each expert and projection"},
      {"enable-mm-embeds", kSwitch, "false", "images are taken, their embeddings are not"},
      {"enable-moe-shared-loras", kSwitch, "false", "adapters have a pair for each expert and projection"},
      {"enable-nccl-comm-suspend", kSwitch, "*", "weights stay loaded"},
      {"enable-offline-docs", kSwitch, "*", "/docs needs no outside assets"},
      {"enable-return-routed-experts", kSwitch, "false", "routed experts are not reported"},
      {"enable-scale-out", kSwitch, "*", "its routes are always there"},
      {"enable-shm-tensor-arena", kSwitch, "*", kOneDevice},
      {"enable-ssl-refresh", kSwitch, "*", "certificates are read again on SIGHUP"},
      {"enable-tower-connector-lora", kSwitch, "false", "adapters are of the text model"},
      {"engram-config", kValue, "{}", "models with n-gram memories are not served"},
      {"eplb-config", kValue, "{}", kOneDevice},
      {"expert-placement-strategy", kValue, "linear", kOneDevice},
      {"fault-tolerance-config", kValue, "{}", "see --max-engine-restarts-per-request and --resume-timeout"},
      {"fully-sharded-loras", kSwitch, "*", "adapters are not split"},
      {"gdn-prefill-backend", kValue, "auto", kOwnKernels},
      {"grpc", kSwitch, "false", kHttpOnly},
      {"grpc-port", kValue, "", kHttpOnly},
      {"hf-config-path", kValue, "", "config.json is read from the model's folder; --hf-overrides replaces keys of it"},
      {"ignore-patterns", kList, "*", kOwnLoader},
      {"interleave-mm-strings", kSwitch, "false", "--chat-template-content-format openai gives templates each image in its place"},
      {"io-processor-plugin", kValue, "", kNoPython},
      {"ir-op-priority", kValue, "{}", kNoCompiler},
      {"jit-monitor-mode", kValue, "*", kNoCompiler},
      {"jit-monitor-verbose", kSwitch, "*", kNoCompiler},
      {"kda-decode-backend", kValue, "auto", kOwnKernels},
      {"kda-prefill-backend", kValue, "auto", kOwnKernels},
      {"kernel-config", kValue, "{}", kOwnKernels},
      {"kv-cache-dtype-skip-layers", kList, "", "--kv-cache-dtype is for all layers"},
      {"kv-sharing-fast-prefill", kSwitch, "false", "every layer computes its own keys and values"},
      {"linear-backend", kValue, "auto", kOwnKernels},
      {"log-config-file", kValue, "", "--log-level sets the level, --log-format the form"},
      {"log-error-stack", kSwitch, "*", "an error names its cause; there are no stacks"},
      {"logging-config", kValue, "{}", "--log-level sets the level, --log-format json the form"},
      {"logits-processors", kList, "", kNoPython},
      {"lora-target-modules", kList, "", "an adapter is used whole or refused; remove the modules from its files"},
      {"mamba-backend", kValue, "auto", kOwnKernels},
      {"mamba-block-size", kValue, "", kBlockStates},
      {"mamba-cache-dtype", kValue, "auto,float32", kFloatStates},
      {"mamba-cache-mode", kValue, "align,all", kBlockStates},
      {"mamba-cache-philox-rounds", kValue, "*", kFloatStates},
      {"mamba-ssm-cache-dtype", kValue, "auto,float32", kFloatStates},
      {"mamba-ssu-algorithm", kValue, "auto", kOwnKernels},
      {"master-addr", kValue, "*", kOneDevice},
      {"master-port", kValue, "*", kOneDevice},
      {"max-lora-cls-labels", kValue, "*", "classes of adapters are not built"},
      {"max-parallel-loading-workers", kValue, "*", kOwnLoader},
      {"middleware", kValue, "", "there is no Python that could import it; put a reverse proxy before the server"},
      {"mm-device-do-normalize", kSwitch, "*", kOwnImages},
      {"mm-encoder-attn-backend", kValue, "*", kOwnTower},
      {"mm-encoder-attn-dtype", kValue, "*", kOwnTower},
      {"mm-encoder-fp8-scale-path", kValue, "*", kOwnTower},
      {"mm-encoder-fp8-scale-save-margin", kValue, "*", kOwnTower},
      {"mm-encoder-fp8-scale-save-path", kValue, "*", kOwnTower},
      {"mm-encoder-only", kSwitch, "false", kOwnTower},
      {"mm-encoder-tp-mode", kValue, "*", kOwnTower},
      {"mm-hasher-algorithm", kValue, "*", kOwnImages},
      {"mm-ipc-gpu-memory-gb", kValue, "*", kOwnImages},
      {"mm-processor-cache-type", kValue, "*", kOwnImages},
      {"mm-processor-device", kValue, "*", kOwnImages},
      {"mm-shm-cache-max-object-size-mb", kValue, "*", kOwnImages},
      {"mm-tensor-ipc", kValue, "*", kOwnImages},
      {"model-class-overrides", kValue, "{}", kNoPython},
      {"model-impl", kValue, "auto,vllm", "the models are the ones named in docs/user/models.md"},
      {"model-loader-extra-config", kValue, "{}", kOwnLoader},
      {"moe-backend", kValue, "auto", kOwnKernels},
      {"monokernel", kSwitch, "false", kOwnKernels},
      {"nnodes", kValue, "1", kOneDevice, "n"},
      {"node-rank", kValue, "0", kOneDevice, "r"},
      {"numa-bind", kSwitch, "false", kNuma},
      {"numa-bind-cpus", kList, "", kNuma},
      {"numa-bind-nodes", kList, "", kNuma},
      {"offload-backend", kValue, "auto", kNoOffload},
      {"offload-group-size", kValue, "0", kNoOffload},
      {"offload-num-in-group", kValue, "*", kNoOffload},
      {"offload-params", kList, "*", kNoOffload},
      {"offload-prefetch-step", kValue, "*", kNoOffload},
      {"prefill-context-parallel-size", kValue, "1", kOneDevice, "pcp"},
      {"prefix-cache-retention-interval", kValue, "0", "cached blocks stay until their memory is needed"},
      {"prefix-match-unit", kValue, "", "a prefix hit ends at a whole block; see --block-size"},
      {"profiler-config", kValue, "{}", "perf, gdb and Nsight show what the processes do"},
      {"pt-load-map-location", kValue, "*", kOwnLoader},
      {"quantization-config", kValue, "{}", "the checkpoint's own quantization_config is read; --quantization int8 or int4 quantizes others"},
      {"ray-workers-use-nsight", kSwitch, "false", kOneDevice},
      {"reasoning-parser-plugin", kValue, "", "there is no Python that could import it; the parsers are named in docs/user/models.md"},
      {"replayssm-buffer-len", kValue, "*", kBlockStates},
      {"return-sampling-mask", kSwitch, "false", "sampling masks are not reported"},
      {"safetensors-load-strategy", kValue, "*", kOwnLoader},
      {"safetensors-prefetch-block-size", kValue, "*", kOwnLoader},
      {"safetensors-prefetch-num-threads", kValue, "*", kOwnLoader},
      {"scheduler-cls", kValue, "vllm.v1.core.sched.scheduler.Scheduler", kNoPython},
      {"skip-mm-profiling", kSwitch, "*", "there is no profiling run"},
      {"skip-tokenizer-init", kSwitch, "false", "the server needs the tokenizer; /inference/v1/generate takes and returns token ids"},
      {"sleep-mode-backend", kValue, "*", "memory goes back to the host in one way"},
      {"sleep-mode-offload-cudagraph", kSwitch, "*", "only cuda has graphs, and does not sleep"},
      {"sleep-preserve-parameter-names", kList, "*", "level 1 brings all weights back, level 2 reads all"},
      {"sparse-indexer-topk-backend", kValue, "auto", kOwnKernels},
      {"specialize-active-lora", kSwitch, "*", "a step without adapters costs nothing more anyway"},
      {"swa-bounded-replay", kSwitch, "*", "every block is cached"},
      {"swap-space", kValue, "*", "a preempted request is computed again, nothing is swapped"},
      {"tokenizer-mode", kValue, "auto,hf,slow", "the files of the tokenizer decide how it is read"},
      {"tokens-only", kSwitch, "false", "the text endpoints are always there; a proxy can hide them"},
      {"tool-parser-plugin", kValue, "", "there is no Python that could import it; the parsers are named in docs/user/models.md"},
      {"tool-server", kValue, "", "the server calls no tools"},
      {"trust-remote-code", kSwitch, "*", kNoModelCode},
      {"ubatch-size", kValue, "0", kOneDevice},
      {"use-fp64-gumbel", kSwitch, "*", "draws are counted, not made from Gumbel noise"},
      {"use-replayssm", kSwitch, "false", kBlockStates},
      {"use-tqdm-on-load", kSwitch, "*", "there is no progress bar"},
      {"uvicorn-log-level", kValue, "*", "--log-level sets the level"},
      {"video-pruning-method", kValue, "*", kNoVideo},
      {"video-pruning-rate", kValue, "*", kNoVideo},
      {"watchdog-config", kValue, "{}", "see --engine-hang-timeout and --execute-model-timeout-seconds"},
      {"watermark-config", kValue, "{}", "outputs carry no watermark"},
      {"weight-transfer-config", kValue, "{}", "`tandem swap` replaces the weights of a running server"},
      {"worker-cls", kValue, "auto", kNoPython},
      {"worker-extension-cls", kValue, "", kNoPython},
  };
  return flags;
}
// clang-format on

const VllmFlag* FindVllmFlag(std::string_view argument) {
  const bool is_long = argument.starts_with("--");
  argument.remove_prefix(is_long ? 2 : argument.starts_with("-") ? 1 : 0);
  const std::string name = WithDashes(argument.substr(0, argument.find('=')));
  for (const VllmFlag& flag : VllmFlags()) {
    if (!is_long && !flag.short_name.empty() && flag.short_name == name) return &flag;
    const bool is_twin =
        flag.kind == VllmFlagKind::kSwitch && name == "no-" + std::string(flag.name);
    if (is_long && (flag.name == name || is_twin)) return &flag;
  }
  return nullptr;
}

StatusOr<std::string> JudgeVllmFlag(const VllmFlag& flag, std::string_view argument,
                                    const std::vector<std::string>& values) {
  const std::string name = "--" + std::string(flag.name);
  const std::string note(flag.note);
  if (flag.harmless == "*") return name + " has no effect: " + note;
  std::string value;
  if (flag.kind == VllmFlagKind::kSwitch) {
    value = SwitchValue(flag, argument);
  } else if (const size_t equals = argument.find('='); equals != argument.npos) {
    value = argument.substr(equals + 1);
  }
  for (const std::string& word : values) value += (value.empty() ? "" : " ") + word;
  if (IsHarmless(flag, value)) return name + " " + value + " has no effect: " + note;
  const std::string shown = value == "true" ? "" : " " + value;
  return InvalidArgumentError(name + shown + " cannot be done: " + note);
}

}  // namespace tandem
