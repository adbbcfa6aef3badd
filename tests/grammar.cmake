# tandem_test() lines of tests over grammar and the engine's half of it.
if(NOT TANDEM_HAS_XGRAMMAR)
  return()
endif()
tandem_test(unit_grammar LABEL unit
  SRCS unit/grammar/protocol_test.cc
       unit/grammar/schema/json_pattern_test.cc unit/grammar/schema/json_references_test.cc unit/grammar/schema/json_schema_check_test.cc
       unit/grammar/schema/schema_fault_test.cc
       unit/grammar/compiler/spec_rewrites_test.cc
       unit/grammar/compiler/token_matcher_test.cc unit/grammar/compiler/utf8_so_far_test.cc
  DEPS grammar grammar/compiler)
tandem_test(unit_engine_grammar LABEL unit
  SRCS unit/engine_core/grammar/grammar_config_test.cc unit/engine_core/grammar/grammar_service_test.cc unit/engine_core/grammar/mask_places_test.cc
       unit/engine_core/grammar/grammar_spec_test.cc
  DEPS engine_core engine_core/grammar frontend/text tests/support nlohmann_json::nlohmann_json)
add_dependencies(unit_engine_grammar tandem-grammar)
tandem_test(golden_fsm LABEL golden SRCS golden/fsm_test.cc
  DEPS grammar/compiler frontend/text tests/support/files nlohmann_json::nlohmann_json)
tandem_test(property_grammar LABEL property
  SRCS property/grammar_masks_test.cc property/grammar_test.cc property/grammar_text_test.cc
       support/masked_writer.cc
  DEPS grammar/compiler frontend/text tests/support nlohmann_json::nlohmann_json)
