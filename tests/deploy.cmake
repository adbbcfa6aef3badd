# tandem_test() lines of tests over deploy.
tandem_test(unit_deploy LABEL unit
  SRCS unit/deploy/cli/arguments_test.cc unit/deploy/cli/beat_watch_test.cc unit/deploy/cli/command_line_test.cc
       unit/deploy/cli/config_file_test.cc unit/deploy/cli/engine_layout_test.cc
       unit/deploy/cli/environment_test.cc
       unit/deploy/cli/http_client_test.cc unit/deploy/cli/hub_cache_test.cc
       unit/deploy/cli/hub_name_test.cc
       unit/deploy/cli/restart_policy_test.cc unit/deploy/cli/runtime_directory_test.cc unit/deploy/cli/serve_command_line_test.cc
       unit/deploy/cli/sse_parser_test.cc unit/deploy/cli/vllm_flags_test.cc
  DEPS deploy/cli tests/support/files)
tandem_test(unit_top LABEL unit
  SRCS unit/deploy/cli/top/history_test.cc unit/deploy/cli/top/screen_test.cc
       unit/deploy/cli/top/server_state_test.cc
  DEPS deploy/cli/top)
tandem_test(unit_bench LABEL unit
  SRCS unit/deploy/cli/bench/arrivals_test.cc unit/deploy/cli/bench/completion_reader_test.cc
       unit/deploy/cli/bench/prompts_test.cc unit/deploy/cli/bench/random_image_test.cc unit/deploy/cli/bench/request_body_test.cc
       unit/deploy/cli/bench/serve_metrics_test.cc
       unit/deploy/cli/bench/serve_options_test.cc unit/deploy/cli/bench/serve_report_test.cc
  DEPS deploy/cli/bench frontend/web tests/support/files nlohmann_json::nlohmann_json)
tandem_test(unit_deploy_sweep LABEL unit
  SRCS unit/deploy/cli/bench/command_run_test.cc unit/deploy/cli/bench/latency_limits_test.cc
       unit/deploy/cli/bench/load_search_test.cc unit/deploy/cli/bench/svg_chart_test.cc
       unit/deploy/cli/bench/sweep_params_test.cc unit/deploy/cli/bench/sweep_summary_test.cc
  DEPS deploy/cli/bench tests/support/files)
tandem_test(unit_offline LABEL unit SRCS unit/deploy/cli/offline/batch_file_test.cc
  DEPS deploy/cli/offline nlohmann_json::nlohmann_json)
tandem_test(unit_hub LABEL unit
  SRCS unit/deploy/cli/hub/file_choice_test.cc
  DEPS deploy/cli/hub)
