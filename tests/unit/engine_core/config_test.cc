#include "engine_core/config.h"

#include <cstdlib>
#include <fstream>
#include <memory>

#include "engine_core/models/registry.h"
#include "tests/support/files/temp_folder.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Catch::Matchers::Contains;

ModelConfig SmallModel() {
  ModelConfig model;
  model.architecture = "LlamaForCausalLM";
  model.vocab_size = 500;
  model.max_position_embeddings = 1024;
  model.num_heads = 2;
  model.num_kv_heads = 1;
  return model;
}

EngineConfig ParseOk(const std::vector<std::string>& args) {
  EngineConfig config;
  const auto outcome = ParseFlags(EngineFlags(config), args, "test");
  INFO(outcome.status().ToString());
  REQUIRE(outcome.ok());
  REQUIRE(Finish(config).ok());
  return config;
}

EngineSetup Setup(const std::vector<std::string>& args, const ModelConfig& model = SmallModel()) {
  const auto setup = MakeSetup(ParseOk(args), model);
  INFO(setup.status().ToString());
  REQUIRE(setup.ok());
  return *setup;
}

std::string SetupError(const std::vector<std::string>& args) {
  const auto setup = MakeSetup(ParseOk(args), SmallModel());
  REQUIRE_FALSE(setup.ok());
  return setup.status().message();
}

TEST_CASE("engine config: models that pool on cuda have no graphs, no overlap and one device") {
  const auto setup = [](std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"model", "--device", "cuda", "--convert", "embed"});
    ModelConfig model = SmallModel();
    model.is_bidirectional = true;
    return MakeSetup(ParseOk(flags), model);
  };
  const auto one = setup({});
  INFO(one.status().ToString());
  REQUIRE(one.ok());
  CHECK(one->runner.graph_sizes.empty());
  CHECK_FALSE(one->engine.async_scheduling);
  CHECK(one->attention == AttentionBackend::kTandem);
  CHECK_THAT(setup({"-tp", "2"}).status().message(),
             Contains("--tensor-parallel-size") && Contains("--device cuda"));
}

TEST_CASE("engine config: adapters on the cpu and on cuda") {
  for (const char* device : {"cpu", "cuda"}) {
    const EngineSetup setup = Setup({"model", "--device", device, "--enable-lora", "--max-loras",
                                     "3", "--max-cpu-loras", "5", "--max-lora-rank", "32"});
    CHECK(setup.max_lora_rank == 32);
    CHECK(setup.engine.scheduler.max_loras == 3);
    CHECK(setup.engine.max_cpu_loras == 5);
  }
  CHECK_THAT(SetupError({"model", "--enable-lora", "--max-loras", "3", "--max-cpu-loras", "2"}),
             Contains("--max-cpu-loras 2") && Contains("--max-loras 3"));
  CHECK(Setup({"model"}).max_lora_rank == 0);
}

TEST_CASE("engine config: graphs and asynchronous scheduling are for cuda only") {
  const EngineSetup cuda = Setup({"model", "--device", "cuda", "--max-num-seqs", "5"});
  CHECK(cuda.runner.graph_sizes == std::vector<int64_t>{1, 2, 4, 5, 8});
  CHECK(cuda.engine.async_scheduling);
  const EngineSetup cpu = Setup({"model", "--device", "cpu"});
  CHECK(cpu.runner.graph_sizes.empty());
  CHECK_FALSE(cpu.engine.async_scheduling);
  const EngineSetup eager =
      Setup({"model", "--device", "cuda", "--enforce-eager", "--no-async-scheduling"});
  CHECK(eager.runner.graph_sizes.empty());
  CHECK_FALSE(eager.engine.async_scheduling);
  CHECK(Setup({"model", "--device", "cuda", "--max-cudagraph-capture-size", "2"})
            .runner.graph_sizes == std::vector<int64_t>{1, 2});
  CHECK(Setup({"model", "--device", "cuda", "--cudagraph-capture-sizes", "16", "3"})
            .runner.graph_sizes == std::vector<int64_t>{3, 16});
  CHECK_THAT(SetupError({"model", "--device", "cuda", "--cudagraph-capture-sizes", "few"}),
             Contains("--cudagraph-capture-sizes few"));
}

TEST_CASE("engine config: ranks of a model") {
  ModelConfig model = SmallModel();
  model.num_layers = 4;
  const std::vector<std::string> cpu = {"model", "--device", "cpu"};
  const auto with = [&](std::vector<std::string> flags) {
    flags.insert(flags.begin(), cpu.begin(), cpu.end());
    return MakeSetup(ParseOk(flags), model);
  };
  const EngineSetup one = with({}).value();
  CHECK(one.ranks.num_ranks() == 1);
  CHECK(one.backend.num_threads == 0);
  CHECK(one.engine.scheduler.num_pipeline_steps == 1);
  CHECK_FALSE(one.engine.async_scheduling);

  const EngineSetup two = with({"-tp", "2", "--threads", "3"}).value();
  CHECK(two.ranks.tensor == 2);
  CHECK(two.backend.num_threads == 3);
  CHECK_FALSE(two.engine.async_scheduling);
  CHECK(with({"-tp", "2"})->backend.num_threads >= 1);
  CHECK(with({"-tp", "2", "--cpu-bind", "0|1"})->backend.num_threads == 0);

  const EngineSetup stages = with({"-pp", "4"}).value();
  CHECK(stages.ranks.pipeline == 4);
  CHECK(stages.runner.limits.max_steps_in_flight == 4);
  CHECK(stages.engine.scheduler.num_pipeline_steps == 4);
  CHECK(stages.engine.async_scheduling);
  // As many steps as stages are under way without it, too.
  CHECK(with({"-pp", "4", "--no-async-scheduling"})->engine.scheduler.num_pipeline_steps == 4);
  // States between layers come from the stages before the last.
  CHECK(with({"-pp", "2", "--speculative-config",
              R"({"method": "eagle3", "model": "m", "num_speculative_tokens": 2})"})
            .ok());
}

TEST_CASE("engine config: what is not built for several ranks is refused by name") {
  ModelConfig model = SmallModel();
  model.num_layers = 4;
  const auto refusal = [&](std::vector<std::string> flags) {
    flags.insert(flags.begin(), "model");
    const auto setup = MakeSetup(ParseOk(flags), model);
    REQUIRE_FALSE(setup.ok());
    return setup.status().message();
  };
  CHECK_THAT(refusal({"--device", "cuda", "-tp", "2", "--enable-prompt-embeds"}),
             Contains("--enable-prompt-embeds") && Contains("--device cuda"));
  CHECK_THAT(refusal({"--device", "cuda", "-pp", "2"}), Contains("--pipeline-parallel-size"));
  CHECK_THAT(refusal({"--device", "cpu", "-tp", "4"}), Contains("num_attention_heads"));
  CHECK_THAT(refusal({"--device", "cpu", "-pp", "5"}), Contains("number of layers, which is 4"));
  CHECK(
      MakeSetup(ParseOk({"model", "--device", "cpu", "-pp", "2", "--enable-prompt-embeds"}), model)
          .ok());
  CHECK_THAT(refusal({"--device", "cuda", "-tp", "2", "--enable-lora"}),
             Contains("--enable-lora") && Contains("--device cuda"));
  CHECK_THAT(refusal({"--device", "cuda", "-tp", "2", "--speculative-config",
                      R"({"method": "eagle", "model": "m", "num_speculative_tokens": 2})"}),
             Contains("eagle") && Contains("--device cuda"));
  CHECK_THAT(refusal({"--device", "cpu", "-tp", "2", "-ep"}),
             Contains("--enable-expert-parallel") && Contains("no experts"));
}

TEST_CASE("engine config: what cannot give its memory back is refused beside --enable-sleep-mode") {
  const ModelConfig model = SmallModel();
  const auto with = [&](std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"model", "--enable-sleep-mode"});
    return MakeSetup(ParseOk(flags), model);
  };
  CHECK(with({"--device", "cpu"})->engine.enable_sleep_mode);
  CHECK_THAT(with({"--device", "cuda"}).status().message(),
             Contains("--enable-sleep-mode") && Contains("--device cuda"));
  CHECK(with({"--device", "cpu", "--enable-lora"}).ok());
}

TEST_CASE("engine config: the choice of an instruction set") {
  const auto on_cpu = [](const std::string& name) {
    return MakeSetup(ParseOk({"model", "--device", "cpu", "--cpu-isa", name}), SmallModel());
  };
  CHECK(on_cpu("auto")->backend.isa == CpuIsa::kAuto);
  CHECK(on_cpu("scalar")->backend.isa == CpuIsa::kScalar);
  for (const auto& [name, isa] :
       {std::pair{"amx", CpuIsa::kAmx}, std::pair{"avx512_bf16", CpuIsa::kAvx512Bf16},
        std::pair{"avx2", CpuIsa::kAvx2}}) {
    CAPTURE(name);
    const auto setup = on_cpu(name);
    CHECK(setup.ok() == CpuHasIsa(isa));
    if (setup.ok()) {
      CHECK(setup->backend.isa == isa);
    } else {
      CHECK_THAT(setup.status().message(), Contains("--cpu-isa " + std::string(name)));
    }
  }
  CHECK_THAT(SetupError({"model", "--device", "reference", "--cpu-isa", "scalar"}),
             Contains("--cpu-isa scalar") && Contains("reference"));
}

TEST_CASE("engine config: the choice of attention kernels") {
  ModelConfig model = SmallModel();
  model.head_dim = 128;
  const auto on_cuda = [&](const std::string& name) {
    return MakeSetup(ParseOk({"model", "--device", "cuda", "--attention-backend", name}), model);
  };
  CHECK(on_cuda("tandem")->attention == AttentionBackend::kTandem);
  CHECK((on_cuda("auto")->attention == AttentionBackend::kFlashInfer) == HasFlashInfer());
  CHECK_FALSE(on_cuda("auto")->attention_reason.empty());
  CHECK(on_cuda("FLASHINFER").ok() == HasFlashInfer());
  model.head_dim = 80;
  CHECK(on_cuda("auto")->attention == AttentionBackend::kTandem);
  CHECK_THAT(on_cuda("flashinfer").status().message(), Contains("--attention-backend flashinfer"));
  CHECK_THAT(SetupError({"model", "--device", "cpu", "--attention-backend", "flashinfer"}),
             Contains("--attention-backend flashinfer") && Contains("cpu"));
}

TEST_CASE("engine config: CPU defaults are 2048 tokens and 128 requests a step, blocks of 32") {
  const EngineSetup setup = Setup({"model", "--device", "cpu"});
  CHECK(setup.runner.limits.max_num_batched_tokens == 2048);
  CHECK(setup.runner.limits.max_num_seqs == 128);
  CHECK(setup.runner.limits.block_size == 32);
  CHECK(setup.runner.limits.max_model_len == 1024);
  CHECK(setup.backend.dtype == DType::kBf16);
  CHECK(setup.device == "cpu");
  CHECK(setup.engine.kv_cache.enable_prefix_caching);
  CHECK(setup.engine.scheduler.reserve_full_isl);
}

TEST_CASE("engine config: hash algorithms have vLLM's names and seeds") {
  unsetenv("PYTHONHASHSEED");
  const auto cache_of = [](const std::string& algorithm) {
    return Setup({"model", "--prefix-caching-hash-algo", algorithm}).engine.kv_cache;
  };
  for (const char* sha256 : {"sha256", "sha256_cbor"}) {
    CHECK(cache_of(sha256).hash_algorithm == HashAlgorithm::kSha256Cbor);
    CHECK(cache_of(sha256).hash_seed == "vllm-none-hash");
  }
  for (const char* xxhash : {"xxhash", "xxhash_cbor"}) {
    CHECK(cache_of(xxhash).hash_algorithm == HashAlgorithm::kXxhashCbor);
    CHECK(cache_of(xxhash).hash_seed.size() == 64);
    CHECK(cache_of(xxhash).hash_seed != cache_of(xxhash).hash_seed);
  }
  setenv("PYTHONHASHSEED", "42", 1);
  CHECK(cache_of("sha256_cbor").hash_seed == "42");
  CHECK(cache_of("xxhash_cbor").hash_seed == "42");
  unsetenv("PYTHONHASHSEED");
  CHECK(ParseFlags(EngineFlags(*std::make_unique<EngineConfig>()),
                   {"model", "--prefix-caching-hash-algo", "md5"}, "test")
            .status()
            .code() == StatusCode::kInvalidArgument);
}

// With windows in the first of two layers.
ModelConfig WindowModel() {
  ModelConfig model = SmallModel();
  model.num_layers = 2;
  model.sliding_window = 100;
  model.sliding_layers = {true, false};
  return model;
}

TEST_CASE("engine config: layers that see recent keys alone reach the KV cache") {
  ModelConfig model = WindowModel();
  const auto groups = [&](std::vector<std::string> flags = {}) {
    flags.insert(flags.begin(), "model");
    return Setup(flags, model).runner.limits.groups;
  };
  CHECK(groups() == LayerGroups{.num_full = 1, .num_local = 1, .window = 100});
  CHECK(groups({"--max-model-len", "99"}) == LayerGroups());  // nothing leaves the window
  model.sliding_layers = {true, true};
  CHECK(groups() == LayerGroups::OfWindow(100));
  model.sliding_window = 0;
  CHECK(groups() == LayerGroups());
  model.attention_chunk_size = 64;
  model.rope_layers = {true, false};
  CHECK(groups() == LayerGroups{.num_full = 1, .num_local = 1, .chunk = 64});
}

TEST_CASE("engine config: why all layers share one kind of block") {
  ModelConfig model = WindowModel();
  const auto why = [&](std::vector<std::string> flags = {}) {
    flags.insert(flags.begin(), {"model", "--device"});
    if (flags.size() == 2) flags.emplace_back("cpu");
    const EngineSetup setup = Setup(flags, model);
    CHECK((setup.runner.limits.groups == LayerGroups()) == !setup.why_one_group.empty());
    return setup.why_one_group;
  };
  CHECK(why().empty());
  CHECK(why({"cpu", "--speculative-config", R"({"method": "ngram", "num_speculative_tokens": 3})"})
            .empty());
  CHECK(why({"cpu", "--tensor-parallel-size", "2"}).empty());
  CHECK(why({"cpu", "--pipeline-parallel-size", "2"}).empty());
  CHECK_THAT(why({"cuda"}), Contains("--device cuda"));
  CHECK_THAT(why({"cpu", "--kv-offloading-size", "1"}), Contains("KV connectors"));
  CHECK_THAT(why({"cpu", "--disable-hybrid-kv-cache-manager"}),
             Contains("--disable-hybrid-kv-cache-manager"));
  CHECK_THAT(
      why({"cpu", "--speculative-config", R"({"model": "a/folder", "num_speculative_tokens": 4})"}),
      Contains("a drafter with a model"));
  model.uneven = {.global_head_dim = 16, .num_global_kv_heads = 1};
  CHECK_THAT(why(), Contains("heads differ"));
}

TEST_CASE("engine config: layers with states are groups of their own, in blocks of their size") {
  ModelConfig model = SmallModel();
  model.num_layers = 4;
  model.num_kv_heads = 2;
  model.head_dim = 16;
  model.recurrent.kind = RecurrentKind::kScan;
  model.recurrent.kernel = 4;
  model.recurrent.layers = {true, true, false, true};
  model.recurrent.num_key_heads = model.recurrent.num_value_heads = 4;
  model.recurrent.value_dim = model.recurrent.key_dim = 32;
  const auto limits = [&](std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"model", "--device"});
    return Setup(flags, model).runner.limits;
  };
  CHECK(limits({"cpu"}).groups == LayerGroups::OfStates(1, 3));
  CHECK(limits({"cpu"}).block_size == 160);
  CHECK(limits({"cpu", "--kv-cache-dtype", "int8"}).block_size == 320);
  CHECK(limits({"cpu", "--block-size", "64"}).groups == LayerGroups::OfStates(1, 3));
  CHECK(limits({"cpu", "--block-size", "64"}).block_size == 64);
  CHECK(limits({"cuda"}).groups == LayerGroups::OfStates(1, 3));
  CHECK(limits({"cuda"}).block_size == 160);
  CHECK(limits({"cpu", "--disable-hybrid-kv-cache-manager"}).groups == LayerGroups());
  CHECK(limits({"cpu", "--disable-hybrid-kv-cache-manager"}).block_size == 448);
  // One key-value head, which both ranks have, and half of a state.
  model.num_kv_heads = 1;
  CHECK(limits({"cpu"}).block_size == 320);
  CHECK(limits({"cpu", "--tensor-parallel-size", "2"}).groups == LayerGroups::OfStates(1, 3));
  CHECK(limits({"cpu", "--tensor-parallel-size", "2"}).block_size == 160);
  CHECK(limits({"cpu", "--pipeline-parallel-size", "2"}).block_size == 320);
  model.num_kv_heads = 2;
  model.recurrent.layers.assign(4, true);
  CHECK(limits({"cuda"}).groups == LayerGroups::OfStates(0, 1));
  CHECK(limits({"cuda"}).block_size == 256);
}

TEST_CASE("engine config: what is not built for layers that differ in their heads") {
  ModelConfig model = SmallModel();
  model.architecture = "Gemma4ForCausalLM";
  model.num_layers = 1;
  model.sliding_layers = {false};
  model.uneven = {.global_head_dim = 16, .num_global_kv_heads = 1};
  const auto error = [&](std::vector<std::string> flags) {
    flags.insert(flags.begin(), "model");
    const auto setup = MakeSetup(ParseOk(flags), model);
    return setup.ok() ? std::string() : setup.status().message();
  };
  CHECK(error({"--device", "cpu"}).empty());
  CHECK_THAT(error({"--device", "cuda"}),
             Contains("--device cuda") && Contains("Gemma4ForCausalLM"));
  CHECK(error({"--device", "cpu", "-tp", "2", "--enable-lora"}).empty());
  CHECK(error({"--device", "cpu", "--enable-prompt-embeds"}).empty());
  model.uneven.input_size = 8;
  CHECK_THAT(error({"--device", "cpu", "--enable-prompt-embeds"}),
             Contains("--enable-prompt-embeds"));
}

TEST_CASE("engine config: what is not built for tokens that choose their keys") {
  ModelConfig model = SmallModel();
  model.architecture = "GlmMoeDsaForCausalLM";
  model.index.dim = 16;
  const auto error = [&](const std::string& flag, const std::string& value) {
    const auto setup = MakeSetup(ParseOk({"model", flag, value}), model);
    return setup.ok() ? std::string() : setup.status().message();
  };
  CHECK(error("--device", "cpu").empty());
  CHECK_THAT(error("--device", "cuda"),
             Contains("--device cuda") && Contains("GlmMoeDsaForCausalLM"));
  CHECK_THAT(error("--kv-cache-dtype", "fp8"), Contains("--kv-cache-dtype fp8"));
}

TEST_CASE("engine config: what drafts need, and what needs drafts") {
  ModelConfig model = SmallModel();
  model.num_layers = 2;
  model.sliding_window = 64;
  model.sliding_layers = {true, true};
  const auto setup = [&](const std::string& config, const std::string& report = "none") {
    return Setup({"model", "--device", "cpu", "--speculative-config", config,
                  "--per-request-spec-decode-metrics", report},
                 model);
  };
  const EngineSetup ngram = setup(R"({"method": "ngram", "num_speculative_tokens": 3})", "summary");
  CHECK(ngram.runner.limits.drafts.num_speculative_tokens == 3);
  CHECK(ngram.runner.limits.drafts.num_lookahead_tokens == 0);
  CHECK(ngram.runner.limits.drafts.report == DraftReport::kSummary);
  CHECK(ngram.runner.limits.groups == LayerGroups::OfWindow(64));
  const EngineSetup drafter = setup(R"({"model": "a/folder", "num_speculative_tokens": 4})");
  CHECK(drafter.runner.speculation.model == "a/folder");
  CHECK(drafter.runner.limits.drafts.num_lookahead_tokens == 4);
  CHECK(drafter.runner.limits.drafts.num_input_slots == 1);
  CHECK(drafter.runner.limits.drafts.report == DraftReport::kNone);
  CHECK(drafter.runner.limits.groups == LayerGroups());
  CHECK_FALSE(drafter.engine.kv_cache.hashes_next_token);
  CHECK_THAT(
      SetupError({"model", "--per-request-spec-decode-metrics", "detailed"}),
      Contains("--per-request-spec-decode-metrics detailed") && Contains("--speculative-config"));
  CHECK(Setup({"model", "--device", "cuda", "--speculative-config",
               R"({"method": "ngram", "num_speculative_tokens": 3})"})
            .runner.speculation.drafts());
  CHECK(Setup({"model", "--device", "cuda", "--speculative-config",
               R"({"model": "a/folder", "num_speculative_tokens": 4})"})
            .runner.speculation.has_model());
  // Its layer is in the target's checkpoint, and predicts one token.
  const EngineSetup mtp = setup(R"({"method": "mtp"})");
  CHECK(mtp.runner.speculation.model == "model");
  CHECK(mtp.runner.limits.drafts.num_speculative_tokens == 1);
  CHECK(mtp.runner.limits.drafts.num_input_slots == 0);
  CHECK(mtp.engine.kv_cache.hashes_next_token);
  CHECK_THAT(SetupError({"model", "--device", "cpu", "--speculative-config",
                         R"({"model": "m", "num_speculative_tokens": 4,
                             "parallel_drafting": true})"}),
             Contains("parallel_drafting"));
}

TEST_CASE("engine config: keys of --speculative-config that have no effect are named") {
  const auto keys = [](const std::string& config) {
    return ParseSpeculativeConfig(config).value().keys_without_effect;
  };
  CHECK(
      keys(R"({"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 2})").empty());
  CHECK(keys(R"({"method": "suffix", "suffix_decoding_max_spec_factor": 2})").empty());
  CHECK(keys(R"({"model": "m", "num_speculative_tokens": 3, "max_model_len": 64})").empty());
  CHECK(
      keys(
          R"({"method": "suffix", "prompt_lookup_max": 4, "max_model_len": null, "model": "m"})") ==
      std::vector<std::string>{"model", "prompt_lookup_max"});
  CHECK(keys(R"({"model": "m", "num_speculative_tokens": 3, "suffix_decoding_max_tree_depth": 9,
                 "disable_eagle_block_drop": true})") ==
        std::vector<std::string>{"disable_eagle_block_drop", "suffix_decoding_max_tree_depth"});
  CHECK(keys(R"({"method": "ngram", "num_speculative_tokens": 3, "max_model_len": 64})") ==
        std::vector<std::string>{"max_model_len"});
  CHECK_THAT(SetupError({"model", "--speculative-config",
                         R"({"method": "ngram", "num_speculative_tokens": 3,
                             "disable_by_batch_size": 4})"}),
             Contains("num_speculative_tokens_per_batch_size"));
}

TEST_CASE("engine config: a head drafts the tokens of the target's input, and reads one ahead") {
  const auto setup = [](const std::string& more) {
    return Setup({"model", "--device", "cpu", "--speculative-config",
                  R"({"model": "a/eagle3-head", "num_speculative_tokens": 4)" + more + "}"});
  };
  const EngineSetup head = setup("");
  CHECK(head.runner.speculation.method == DraftMethod::kEagle3);
  CHECK(head.runner.limits.drafts.num_lookahead_tokens == 4);
  CHECK(head.runner.limits.drafts.num_input_slots == 0);
  CHECK(head.runner.limits.groups == LayerGroups());
  CHECK(head.engine.kv_cache.hashes_next_token);
  CHECK_FALSE(head.engine.kv_cache.drops_last_found_block);
  const KvCacheConfig drops = setup(R"(, "disable_lookahead_block_hashes": true)").engine.kv_cache;
  CHECK_FALSE(drops.hashes_next_token);
  CHECK(drops.drops_last_found_block);
  const KvCacheConfig neither =
      setup(R"(, "disable_lookahead_block_hashes": true, "disable_eagle_block_drop": true)")
          .engine.kv_cache;
  CHECK_FALSE(neither.hashes_next_token);
  CHECK_FALSE(neither.drops_last_found_block);
}

TEST_CASE("engine config: logprobs modes have vLLM's names") {
  const auto mode_of = [](const char* word) {
    return Setup({"model", "--logprobs-mode", word}).runner.logprobs_mode;
  };
  CHECK(Setup({"model"}).runner.logprobs_mode == LogprobsMode::kRawLogprobs);
  CHECK(mode_of("raw_logprobs") == LogprobsMode::kRawLogprobs);
  CHECK(mode_of("raw_logits") == LogprobsMode::kRawLogits);
  CHECK(mode_of("processed_logprobs") == LogprobsMode::kProcessedLogprobs);
  CHECK(mode_of("processed_logits") == LogprobsMode::kProcessedLogits);
  EngineConfig config;
  CHECK_FALSE(ParseFlags(EngineFlags(config), {"model", "--logprobs-mode", "all"}, "test").ok());
}

TEST_CASE("engine config: every flag reaches the setting it is for") {
  const EngineSetup setup = Setup({"model",
                                   "--max-model-len",
                                   "512",
                                   "--max_num_seqs=3",
                                   "--max-num-batched-tokens",
                                   "1k",
                                   "--dtype",
                                   "float32",
                                   "--block-size",
                                   "64",
                                   "--no-enable-prefix-caching",
                                   "--watermark",
                                   "0.25",
                                   "--scheduling-policy",
                                   "priority",
                                   "--seed",
                                   "9",
                                   "--max-logprobs",
                                   "-1",
                                   "--threads",
                                   "2",
                                   "--num-gpu-blocks-override",
                                   "77",
                                   "--data-parallel-rank",
                                   "3",
                                   "--long-prefill-token-threshold",
                                   "100"});
  CHECK(setup.runner.limits.max_model_len == 512);
  CHECK(setup.runner.limits.max_num_seqs == 3);
  CHECK(setup.runner.limits.max_num_batched_tokens == 1000);
  CHECK(setup.runner.limits.block_size == 64);
  CHECK(setup.backend.dtype == DType::kF32);
  CHECK(setup.backend.num_threads == 2);
  CHECK_FALSE(setup.engine.kv_cache.enable_prefix_caching);
  CHECK(setup.engine.kv_cache.watermark == 0.25);
  CHECK(setup.engine.scheduler.policy == SchedulingPolicy::kPriority);
  CHECK(setup.engine.scheduler.long_prefill_token_threshold == 100);
  CHECK(setup.engine.engine_index == 3);
  CHECK(setup.runner.process_seed == 9);
  CHECK(setup.runner.max_logprobs == -1);
  CHECK(*setup.kv_cache.num_blocks == 77);
}

TEST_CASE("engine config: the order of requests, and how long a long prompt waits") {
  CHECK(Setup({"model"}).engine.scheduler.policy == SchedulingPolicy::kFcfs);
  const SchedulerConfig shortest = Setup({"model", "--scheduling-policy", "shortest-prompt",
                                          "--longest-prompt-wait", "4", "--max-model-len", "200"})
                                       .engine.scheduler;
  CHECK(shortest.policy == SchedulingPolicy::kShortestPrompt);
  CHECK(shortest.longest_prompt_wait_s == 4);
}

TEST_CASE("engine config: the longest step is a time, a multiple of decode steps, or not limited") {
  const auto limit_of = [](const std::vector<std::string>& flags) {
    return Setup(flags).engine.scheduler.step_time_limit;
  };
  CHECK(limit_of({"model", "--max-step-ms", "0"}).seconds == 0);
  CHECK(limit_of({"model", "--max-step-ms", "12.5"}).seconds == 0.0125);
  const StepTimeLimit by_itself = limit_of({"model", "--max-step-ms", "auto"});
  CHECK(by_itself.seconds == 0.02);
  CHECK(by_itself.decode_steps == 3);
  CHECK(by_itself.most_decode_steps == 25);
  // Also where no flag says so, unless another one bounds steps or nobody waits for tokens.
  CHECK(limit_of({"model", "--device", "cpu"}).most_decode_steps == 25);
  for (const std::vector<std::string>& flags :
       std::vector<std::vector<std::string>>{{"--max-num-batched-tokens", "512"},
                                             {"--max-num-scheduled-tokens", "512"},
                                             {"--long-prefill-token-threshold", "64"},
                                             {"--performance-mode", "throughput"},
                                             {"--offline"},
                                             {"--no-enable-chunked-prefill"}}) {
    INFO(flags.front());
    std::vector<std::string> all = {"model", "--device", "cpu"};
    all.insert(all.end(), flags.begin(), flags.end());
    CHECK_FALSE(limit_of(all).is_on());
  }
  for (const std::string bad : {"soon", "-1", "nan", "1e9", "5ms"}) {
    INFO(bad);
    CHECK_THAT(SetupError({"model", "--max-step-ms=" + bad}), Contains("--max-step-ms"));
  }
  CHECK_THAT(SetupError({"model", "--max-step-ms", "5", "--no-enable-chunked-prefill"}),
             Contains("--max-step-ms"));
  CHECK(limit_of({"model", "--max-step-ms", "auto", "--no-enable-chunked-prefill"}).seconds == 0);
  // Nobody decodes beside whole texts, which no flag has asked for.
  ModelConfig embedder = SmallModel();
  embedder.is_bidirectional = true;
  CHECK_FALSE(Setup({"model", "--convert", "embed", "--max-step-ms", "5"}, embedder)
                  .engine.scheduler.step_time_limit.is_on());
  // Slices of images always have one.
  const auto of_images = [](const std::vector<std::string>& flags) {
    return Setup(flags).engine.scheduler.image_time_limit;
  };
  CHECK(of_images({"model", "--max-step-ms", "12.5"}).seconds == 0.0125);
  CHECK(of_images({"model", "--max-step-ms", "0"}).seconds == 0.02);
  CHECK(of_images({"model", "--max-step-ms", "auto", "--no-enable-chunked-prefill"}).decode_steps ==
        3);
}

TEST_CASE("engine config: a step has no more tokens than its requests can use") {
  const EngineSetup setup = Setup({"model", "--max-num-seqs", "1", "--max-model-len", "100"});
  CHECK(setup.runner.limits.max_num_batched_tokens == 100);
}

TEST_CASE("engine config: without chunked prefill a step holds a whole request") {
  ModelConfig model = SmallModel();
  model.max_position_embeddings = 8192;
  const EngineSetup setup = Setup({"model", "--no-enable-chunked-prefill"}, model);
  CHECK(setup.runner.limits.max_num_batched_tokens == 8192);
  CHECK_THAT(SetupError({"model", "--no-enable-chunked-prefill", "--max-num-batched-tokens", "64"}),
             Contains("without chunked prefill"));
}

TEST_CASE("engine config: rope scaling extends the context") {
  ModelConfig model = SmallModel();
  model.rope.type = RopeType::kLinear;
  model.rope.factor = 4;
  CHECK(Setup({"model"}, model).runner.limits.max_model_len == 4096);
  model.rope.type = RopeType::kYarn;
  model.rope.original_max_position_embeddings = 512;
  CHECK(Setup({"model"}, model).runner.limits.max_model_len == 2048);
  // The context is capped at 2^30 tokens.
  model.rope.factor = 1e300;
  CHECK(Setup({"model"}, model).runner.limits.max_model_len == 1 << 30);
  model.rope.type = RopeType::kLinear;
  CHECK(Setup({"model"}, model).runner.limits.max_model_len == 1 << 30);
  model.rope.type = RopeType::kLlama3;
  CHECK(Setup({"model"}, model).runner.limits.max_model_len == 1024);
  // LongRoPE's longer context costs quality, so it must be asked for.
  model.rope.type = RopeType::kLongRope;
  CHECK(Setup({"model"}, model).runner.limits.max_model_len == 512);
  CHECK(Setup({"model", "--max-model-len", "1024"}, model).runner.limits.max_model_len == 1024);
}

TEST_CASE("engine config: values that do not fit together are refused, and both are named") {
  CHECK_THAT(SetupError({"model", "--max-model-len", "1025"}),
             Contains("--max-model-len 1025") && Contains("1024"));
  CHECK_THAT(SetupError({"model", "--max-model-len", "1"}), Contains("between 2"));
  CHECK_THAT(SetupError({"model", "--max-num-seqs", "64", "--max-num-batched-tokens", "32"}),
             Contains("--max-num-seqs 64") && Contains("32"));
  CHECK_THAT(SetupError({"model", "--block-size", "16"}), Contains("multiple of 32"));
  CHECK_THAT(SetupError({"model", "--long-prefill-token-threshold", "2000"}), Contains("2000"));
  CHECK_THAT(SetupError({"model", "--max-num-active-seqs", "129"}), Contains("129"));
  EngineConfig config;
  CHECK_FALSE(ParseFlags(EngineFlags(config), {"model", "--dtype", "int3"}, "test").ok());
  CHECK_FALSE(ParseFlags(EngineFlags(config), {"model", "--block-size", "0"}, "test").ok());
}

TEST_CASE("engine config: formats of weights and KV cache") {
  const auto plain = Setup({"model"});
  CHECK(plain.formats.layers == WeightFormat::kCompute);
  CHECK(plain.runner.kv_format == KvFormat::kCompute);
  const auto int8 = Setup({"model", "-q", "int8", "--kv-cache-dtype", "int8"});
  CHECK(int8.formats.layers == WeightFormat::kInt8);
  CHECK(int8.formats.embedding == WeightFormat::kInt8);
  CHECK(int8.runner.kv_format == KvFormat::kInt8);
  CHECK(Setup({"model", "--quantization", "int4"}).formats.layers == WeightFormat::kInt4Group32);
  const auto wide = Setup({"model", "--quantization", "int4-g128"});
  CHECK(wide.formats.layers == WeightFormat::kInt4Group128);
  CHECK(wide.formats.embedding == WeightFormat::kInt8);
  CHECK(Setup({"model", "--kv-cache-dtype", "bfloat16"}).runner.kv_format == KvFormat::kCompute);

  EngineConfig config;
  const auto parsed = ParseFlags(EngineFlags(config), {"model", "--quantization", "hqq"}, "test");
  CHECK_THAT(parsed.status().message(), Contains("auto none int8 int4 int4-g32 int4-g128"));
  CHECK(Setup({"model", "--kv-cache-dtype", "int4"}).runner.kv_format == KvFormat::kInt4);
  CHECK(Setup({"model", "--kv-cache-dtype", "fp8"}).runner.kv_format == KvFormat::kFloat8);
  CHECK(Setup({"model", "--kv-cache-dtype", "fp8_e4m3"}).runner.kv_format == KvFormat::kFloat8);
  CHECK_THAT(SetupError({"model", "--kv-cache-dtype", "fp8_e5m2"}),
             Contains("auto int8 int4 fp8 fp8_e4m3 bfloat16"));
  CHECK_THAT(SetupError({"model", "--kv-cache-dtype", "bfloat16", "--dtype", "float32"}),
             Contains("auto int8 int4 fp8 fp8_e4m3 float32"));
}

TEST_CASE("engine config: formats of the KV cache that cuda lacks") {
  const auto error = [](const ModelConfig& model, const std::string& format) {
    const auto setup =
        MakeSetup(ParseOk({"model", "--device", "cuda", "--kv-cache-dtype", format}), model);
    return setup.ok() ? std::string() : setup.status().message();
  };
  ModelConfig model = SmallModel();
  for (const char* format : {"auto", "int8", "fp8"}) CHECK(error(model, format).empty());
  CHECK_THAT(error(model, "int4"), Contains("--kv-cache-dtype int4") && Contains("--device cuda") &&
                                       Contains("take int8 or fp8"));
  model.head_dim = 10;
  CHECK_THAT(error(model, "int8"), Contains("--kv-cache-dtype int8") && Contains("10"));
  CHECK(error(model, "fp8").empty());
  model = SmallModel();
  model.latent.kv_rank = 16;
  for (const char* format : {"int8", "int4", "fp8"}) {
    CHECK_THAT(error(model, format),
               Contains("--kv-cache-dtype " + std::string(format)) && Contains("latent attention"));
  }
}

TEST_CASE("engine config: a missing model and a bad handshake address are refused") {
  EngineConfig config;
  CHECK_THAT(Finish(config).message(), Contains("which model"));
  config.model = "m";
  config.handshake_address = "udp://x";
  CHECK_THAT(Finish(config).message(), Contains("udp://x"));
}

TEST_CASE("engine config: vLLM's address flags give the handshake address") {
  const EngineConfig config = ParseOk({"model", "--data-parallel-address", "10.0.0.1",
                                       "--data-parallel-rpc-port", "4000", "--tcp-keys", "folder"});
  CHECK(config.handshake_address == "tcp://10.0.0.1:4000");
}

TEST_CASE("engine config: max-model-len -1 is what the KV cache holds") {
  EngineSetup setup = Setup({"model", "--max-model-len", "-1", "--num-gpu-blocks-override", "11"});
  CHECK(setup.runner.limits.max_model_len == 1024);
  REQUIRE(SizeKvCache(1 << 20, {.total_bytes = int64_t{1} << 30}, &setup).ok());
  CHECK(setup.runner.limits.num_blocks == 11);
  CHECK(setup.runner.limits.max_model_len == 320);
}

TEST_CASE("engine config: the step timeout by flag, variable and device") {
  CHECK(Setup({"m", "--device", "cpu"}).step_timeout_s == 1800);
  CHECK(Setup({"m", "--device", "cuda"}).step_timeout_s == 300);
  setenv("VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS", "60", 1);
  CHECK(Setup({"m"}).step_timeout_s == 60);
  CHECK(Setup({"m", "--execute-model-timeout-seconds", "0"}).step_timeout_s == 0);
  unsetenv("VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS");
}

TEST_CASE("engine config: every choice of --quantization is a weight format or a checkpoint's") {
  EngineConfig config;
  const std::vector<Flag> flags = EngineFlags(config);
  for (const std::string_view word : FindFlag(flags, "--quantization")->rules.choices) {
    CAPTURE(word);
    const std::vector<std::string> args = {"model", "--quantization", std::string(word)};
    if (!IsMethodName(word)) {
      CHECK((Setup(args).formats.layers == WeightFormat::kCompute) ==
            (word == "none" || word == "auto"));
      continue;
    }
    CHECK_THAT(SetupError(args), Contains("is for a checkpoint that comes quantized"));
    ModelConfig model = SmallModel();
    model.quantization.method = QuantizationMethod::kFp8;
    if (NamesMethod(word, QuantizationMethod::kFp8)) {
      CHECK(Setup(args, model).formats.layers == WeightFormat::kStored);
    } else {
      const auto setup = MakeSetup(ParseOk(args), model);
      CHECK_THAT(setup.status().message(),
                 Contains("specified in the model config (fp8) does not match"));
    }
  }
}

TEST_CASE("engine config: a checkpoint's kv_cache_scheme chooses fp8 where no flag does") {
  const TempFolder folder;
  const auto format_of = [&](const std::string& scheme, std::vector<std::string> flags = {}) {
    std::ofstream(folder.path() + "/config.json")
        << R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 64, "hidden_size": 32,
               "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2,
               "max_position_embeddings": 256,
               "quantization_config": {"quant_method": "compressed-tensors", "format": "dense",
                                       "config_groups": {})"
        << (scheme.empty() ? "" : ", \"kv_cache_scheme\": " + scheme) << "}}";
    const auto model = ReadModelConfig(folder.path());
    INFO(model.status().ToString());
    REQUIRE(model.ok());
    flags.insert(flags.begin(), folder.path());
    return Setup(flags, *model).runner.kv_format;
  };
  const std::string fp8 =
      R"({"type": "float", "num_bits": 8, "symmetric": true, "strategy": "tensor"})";
  CHECK(format_of("") == KvFormat::kCompute);
  CHECK(format_of("null") == KvFormat::kCompute);
  CHECK(format_of(fp8) == KvFormat::kFloat8);
  CHECK(format_of(R"({"type": "float", "num_bits": 8})") == KvFormat::kFloat8);
  // A flag comes first.
  CHECK(format_of(fp8, {"--kv-cache-dtype", "bfloat16"}) == KvFormat::kCompute);
  CHECK(format_of(fp8, {"--kv-cache-dtype", "int8"}) == KvFormat::kInt8);
  CHECK(
      format_of(fp8, {"--hf-overrides", R"({"quantization_config": {"kv_cache_scheme": null}})"}) ==
      KvFormat::kCompute);
  // What is not built is warned of, and changes nothing.
  for (const std::string other :
       {R"({"type": "int", "num_bits": 8})", R"({"type": "float", "num_bits": 4})",
        R"({"type": "float", "num_bits": 8, "symmetric": false})",
        R"({"type": "float", "num_bits": 8, "strategy": "attn_head"})", R"("fp8")"}) {
    INFO(other);
    CHECK(format_of(other) == KvFormat::kCompute);
  }
}

TEST_CASE("engine config: ModelOpt's kv_cache_quant_algo chooses fp8, in either of its files") {
  const TempFolder folder;
  const auto format_of = [&](const std::string& config, const std::string& file) {
    std::ofstream(folder.path() + "/config.json")
        << R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 64, "hidden_size": 32,
               "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2,
               "max_position_embeddings": 256)"
        << config << "}";
    std::ofstream(folder.path() + "/hf_quant_config.json") << file;
    const auto model = ReadModelConfig(folder.path());
    INFO(model.status().ToString());
    REQUIRE(model.ok());
    return Setup({folder.path()}, *model).runner.kv_format;
  };
  const auto file = [](const std::string& algorithm) {
    return R"({"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": )" + algorithm + "}}";
  };
  CHECK(format_of("", file(R"("FP8")")) == KvFormat::kFloat8);
  CHECK(format_of("", file("null")) == KvFormat::kCompute);
  CHECK(format_of("", file(R"("NVFP4")")) == KvFormat::kCompute);  // with a warning
  CHECK(format_of("", file("5")) == KvFormat::kCompute);
  const std::string in_config = R"(, "quantization_config": {"quant_method": "modelopt",
      "quant_algo": "FP8", "kv_cache_quant_algo": )";
  CHECK(format_of(in_config + R"("fp8"})", file("null")) == KvFormat::kFloat8);
  CHECK(format_of(in_config + "null}", file(R"("FP8")")) == KvFormat::kCompute);
}

TEST_CASE("engine config: a quantized checkpoint is kept as it is, but for --quantization none") {
  ModelConfig model = SmallModel();
  model.quantization.method = QuantizationMethod::kGguf;
  CHECK(Setup({"m", "--device", "cpu"}, model).formats.layers == WeightFormat::kStored);
  CHECK(Setup({"m", "--device", "cpu"}, model).formats.embedding == WeightFormat::kStored);
  CHECK(Setup({"m", "--device", "reference"}, model).formats.layers == WeightFormat::kStored);
  CHECK(Setup({"m", "--device", "cuda"}, model).formats.layers == WeightFormat::kStored);
  CHECK(Setup({"m", "-q", "none"}, model).formats.layers == WeightFormat::kCompute);
  CHECK(Setup({"m", "-q", "int8"}, model).formats.layers == WeightFormat::kInt8);
}

TEST_CASE("engine config: a KV connector is refused by name beside what it cannot copy") {
  const std::vector<std::string> offloading = {"model", "--device", "cpu", "--kv-offloading-size",
                                               "0.5"};
  const auto error = [&](const std::vector<std::string>& more, const ModelConfig& model) {
    std::vector<std::string> args = offloading;
    args.insert(args.end(), more.begin(), more.end());
    const auto setup = MakeSetup(ParseOk(args), model);
    return setup.ok() ? "accepted" : setup.status().message();
  };
  CHECK(Setup(offloading).kv_transfer.host_bytes == 512 << 20);
  CHECK(Setup({"model"}).kv_transfer.connector == KvTransferConfig::Connector::kNone);
  CHECK_THAT(error({"--device", "cuda"}, SmallModel()),
             Contains("--kv-offloading-size") && Contains("--device cuda"));
  CHECK(error({"--enable-sleep-mode"}, SmallModel()) == "accepted");
  CHECK_THAT(error({"--no-enable-prefix-caching"}, SmallModel()), Contains("prefix cache"));
  ModelConfig latent = SmallModel();
  latent.architecture = "DeepseekV3ForCausalLM";
  latent.latent.kv_rank = 64;
  CHECK(error({}, latent) == "accepted");
  const auto folder =
      MakeSetup(ParseOk({"model", "--device", "cpu", "--kv-transfer-config",
                         R"({"kv_connector": "ExampleConnector", "kv_role": "kv_both",
                   "kv_connector_extra_config": {"shared_storage_path": "/tmp"}})"}),
                latent);
  CHECK_THAT(folder.status().message(),
             Contains("latent attention, which DeepseekV3ForCausalLM has"));
  ModelConfig recurrent = SmallModel();
  recurrent.architecture = "Mamba2ForCausalLM";
  recurrent.num_layers = 1;
  recurrent.recurrent.layers = {true};
  CHECK_THAT(error({}, recurrent), Contains("recurrent layers, which Mamba2ForCausalLM has"));
}

TEST_CASE("engine config: recurrent layers run on cuda, in longer blocks, up to a number of rows") {
  ModelConfig model = SmallModel();
  model.architecture = "Mamba2ForCausalLM";
  model.num_layers = 2;
  model.recurrent.kind = RecurrentKind::kScan;
  model.recurrent.layers.assign(static_cast<size_t>(model.num_layers), true);
  model.recurrent.kv_layers.assign(static_cast<size_t>(model.num_layers), false);
  model.recurrent.num_key_heads = model.recurrent.num_value_heads = 2;
  model.recurrent.value_dim = 32;
  model.recurrent.key_dim = kMaxCudaStateRows;
  CHECK(Setup({"model", "--device", "cuda"}, model).runner.limits.block_size == 256);
  const std::vector<std::string> drafts = {"--speculative-config",
                                           R"({"method": "ngram", "num_speculative_tokens": 3})"};
  const auto with_drafts = [&](std::vector<std::string> flags) {
    flags.insert(flags.end(), drafts.begin(), drafts.end());
    return MakeSetup(ParseOk(flags), model);
  };
  CHECK(with_drafts({"model", "--device", "cpu"}).ok());
  CHECK(with_drafts({"model", "--device", "cuda"}).ok());
  CHECK(with_drafts({"model", "--device", "cpu", "-pp", "2"}).ok());
  model.recurrent.key_dim = kMaxCudaStateRows + 1;
  CHECK(MakeSetup(ParseOk({"model", "--device", "cpu"}), model).ok());
  CHECK_THAT(MakeSetup(ParseOk({"model", "--device", "cuda"}), model).status().message(),
             Contains("--device cuda") && Contains("257") && Contains("Mamba2ForCausalLM"));
}

TEST_CASE("engine config: a model takes images where its tower is built, unless texts are all") {
  ModelConfig model = SmallModel();
  model.num_layers = 4;
  CHECK_FALSE(Setup({"model", "--device", "cpu"}, model).runner.limits.images);
  model.vision.family = VisionFamily::kQwen3;
  model.vision.image_token_id = 7;
  model.vision.patch_size = 16;
  model.vision.temporal_patch_size = 2;
  model.vision.merge_size = 2;
  const auto takes = [&](std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"model", "--device", "cpu"});
    return Setup(flags, model).runner.limits.images.has_value();
  };
  const EngineSetup setup = Setup({"model", "--device", "cpu"}, model);
  REQUIRE(setup.runner.limits.images);
  CHECK(setup.runner.limits.images->token_id == 7);
  CHECK(setup.runner.limits.images->patch_numbers == 1536);
  CHECK(setup.runner.limits.images->have_positions);
  CHECK_FALSE(setup.runner.limits.images->are_whole);
  CHECK_FALSE(takes({"--language-model-only"}));
  CHECK_FALSE(takes({"--limit-mm-per-prompt", R"({"image": 0})"}));
  CHECK_FALSE(takes({"--limit-mm-per-prompt", R"({"image": {"count": 0}})"}));
  CHECK(takes({"--limit-mm-per-prompt", R"({"image": 2, "video": 0})"}));
  CHECK_THAT(SetupError({"model", "--limit-mm-per-prompt", "none"}), Contains("a JSON object"));
  CHECK(takes({"--pipeline-parallel-size", "2"}));
  CHECK(Setup({"model", "--device", "cuda"}, model).runner.limits.images);
  CHECK_FALSE(Setup({"model", "--device", "cuda", "-tp", "2"}, model).runner.limits.images);
  CHECK_FALSE(setup.engine.scheduler.needs_whole_images);
  CHECK(Setup({"model", "--device", "cpu", "--disable-chunked-mm-input"}, model)
            .engine.scheduler.needs_whole_images);
  model.vision.family = VisionFamily::kSiglip;
  model.vision.image_size = 64;
  model.vision.tokens_per_image = 16;
  const EngineSetup squares = Setup({"model", "--device", "cpu"}, model);
  REQUIRE(squares.runner.limits.images);
  CHECK(squares.runner.limits.images->are_whole);
  CHECK(squares.runner.limits.images->rows_per_image == 16);
  CHECK(squares.runner.limits.images->image_size == 64);
}

TEST_CASE("engine config: a KV cache on the host leaves room for a step") {
  const HostMemory memory = {.total_bytes = int64_t{1} << 30, .available_bytes = int64_t{1} << 30};
  EngineSetup setup = Setup({"model", "--device", "cpu", "--gpu-memory-utilization", "0.5"});
  REQUIRE(SizeKvCache(1 << 20, memory, &setup).ok());
  CHECK(setup.runner.limits.num_blocks == 512);
  setup.memory_plan =
      MemoryPlan{.activations = 100 << 20, .logits = 8 << 20, .token_counts = 4 << 20};
  REQUIRE(SizeKvCache(1 << 20, memory, &setup).ok());
  CHECK(setup.runner.limits.num_blocks == 400);
  setup.memory_plan->is_device = true;  // a step has run there
  REQUIRE(SizeKvCache(1 << 20, memory, &setup).ok());
  CHECK(setup.runner.limits.num_blocks == 512);
}

TEST_CASE("engine config: VLLM_CPU_KVCACHE_SPACE is in GiB, and the flag overrides it") {
  setenv("VLLM_CPU_KVCACHE_SPACE", "2", 1);
  CHECK(*ParseOk({"model"}).kv_cache_memory_bytes == int64_t{2} << 30);
  CHECK(*ParseOk({"model", "--kv-cache-memory-bytes", "5M"}).kv_cache_memory_bytes == 5 << 20);
  setenv("VLLM_CPU_KVCACHE_SPACE", "lots", 1);
  EngineConfig config;
  config.model = "m";
  CHECK_THAT(Finish(config).message(), Contains("VLLM_CPU_KVCACHE_SPACE is lots"));
  unsetenv("VLLM_CPU_KVCACHE_SPACE");
}

}  // namespace
}  // namespace tandem
