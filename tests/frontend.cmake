# tandem_test() lines of tests over frontend.
tandem_test(golden_tokenizers LABEL golden SRCS golden/tokenizers_test.cc golden/gguf_tokenizers_test.cc
  golden/tokenizer_files_test.cc
  DEPS frontend/text tests/support/files tests/support/gzip)
tandem_test(unit_text LABEL unit SRCS
  unit/common/utf8_test.cc unit/frontend/text/characters_test.cc unit/frontend/text/stop_strings_test.cc
  unit/frontend/text/normalizer_test.cc unit/frontend/text/token_models_test.cc
  unit/frontend/text/added_tokens_test.cc unit/frontend/text/decoder_test.cc
  unit/frontend/text/detokenizer_test.cc unit/frontend/text/pretokenizer_test.cc
  unit/frontend/text/gguf_tokenizer_test.cc unit/frontend/text/regex_test.cc unit/frontend/text/tiktoken_file_test.cc
  unit/frontend/text/tokenizer_folder_test.cc unit/frontend/text/tokenizer_test.cc
  DEPS frontend/text tests/support/files)
tandem_test(property_text LABEL property SRCS
  property/stop_strings_test.cc property/bpe_test.cc property/detokenizer_test.cc
  property/tokenizer_file_test.cc property/encoded_text_cache_test.cc
  DEPS frontend/text tests/support/files)
tandem_test(unit_net LABEL unit SRCS unit/frontend/net/net_test.cc unit/frontend/net/send_ring_test.cc DEPS frontend/net
  tests/support/files)
tandem_test(unit_http LABEL unit SRCS
  unit/frontend/http/server_test.cc unit/frontend/http/idle_connections_test.cc
  unit/frontend/http/transport_test.cc
  unit/frontend/http/write_batch_test.cc
  DEPS frontend/http tests/support/files OpenSSL::SSL)
tandem_test(unit_frontend LABEL unit SRCS
  unit/frontend/config_test.cc unit/frontend/open_files_test.cc unit/frontend/api/admission_gate_test.cc
  unit/frontend/api/routes_test.cc
  unit/frontend/api/stored_responses_test.cc
  DEPS frontend frontend/api tests/support/files nlohmann_json::nlohmann_json)
target_include_directories(unit_frontend PRIVATE unit/frontend/http)
target_include_directories(unit_http PRIVATE unit/frontend/http)
tandem_test(unit_adapters LABEL unit SRCS
  unit/frontend/adapters/adapter_directory_test.cc unit/frontend/adapters/adapter_folders_test.cc
  unit/frontend/adapters/adapter_modules_test.cc unit/frontend/adapters/adapter_table_test.cc
  DEPS frontend/adapters tests/support tests/support/files nlohmann_json::nlohmann_json)
tandem_test(golden_lora_api LABEL golden SRCS golden/lora_api_test.cc
  DEPS frontend/api tests/support nlohmann_json::nlohmann_json)
target_include_directories(golden_lora_api PRIVATE unit/frontend/http)
tandem_test(unit_hand_over LABEL unit SRCS unit/frontend/hand_over/hand_over_test.cc unit/frontend/hand_over/probation_link_test.cc
  DEPS frontend/hand_over tests/support/files)
tandem_test(unit_engine_client LABEL unit SRCS
  unit/frontend/engine_client/engine_balancer_test.cc
  unit/frontend/engine_client/engine_client_test.cc
  unit/frontend/engine_client/engine_health_test.cc
  unit/frontend/engine_client/engine_routing_test.cc
  unit/frontend/engine_client/prefill_room_test.cc
  unit/frontend/engine_client/prefills_test.cc
  unit/frontend/engine_client/prefix_index_test.cc
  unit/frontend/engine_client/resumption_test.cc
  unit/frontend/engine_client/running_requests_test.cc
  unit/frontend/engine_client/utility_calls_test.cc
  DEPS frontend/engine_client tests/support)
target_include_directories(unit_engine_client PRIVATE unit/frontend/engine_client)
tandem_test(golden_lb_choices LABEL golden SRCS golden/lb_choices_test.cc
  DEPS frontend/engine_client tests/support/gzip)
tandem_test(unit_metrics LABEL unit SRCS
  unit/frontend/metrics/adapter_info_test.cc unit/frontend/metrics/counts_test.cc
  unit/frontend/metrics/metrics_test.cc unit/frontend/metrics/newest_state_test.cc
  unit/frontend/metrics/sleep_levels_test.cc
  unit/frontend/metrics/timelines_test.cc
  DEPS frontend/metrics tests/support/files)
target_include_directories(unit_metrics PRIVATE unit/frontend/metrics)
# The API without sockets, over the recorded model.
add_library(tandem_tests_support_api STATIC
  support/anthropic_events.cc support/api_model.cc support/response_events.cc)
target_link_libraries(tandem_tests_support_api
  PUBLIC tandem_frontend_api tandem_frontend_anthropic tandem_tests_support nlohmann_json::nlohmann_json)
target_compile_definitions(tandem_tests_support_api PRIVATE TANDEM_GOLDEN_DIR="${CMAKE_SOURCE_DIR}/tests/golden")
tandem_test(golden_api LABEL golden SRCS
  golden/chat_events_test.cc
  golden/api_test.cc golden/messages_test.cc
  golden/tool_validation_test.cc
  DEPS tandem_tests_support_api tests/support/files)
tandem_test(golden_api_events LABEL golden SRCS golden/api_events_test.cc
  DEPS tandem_tests_support_api tests/support/files tests/support/gzip)
tandem_test(unit_openai LABEL unit SRCS
  unit/frontend/openai/chat_request_test.cc
  unit/frontend/openai/json_test.cc unit/frontend/openai/fields_test.cc
  unit/frontend/openai/lax_values_test.cc unit/frontend/openai/template_form_test.cc
  DEPS frontend/openai nlohmann_json::nlohmann_json)
tandem_test(unit_api LABEL unit SRCS
  unit/frontend/api/adapter_requests_test.cc
  unit/frontend/api/decisions_test.cc unit/frontend/api/generative_scoring_test.cc unit/frontend/api/message_events_test.cc unit/frontend/api/render_test.cc
  unit/frontend/api/request_log_test.cc
  unit/frontend/api/response_items_test.cc unit/frontend/api/response_object_test.cc
  unit/frontend/api/token_offsets_test.cc
  unit/frontend/processing/beam_search_test.cc unit/frontend/processing/chat_constraint_test.cc
  unit/frontend/processing/fill_in_middle_test.cc
  unit/frontend/processing/input_processor_test.cc unit/frontend/processing/reasoning_tokens_test.cc
  unit/frontend/processing/message_plan_test.cc unit/frontend/processing/model_defaults_test.cc
  unit/frontend/processing/output_processor_test.cc unit/frontend/processing/torch_tensor_test.cc
  cases/api_cases_test.cc
  DEPS tandem_tests_support_api)
tandem_test(property_api LABEL property SRCS
  property/api_test.cc property/messages_test.cc property/response_items_test.cc
  DEPS tandem_tests_support_api)
tandem_test(golden_chat_templates LABEL golden SRCS golden/chat_templates_test.cc
  DEPS frontend/chat frontend/processing tests/support/gzip)
tandem_test(unit_chat LABEL unit SRCS
  unit/frontend/chat/chat_template_test.cc unit/frontend/chat/named_templates_test.cc
  cases/template_cases_test.cc DEPS frontend/chat)
tandem_test(property_chat LABEL property SRCS property/chat_template_test.cc DEPS frontend/chat)
tandem_test(unit_api_allocations LABEL unit SRCS unit/frontend/api/allocations_test.cc
  DEPS tandem_tests_support_api tests/support/heap)
tandem_test(property_http LABEL property SRCS property/http_request_test.cc DEPS frontend/http)

tandem_test(golden_parsers LABEL golden SRCS golden/parsers_test.cc golden/tool_grammar_test.cc
  DEPS frontend/parsers tests/support/files tests/support/gzip)
tandem_test(unit_parsers LABEL unit SRCS
  unit/frontend/parsers/message_parser_test.cc unit/frontend/parsers/text_source_test.cc unit/frontend/parsers/tool_grammar_test.cc
  unit/frontend/parsers/response_template_test.cc unit/frontend/parsers/tool_formats_test.cc unit/frontend/parsers/whole_formats_test.cc unit/frontend/parsers/tool_set_test.cc
  DEPS frontend/parsers nlohmann_json::nlohmann_json)
tandem_test(property_parsers LABEL property SRCS property/parsers_test.cc
  DEPS frontend/parsers tests/support)
tandem_test(unit_images LABEL unit SRCS
  unit/frontend/media/image_loader_test.cc unit/frontend/media/media_reader_test.cc
  unit/frontend/media/public_address_test.cc unit/frontend/media_flags_test.cc
  unit/frontend/processing/image_prompt_test.cc
  DEPS frontend frontend/media frontend/processing frontend/text tests/support/files
       nlohmann_json::nlohmann_json)
tandem_test(golden_image_prompts LABEL golden SRCS golden/image_prompts_test.cc
  DEPS frontend/processing tests/support/files nlohmann_json::nlohmann_json)
tandem_test(unit_web LABEL unit
  SRCS unit/frontend/web/http_response_test.cc unit/frontend/web/web_url_test.cc
  DEPS frontend/web)
tandem_test(unit_tracing LABEL unit SRCS
  unit/frontend/tracing/otlp_test.cc unit/frontend/tracing/request_trace_test.cc
  unit/frontend/tracing/span_exporter_test.cc unit/frontend/tracing/trace_context_test.cc
  unit/frontend/tracing/trace_options_test.cc
  DEPS frontend/tracing tests/support)
