#include "engine_core/config_features.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "common/log.h"
#include "common/strings.h"
#include "engine_core/executor/model_sizes.h"
#include "kernels/backend.h"
#include "kernels/compute_pool.h"

namespace tandem {
namespace {

DraftReport DraftReportOf(std::string_view word) {
  return word == "detailed"  ? DraftReport::kEveryStep
         : word == "summary" ? DraftReport::kSummary
                             : DraftReport::kNone;
}

// What ranks with a device each lack, beside what all ranks do.
Status CheckCudaRanks(const EngineConfig& config, const RankCounts& ranks, bool has_head) {
  const auto refuse = [](const std::string& flag) {
    return InvalidArgumentError(flag + ": is not built for --device cuda, only for cpu");
  };
  if (ranks.pipeline > 1) return refuse("--pipeline-parallel-size above 1");
  if (config.enable_expert_parallel) return refuse("--enable-expert-parallel");
  if (config.enable_prompt_embeds) {
    return refuse("--enable-prompt-embeds with --tensor-parallel-size above 1");
  }
  if (config.enable_lora) return refuse("--enable-lora with --tensor-parallel-size above 1");
  if (has_head) {
    return refuse(
        "--speculative-config with a head over the model's states (eagle, eagle3, mtp, medusa) and "
        "--tensor-parallel-size above 1");
  }
  if (ranks.tensor > kMaxDeviceRanks) {
    return InvalidArgumentError("--tensor-parallel-size " + std::to_string(ranks.tensor) +
                                ": must be at most " + std::to_string(kMaxDeviceRanks) +
                                " with --device cuda");
  }
  return OkStatus();
}

// What has not been built for several ranks is refused by its flag's name.
Status CheckRankFlags(const EngineConfig& config, const EngineSetup& setup) {
  if (setup.device != "cuda") return OkStatus();
  return CheckCudaRanks(config, setup.ranks, setup.runner.speculation.has_head());
}

int NumEnginesOfHost(const EngineConfig& config) {
  return static_cast<int>(std::max<int64_t>(1, config.data_parallel_size_local.value_or(1)));
}

// Whether --limit-mm-per-prompt has no place for an image; its numbers are the frontend's.
StatusOr<bool> ForbidsImages(const std::string& limits) {
  if (limits.empty()) return false;
  const auto json = nlohmann::json::parse(limits, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    return InvalidArgumentError("--limit-mm-per-prompt " + limits + ": must be a JSON object");
  }
  const auto image = json.find("image");
  if (image == json.end()) return false;
  const nlohmann::json& count =
      image->is_object() && image->contains("count") ? image->at("count") : *image;
  return count.is_number_integer() && count == 0;
}

}  // namespace

// What has not been built for layers with a state is refused by its flag's name.
Status CheckRecurrent(const ModelConfig& model, const EngineSetup& setup) {
  if (model.recurrent.num_layers() == 0) return OkStatus();
  if (setup.device == "cuda" && model.recurrent.key_dim > kMaxCudaStateRows) {
    return InvalidArgumentError(
        "--device cuda: is built for recurrent layers whose states have up to " +
        std::to_string(kMaxCudaStateRows) + " rows, those of " + model.architecture + " have " +
        std::to_string(model.recurrent.key_dim) + "; take --device cpu");
  }
  return OkStatus();
}

// The same for formats of keys and values.
Status CheckKvFormat(const EngineConfig& config, const ModelConfig& model,
                     const EngineSetup& setup) {
  const KvFormat format = setup.runner.kv_format;
  if (setup.device != "cuda" || format == KvFormat::kCompute) return OkStatus();
  const std::string flag = "--kv-cache-dtype " + config.kv_cache_dtype;
  if (model.latent.kv_rank > 0) {
    return InvalidArgumentError(flag + ": is not built for latent attention, which " +
                                model.architecture + " has, on --device cuda; leave it out");
  }
  if (format == KvFormat::kInt4) {
    return InvalidArgumentError(flag + ": is not built for --device cuda; take int8 or fp8");
  }
  if (format == KvFormat::kInt8 && model.head_dim % 4 != 0) {
    return InvalidArgumentError(
        flag + ": is built on --device cuda for heads of whole fours of numbers, those of " +
        model.architecture + " have " + std::to_string(model.head_dim) + "; take fp8");
  }
  return OkStatus();
}

// The same for attention over keys that each token chooses.
Status CheckKeyIndex(const EngineConfig& config, const ModelConfig& model,
                     const EngineSetup& setup) {
  if (model.index.dim == 0) return OkStatus();
  const std::string flag = setup.device == "cuda" ? "--device cuda"
                           : setup.runner.kv_format != KvFormat::kCompute
                               ? "--kv-cache-dtype " + config.kv_cache_dtype
                               : "";
  if (flag.empty()) return OkStatus();
  return InvalidArgumentError(flag + ": is not built for sparse attention (index_topk), which " +
                              model.architecture + " has");
}

// The same for layers that differ in their heads.
Status CheckUneven(const EngineConfig& config, const ModelConfig& model, const EngineSetup& setup) {
  if (!model.is_uneven()) return OkStatus();
  const auto refuse = [&](const char* flag, const char* what) {
    return InvalidArgumentError(std::string(flag) + ": is not built for models whose " + what +
                                ", as those of " + model.architecture + " do");
  };
  if (setup.device == "cuda") return refuse("--device cuda", "layers differ in their heads");
  if (config.enable_prompt_embeds && model.uneven.input_size > 0) {
    return refuse("--enable-prompt-embeds", "layers have embeddings of their own");
  }
  return OkStatus();
}

Status SetDrafts(const EngineConfig& config, EngineSetup* setup) {
  ASSIGN_OR_RETURN(setup->runner.speculation, ParseSpeculativeConfig(config.speculative_config));
  SpeculativeConfig& speculation = setup->runner.speculation;
  for (const std::string& key : speculation.keys_without_effect) {
    LOG_WARNING << "--speculative-config: " << key << " has no effect, it is of another method";
  }
  if (speculation.method == DraftMethod::kMtp && speculation.model.empty()) {
    speculation.model = config.model;
  }
  const DraftReport report = DraftReportOf(config.per_request_spec_decode_metrics);
  if (!speculation.drafts()) {
    if (report == DraftReport::kNone) return OkStatus();
    return InvalidArgumentError("--per-request-spec-decode-metrics " +
                                config.per_request_spec_decode_metrics +
                                ": there are no drafts without --speculative-config");
  }
  DraftConfig& drafts = setup->runner.limits.drafts;
  drafts.num_speculative_tokens = speculation.num_speculative_tokens;
  drafts.by_batch = speculation.by_batch;
  drafts.report = report;
  if (speculation.has_model()) {
    drafts.num_lookahead_tokens = speculation.num_speculative_tokens;
    // The token that a model takes in beyond the target's; a head's tokens are the target's.
    drafts.num_input_slots = speculation.has_head() ? 0 : 1;
  }
  if (speculation.reads_next_token() && config.enable_prefix_caching) {
    KvCacheConfig& cache = setup->engine.kv_cache;
    cache.hashes_next_token = speculation.hashes_next_token;
    cache.drops_last_found_block =
        !speculation.hashes_next_token && speculation.drops_last_found_block;
  }
  return OkStatus();
}

Status SetImages(const EngineConfig& config, const ModelConfig& model, EngineSetup* setup) {
  ASSIGN_OR_RETURN(const bool forbids_images, ForbidsImages(config.limit_mm_per_prompt));
  setup->engine.scheduler.needs_whole_images = config.disable_chunked_mm_input;
  if (model.vision.family == VisionFamily::kNone || forbids_images || config.language_model_only) {
    return OkStatus();
  }
  const bool has_ranks = setup->device == "cuda" && config.tensor_parallel_size > 1;
  const char* without = has_ranks ? "--tensor-parallel-size above 1 with --device cuda"
                        : setup->runner.limits.pooling ? "models that pool"
                                                       : nullptr;
  if (without != nullptr) {
    LOG_WARNING << "images are not built for " << without
                << ": the model runs without its vision tower and takes texts alone";
    return OkStatus();
  }
  setup->runner.limits.images = ImageLimitsOf(model.vision);
  return OkStatus();
}

Status SetAdapters(const EngineConfig& config, EngineSetup* setup) {
  if (!config.enable_lora) {
    if (config.max_cpu_loras || config.max_loras != 1 || config.max_lora_rank != "16") {
      LOG_WARNING << "--max-loras, --max-lora-rank and --max-cpu-loras have no effect without "
                     "--enable-lora";
    }
    return OkStatus();
  }
  if (config.lora_dtype != "auto" && config.lora_dtype != DTypeName(setup->backend.dtype)) {
    return InvalidArgumentError("--lora-dtype " + config.lora_dtype + ": must be --dtype, " +
                                std::string(DTypeName(setup->backend.dtype)) + ", or auto");
  }
  const int64_t max_cpu_loras = config.max_cpu_loras.value_or(config.max_loras);
  if (max_cpu_loras < config.max_loras) {
    return InvalidArgumentError("--max-cpu-loras " + std::to_string(max_cpu_loras) +
                                ": must not be below --max-loras " +
                                std::to_string(config.max_loras));
  }
  setup->max_lora_rank = *ParseNumber<int64_t>(config.max_lora_rank);
  setup->engine.scheduler.max_loras = static_cast<int32_t>(config.max_loras);
  setup->engine.max_cpu_loras = static_cast<int32_t>(max_cpu_loras);
  return OkStatus();
}

Status CheckSleepMode(const EngineConfig& config, const EngineSetup& setup) {
  if (!config.enable_sleep_mode) return OkStatus();
  const auto refuse = [](const std::string& beside) {
    return InvalidArgumentError("--enable-sleep-mode: is not built for " + beside);
  };
  if (setup.device == "cuda") return refuse("--device cuda, only for cpu");
  return OkStatus();
}

Status SetRanks(const EngineConfig& config, const ModelConfig& model, EngineSetup* setup) {
  setup->ranks = RankCountsOf(config);
  setup->num_engines_of_host = NumEnginesOfHost(config);
  const RankCounts& ranks = setup->ranks;
  setup->splits_experts = config.enable_expert_parallel;
  if (config.enable_expert_parallel && model.mixture_layers.empty()) {
    return InvalidArgumentError("--enable-expert-parallel: the model has no experts");
  }
  if (config.enable_expert_parallel && ranks.tensor == 1) {
    return InvalidArgumentError(
        "--enable-expert-parallel: needs --tensor-parallel-size above 1, whose ranks share the "
        "experts");
  }
  // Bound to CPUs, a rank has those that it may use; else all share what there is.
  const int num_sharing = ranks.num_ranks() * setup->num_engines_of_host;
  if (config.threads == 0 && config.cpu_bind.empty() && num_sharing > 1) {
    setup->backend.num_threads = std::max(1, NumUsableCpus() / num_sharing);
  }
  if (ranks.num_ranks() == 1) return OkStatus();
  RETURN_IF_ERROR(CheckRankFlags(config, *setup));
  RETURN_IF_ERROR(CheckRanks(model, {.tensor_parallel_size = ranks.tensor,
                                     .pipeline_parallel_size = ranks.pipeline,
                                     .splits_experts = setup->splits_experts}));
  if (ranks.pipeline == 1) return OkStatus();
  setup->runner.limits.max_steps_in_flight = static_cast<size_t>(ranks.pipeline);
  setup->engine.scheduler.num_pipeline_steps = ranks.pipeline;
  // Also with --no-async-scheduling, as in vLLM: as many steps as stages are under way, and no
  // request is in two of them before its token is known.
  setup->engine.async_scheduling = true;
  return OkStatus();
}

// Blocks are copied as keys and values, in host memory. What is not built for that is refused by
// its name.
Status SetKvTransfer(const EngineConfig& config, const ModelConfig& model, EngineSetup* setup) {
  ASSIGN_OR_RETURN(setup->kv_transfer,
                   ParseKvTransferConfig(config.kv_transfer_config, config.kv_offloading_size));
  if (setup->kv_transfer.connector == KvTransferConfig::Connector::kNone) return OkStatus();
  const auto refuse = [&](const std::string& beside) {
    const char* flag =
        config.kv_offloading_size > 0 ? "--kv-offloading-size" : "--kv-transfer-config";
    return InvalidArgumentError(std::string(flag) + ": is not built for " + beside);
  };
  if (setup->device == "cuda") return refuse("--device cuda, only for cpu");
  if (setup->runner.speculation.has_model()) {
    return refuse("a drafter with a model (--speculative-config)");
  }
  if (!setup->engine.kv_cache.enable_prefix_caching) {
    return refuse("an engine without a prefix cache");
  }
  if (model.recurrent.num_layers() > 0) {
    return refuse("models with recurrent layers, which " + model.architecture + " has");
  }
  const bool has_files = setup->kv_transfer.Has(KvTransferConfig::Connector::kExample);
  if (has_files && setup->runner.kv_format != KvFormat::kCompute) {
    return refuse("an ExampleConnector beside --kv-cache-dtype " + config.kv_cache_dtype);
  }
  if (has_files && model.latent.kv_rank > 0) {
    return refuse("an ExampleConnector and latent attention, which " + model.architecture + " has");
  }
  setup->engine.scheduler.kv_load_failure_policy = setup->kv_transfer.load_failure_policy;
  setup->runner.shares_kv_cache = setup->ranks.num_ranks() > 1;
  return OkStatus();
}

namespace {

// Groups of layers would be those of the model.
std::string WhyOneGroup(const EngineConfig& config, const ModelConfig& model,
                        const LayerGroups& groups, const EngineSetup& setup) {
  const auto not_built = [](const std::string& what) {
    return "groups of layers are not built for " + what;
  };
  if (setup.kv_transfer.connector != KvTransferConfig::Connector::kNone) {
    return not_built("KV connectors");
  }
  if (groups.num_full == 0) return {};
  if (config.disable_hybrid_kv_cache_manager) return "--disable-hybrid-kv-cache-manager";
  if (groups.count() > kMostGroups) return "there would be too many groups";
  if (model.is_uneven()) return not_built("layers whose heads differ");
  // A captured step copies tables of all groups, as wide as for the longest request: much in short
  // blocks. Blocks of states are long.
  if (setup.device == "cuda" && !groups.has_states) return not_built("windows with --device cuda");
  return {};
}

}  // namespace

void SetLayerGroups(const EngineConfig& config, const ModelConfig& model, EngineSetup* setup) {
  const LayerGroups groups = LayerGroupsOf(model);
  ExecutorLimits& limits = setup->runner.limits;
  if (groups.num_local == 0 || model.is_bidirectional || groups.reach() >= limits.max_model_len) {
    return;
  }
  if (setup->runner.speculation.has_model()) {
    setup->why_one_group = "a drafter with a model may see more, and take in tokens later";
  } else {
    setup->why_one_group = WhyOneGroup(config, model, groups, *setup);
  }
  if (setup->why_one_group.empty()) limits.groups = groups;
}

}  // namespace tandem
