# Fuzz targets: what parses bytes of strangers. With TANDEM_FUZZ (preset fuzz, clang) they are all
# that is built and libFuzzer drives them (tests/fuzz/run.sh); otherwise each runs over its corpus, and
# for 5 s over inputs of a new seed.
module(tests/fuzz DEPS common)

# fuzz_target(<name> DEPS …): tests/fuzz/<name>.cc over the folder tests/fuzz/corpus/<name>, or, where
# the files are many, the archive <name>.tar.xz
function(fuzz_target name)
  cmake_parse_arguments(F "" "" "DEPS" ${ARGN})
  tandem_targets(deps ${F_DEPS})
  add_executable(fuzz_${name} fuzz/${name}.cc)
  target_link_libraries(fuzz_${name} PRIVATE tandem_tests_fuzz ${deps})
  set_target_properties(fuzz_${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  if(TANDEM_FUZZ)
    target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
    add_dependencies(fuzz_targets fuzz_${name})
    return()
  endif()
  target_link_libraries(fuzz_${name} PRIVATE fuzz_corpus_main)
  set(corpus ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/corpus/${name})
  if(EXISTS ${corpus}.tar.xz)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${corpus}.tar.xz)
    set(archive ${corpus}.tar.xz)
    set(corpus ${CMAKE_CURRENT_BINARY_DIR}/fuzz/corpus/${name})
    file(REMOVE_RECURSE ${corpus})
    file(ARCHIVE_EXTRACT INPUT ${archive} DESTINATION ${corpus})
  endif()
  add_test(NAME fuzz_${name} COMMAND fuzz_${name} ${corpus})
  set_tests_properties(fuzz_${name} PROPERTIES LABELS "property;fuzz" TIMEOUT 600)
endfunction()

if(TANDEM_FUZZ)
  add_custom_target(fuzz_targets)
else()
  add_library(fuzz_corpus_main OBJECT fuzz/corpus_main.cc)
  target_link_libraries(fuzz_corpus_main PRIVATE tandem_tests_fuzz)
  target_include_directories(fuzz_corpus_main PRIVATE ${CMAKE_SOURCE_DIR})  # tests/support/environment.h alone
endif()

# libFuzzer for a minute, over all targets, where the preset fuzz was built.
add_test(NAME fuzz COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/run.sh --built 60)
set_tests_properties(fuzz PROPERTIES LABELS fuzz TIMEOUT 300 SKIP_REGULAR_EXPRESSION "SKIPPED:")

fuzz_target(http DEPS frontend/http)
fuzz_target(json_body DEPS frontend/anthropic frontend/openai nlohmann_json::nlohmann_json)
fuzz_target(tokenizer_json DEPS frontend/text)
fuzz_target(chat_template DEPS frontend/chat)
fuzz_target(image DEPS media media/decoder)
fuzz_target(safetensors DEPS engine_core/weights tests/support/files)
fuzz_target(config_json DEPS engine_core/weights)
fuzz_target(gguf DEPS gguf engine_core/models engine_core/weights frontend/text tests/support/files)
fuzz_target(packed_file DEPS kernels engine_core/weights tests/support/files)
fuzz_target(hub_listing DEPS deploy/cli/hub)
fuzz_target(kv_remote DEPS engine_core/kv_remote tests/support/kv_remote)
fuzz_target(flight_file DEPS engine_core/recorder)
fuzz_target(wire_input DEPS proto_msgpack)
fuzz_target(wire_output DEPS proto_msgpack)
fuzz_target(kv_events DEPS proto_msgpack)
