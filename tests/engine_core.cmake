# tandem_test() lines of tests over engine_core.
tandem_test(unit_weights LABEL unit
  SRCS unit/engine_core/weights/dummy_weights_test.cc unit/engine_core/weights/loading_progress_test.cc unit/engine_core/weights/safetensors_test.cc unit/engine_core/weights/stored_matrix_test.cc
       unit/engine_core/weights/model_config_test.cc unit/engine_core/weights/quantized_test.cc
       unit/engine_core/weights/spell_keys_test.cc unit/engine_core/weights/gguf_layers_test.cc
  DEPS engine_core/models engine_core/weights tests/support/files nlohmann_json::nlohmann_json)
tandem_test(unit_sampling LABEL unit
  SRCS unit/engine_core/sampling/sampler_test.cc unit/engine_core/sampling/distribution_test.cc
       unit/engine_core/sampling/golden_test.cc support/sampling_goldens.cc
  DEPS engine_core/sampling tests/support nlohmann_json::nlohmann_json)
tandem_test(property_device_sampler LABEL property
  SRCS property/device_sampler_test.cc property/token_mask_test.cc support/sampler_rows.cc
       support/sampling_goldens.cc
  DEPS tandem_emulated_cuda tests/support/cuda_emulation tests/support/kernels
       engine_core/executor tests/support nlohmann_json::nlohmann_json)
find_package(ZLIB REQUIRED)

tandem_test(unit_kv_cache LABEL unit
  SRCS unit/engine_core/kv_cache/block_hash_test.cc unit/engine_core/kv_cache/block_pool_test.cc
       unit/engine_core/kv_cache/block_residency_test.cc
       unit/engine_core/kv_cache/kv_cache_manager_test.cc
  DEPS engine_core/kv_cache)
tandem_test(property_kv_cache LABEL property
  SRCS property/block_pool_test.cc property/sliding_window_test.cc
  DEPS engine_core/kv_cache)
tandem_test(unit_scheduler LABEL unit
  SRCS unit/engine_core/scheduler/request_queue_test.cc
       unit/engine_core/scheduler/async_test.cc unit/engine_core/scheduler/draft_tokens_test.cc
       unit/engine_core/scheduler/encoder_cache_test.cc
       unit/engine_core/scheduler/forced_tokens_test.cc unit/engine_core/scheduler/outside_test.cc
       unit/engine_core/scheduler/prefill_pace_test.cc
       unit/engine_core/scheduler/scheduler_test.cc
       unit/engine_core/scheduler/shortest_prompt_test.cc
       unit/engine_core/scheduler/stop_check_test.cc unit/engine_core/scheduler/thinking_test.cc
  DEPS engine_core/scheduler tests/support)
module(tests/support/traces SRCS recorded_connector.cc scheduler_traces.cc
  DEPS engine_core/scheduler tests/support/gzip ZLIB::ZLIB nlohmann_json::nlohmann_json Catch2::Catch2)
tandem_test(golden_scheduler LABEL golden SRCS golden/scheduler/trace_replay_test.cc
  DEPS tests/support/files tests/support/traces)
# The simulator's own sources are optimised in every build: it runs thousands of worlds.
module(tests/simulation
  SRCS decode_load.cc frontends.cc invariants.cc kv_event_shadow.cc scenario.cc sim_connector.cc sim_executor.cc
       simulation.cc
  DEPS engine_core)
target_compile_options(tandem_tests_simulation PRIVATE -O2)
set_target_properties(tandem_tests_simulation PROPERTIES DISABLE_PRECOMPILE_HEADERS ON)
tandem_test(simulation LABEL simulation SRCS simulation/simulation_test.cc
  DEPS tests/simulation tests/support)
tandem_test(unit_engine_core LABEL unit
  SRCS unit/engine_core/engine_core_test.cc unit/engine_core/engine_adapters_test.cc unit/engine_core/kv_event_batch_test.cc
       unit/engine_core/read_embeddings_test.cc unit/engine_core/read_images_test.cc unit/engine_core/request_check_test.cc
       unit/engine_core/tokenizer_hash_test.cc unit/engine_core/watchdog_test.cc
  DEPS tests/simulation tests/support/files engine_core proto_msgpack)
tandem_test(unit_kv_connectors LABEL unit
  SRCS unit/engine_core/kv_transfer/kv_transfer_config_test.cc unit/engine_core/kv_transfer/example_connector_test.cc
       unit/engine_core/kv_transfer/block_folder_test.cc unit/engine_core/kv_transfer/file_tier_test.cc
       unit/engine_core/kv_transfer/model_fingerprint_test.cc unit/engine_core/kv_transfer/offloading_connector_test.cc
       unit/engine_core/kv_transfer/prefix_folder_test.cc unit/engine_core/kv_transfer/tandem_connector_test.cc
       unit/engine_core/kv_transfer/transferring_executor_test.cc
       unit/kernels/kv_rows_test.cc
  DEPS engine_core/kv_transfer engine_core/kv_remote engine_core/scheduler kernels proto_msgpack tests/support tests/support/files tests/support/kernels
       tests/support/kv_remote
       nlohmann_json::nlohmann_json)
tandem_test(unit_kv_remote LABEL unit
  SRCS unit/engine_core/kv_remote/holder_test.cc unit/engine_core/kv_remote/reader_test.cc
       unit/engine_core/kv_remote/wire_test.cc
  DEPS engine_core/kv_remote kernels tests/support tests/support/files tests/support/kv_remote)
tandem_test(unit_recorder LABEL unit SRCS unit/engine_core/recorder/flight_ring_test.cc
  DEPS engine_core/recorder tests/support/files)
tandem_test(unit_replay LABEL unit SRCS unit/engine_core/replay_test.cc
  DEPS tests/simulation tests/support/files engine_core proto_msgpack)
tandem_test(unit_allocations LABEL unit SRCS unit/engine_core/scheduler/allocations_test.cc
  DEPS tests/simulation tests/support/heap)
module(tests/support/engine SRCS engine_driver.cc golden_logits.cc golden_pooling.cc greedy_text.cc made_weights.cc
  DEPS engine_core/adapters engine_core/executor engine_core/scheduler engine_core/weights kernels proto_msgpack
       tests/support tests/support/files tests/support/gzip tests/support/kernels nlohmann_json::nlohmann_json Catch2::Catch2)
tandem_test(golden_models LABEL golden
  SRCS golden/models_test.cc
  DEPS engine_core/executor engine_core/scheduler tests/support tests/support/engine tests/support/files tests/support/gzip tests/support/kernels nlohmann_json::nlohmann_json)
tandem_test(golden_made_models LABEL golden
  SRCS golden/made_models_test.cc
  DEPS engine_core/executor engine_core/scheduler tests/support tests/support/engine tests/support/files tests/support/gzip tests/support/kernels nlohmann_json::nlohmann_json)
tandem_test(golden_pooling LABEL golden
  SRCS golden/pooling_test.cc
  DEPS engine_core/executor engine_core/scheduler tests/support tests/support/engine tests/support/files tests/support/kernels nlohmann_json::nlohmann_json)
tandem_test(golden_vision LABEL golden
  SRCS golden/vision_engine_test.cc golden/vision_test.cc
       support/vision_cases.cc support/vision_images.cc
  DEPS engine_core engine_core/executor engine_core/scheduler tests/support tests/support/engine tests/support/files tests/support/kernels nlohmann_json::nlohmann_json)
tandem_test(golden_lora LABEL golden
  SRCS golden/lora_test.cc
  DEPS engine_core/adapters engine_core/executor engine_core/scheduler tests/support tests/support/engine tests/support/files
       tests/support/kernels nlohmann_json::nlohmann_json)
tandem_test(golden_ranks LABEL golden
  SRCS golden/ranks_test.cc
  DEPS engine_core/executor engine_core/scheduler tests/support tests/support/engine tests/support/files tests/support/kernels nlohmann_json::nlohmann_json)
tandem_test(golden_quantized LABEL golden
  SRCS golden/quantized_test.cc
  DEPS engine_core/executor engine_core/scheduler engine_core/weights tests/support tests/support/engine tests/support/files
       tests/support/gzip tests/support/kernels OpenSSL::Crypto nlohmann_json::nlohmann_json)
tandem_test(golden_gguf_twins LABEL golden
  SRCS golden/gguf_twins_test.cc
  DEPS engine_core/executor engine_core/scheduler engine_core/weights tests/support tests/support/engine tests/support/files
       tests/support/kernels nlohmann_json::nlohmann_json)
tandem_test(golden_emulated_cuda LABEL golden
  SRCS golden/emulated_cuda_test.cc golden/emulated_adapters_test.cc golden/emulated_drafts_test.cc golden/emulated_quantized_test.cc golden/emulated_states_test.cc
       golden/emulated_pooling_test.cc golden/emulated_vision_test.cc support/made_towers.cc support/vision_cases.cc support/vision_images.cc
  DEPS tandem_emulated_cuda tests/support/cuda_emulation engine_core engine_core/adapters engine_core/executor engine_core/scheduler
       tests/support tests/support/engine tests/support/files tests/support/kernels nlohmann_json::nlohmann_json)
tandem_test(golden_emulated_ranks LABEL golden
  SRCS golden/emulated_ranks_test.cc unit/kernels/cuda/cuda_exchange_test.cc
  DEPS tandem_emulated_cuda tests/support/cuda_emulation engine_core/executor engine_core/scheduler
       tests/support tests/support/engine tests/support/files nlohmann_json::nlohmann_json)
target_include_directories(golden_emulated_ranks PRIVATE ${CMAKE_SOURCE_DIR})
target_compile_definitions(golden_emulated_ranks PRIVATE TANDEM_FAKE_NCCL="$<TARGET_FILE:fake_nccl>")
add_dependencies(golden_emulated_ranks fake_nccl)
tandem_test(property_cuda_models LABEL property
  SRCS property/cuda_models_test.cc
  DEPS tandem_emulated_cuda tests/support/cuda_emulation engine_core/executor engine_core/scheduler
       tests/support tests/support/engine tests/support/files)
tandem_test(property_batch_invariance LABEL property
  SRCS property/batch_invariance_test.cc
  DEPS engine_core/executor engine_core/scheduler tests/support tests/support/engine tests/support/files tests/support/gzip nlohmann_json::nlohmann_json)
tandem_test(property_adapters LABEL property
  SRCS property/adapters_test.cc
  DEPS engine_core/adapters engine_core/executor engine_core/scheduler tests/support tests/support/engine tests/support/files)
tandem_test(unit_engine_adapters LABEL unit
  SRCS unit/engine_core/adapters/adapter_config_test.cc unit/engine_core/adapters/adapter_reader_test.cc
       unit/engine_core/adapters/module_pattern_test.cc
  DEPS engine_core/adapters tests/support/files)
tandem_test(unit_speculation LABEL unit
  SRCS unit/engine_core/speculation/draft_policy_test.cc
       unit/engine_core/speculation/ngram_index_test.cc
  DEPS engine_core/speculation tests/support)
tandem_test(golden_speculative LABEL golden SRCS golden/speculative_test.cc
  DEPS engine_core/executor engine_core/scheduler engine_core/speculation tests/support tests/support/engine tests/support/files
       tests/support/gzip nlohmann_json::nlohmann_json)
tandem_test(property_speculation LABEL property
  SRCS property/speculation_test.cc
  DEPS engine_core/executor engine_core/scheduler tests/support tests/support/engine tests/support/files tests/support/gzip nlohmann_json::nlohmann_json)
tandem_test(property_resume LABEL property
  SRCS property/resume_test.cc
  DEPS engine_core/executor engine_core/scheduler tests/support tests/support/engine)
tandem_test(unit_executor LABEL unit
  SRCS unit/engine_core/executor/adapter_places_test.cc unit/engine_core/executor/pooler_head_test.cc
       unit/engine_core/executor/resolve_sampling_test.cc
       unit/engine_core/executor/cgroup_memory_test.cc
       unit/engine_core/executor/graph_sizes_test.cc
       unit/engine_core/executor/step_images_test.cc
       unit/engine_core/executor/kv_cache_size_test.cc
       unit/engine_core/executor/memory_plan_test.cc
       unit/engine_core/executor/model_sizes_test.cc
       unit/engine_core/executor/model_runner_test.cc
       unit/engine_core/executor/prompt_scores_test.cc
       unit/engine_core/executor/rank_group_test.cc
       unit/engine_core/executor/step_inputs_test.cc
       unit/engine_core/executor/step_layout_test.cc
       unit/engine_core/executor/standstill_test.cc
       unit/engine_core/executor/step_watch_test.cc
       unit/engine_core/executor/watched_executor_test.cc
  DEPS tandem_emulated_cuda tests/support/cuda_emulation engine_core/executor engine_core/scheduler
       tests/support tests/support/engine tests/support/files)
tandem_test(unit_workers LABEL unit SRCS unit/engine_core/workers/cpu_bind_test.cc unit/engine_core/workers/worker_socket_test.cc
  DEPS engine_core/workers)
tandem_test(unit_models LABEL unit 
  SRCS unit/engine_core/models/models_test.cc unit/engine_core/models/registry_test.cc unit/engine_core/models/rotation_test.cc
       unit/engine_core/models/rank_share_test.cc unit/engine_core/models/layers_test.cc
       unit/engine_core/models/eagle_head_test.cc unit/engine_core/models/medusa_heads_test.cc
       unit/engine_core/models/mtp_head_test.cc
  DEPS engine_core/models engine_core/weights tests/support/files tests/support/kernels nlohmann_json::nlohmann_json)
tandem_test(unit_vision LABEL unit
  SRCS unit/engine_core/models/vision_parts_test.cc unit/engine_core/models/vision_tower_test.cc
       unit/engine_core/weights/vision_config_test.cc support/made_towers.cc
  DEPS engine_core/models engine_core/weights tests/support tests/support/kernels nlohmann_json::nlohmann_json)
if(NOT TANDEM_SANITIZER)  # it measures resident memory
  tandem_test(unit_load_memory LABEL unit SRCS unit/engine_core/models/load_memory_test.cc
    DEPS engine_core/models engine_core/weights tests/support/files nlohmann_json::nlohmann_json)
endif()
tandem_test(unit_engine_config LABEL unit SRCS unit/engine_core/batch_defaults_test.cc
  unit/engine_core/compilation_config_test.cc unit/engine_core/config_test.cc DEPS engine_core tests/support/files)
tandem_test(unit_runner_allocations LABEL unit
  SRCS unit/engine_core/executor/allocations_test.cc
  DEPS engine_core/executor engine_core/scheduler tests/support tests/support/engine tests/support/files tests/support/heap)
tandem_test(integration_engine_process LABEL integration SRCS integration/engine_process_test.cc
  DEPS common tests/support/files)
add_dependencies(integration_engine_process tandem-engine-core)
tandem_test(golden_packed LABEL golden
  SRCS golden/packed_test.cc
  DEPS engine_core/executor engine_core/scheduler tests/support tests/support/engine tests/support/files tests/support/kernels nlohmann_json::nlohmann_json)
