# Tests that run the real binaries. The Python ones use the clients in build/venv when they are there.
find_program(TANDEM_TEST_PYTHON NAMES python3 PATHS ${CMAKE_SOURCE_DIR}/build/venv/bin NO_DEFAULT_PATH)
if(NOT TANDEM_TEST_PYTHON)
  set(TANDEM_TEST_PYTHON ${Python3_EXECUTABLE})
endif()

# python_test(<name> <script> [arguments …])
function(python_test name script)
  add_test(NAME ${name} COMMAND ${TANDEM_TEST_PYTHON} ${CMAKE_SOURCE_DIR}/tests/${script} ${ARGN})
  set_tests_properties(${name} PROPERTIES LABELS integration TIMEOUT 300 SKIP_REGULAR_EXPRESSION "SKIPPED:"
    ENVIRONMENT "TANDEM_BIN_DIR=${CMAKE_BINARY_DIR}/bin")
endfunction()

# python_test_classes(<name> <script>) makes a test of each of its classes, so that none is left out.
function(python_test_classes name script)
  set(path ${CMAKE_SOURCE_DIR}/tests/${script})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${path})
  file(STRINGS ${path} lines REGEX "^class [A-Za-z]+\\(unittest\\.TestCase\\):")
  foreach(line ${lines})
    string(REGEX REPLACE "^class ([A-Za-z]+).*" "\\1" class "${line}")
    python_test(${name}_${class} ${script} ${class})
  endforeach()
endfunction()

python_test_classes(pair integration/pair_test.py)
python_test_classes(bench integration/bench_test.py)
python_test_classes(offline integration/offline_test.py)

# The wire against an engine and against a frontend that share no code with ours.
python_test(engine_wire integration/engine_wire_test.py)
# The pair around an engine whose executor hangs when told to.
add_executable(hanging-engine support/hanging_engine.cc)
set_target_properties(hanging-engine PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin/hanging)
tandem_targets(hanging_engine_deps engine_core tests/simulation)
target_link_libraries(hanging-engine PRIVATE ${hanging_engine_deps})
python_test(watchdog integration/watchdog_test.py)
# The real engine core with a fault in it: its own objects, and one function that is called in place
# of another.
add_executable(faulty-engine $<TARGET_OBJECTS:tandem-engine-core> support/engine_fault.cc)
set_target_properties(faulty-engine PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin/faulty)
tandem_targets(faulty_engine_deps engine_core)
target_link_libraries(faulty-engine PRIVATE ${faulty_engine_deps} Threads::Threads)
target_link_options(faulty-engine PRIVATE -Wl,--wrap=_ZN6tandem10InputBatch11AppendTokenENS_11RequestSlotEi)
python_test_classes(flight_recorder integration/flight_recorder_test.py)
python_test_classes(resume integration/resume_test.py)
python_test_classes(operations integration/operations_test.py)
python_test_classes(deadlines integration/deadlines_test.py)
python_test(gdb integration/gdb_test.py)
python_test(soak integration/soak_test.py)
python_test(idle_connections integration/idle_connections_test.py)
python_test(ports integration/ports_test.py)
python_test_classes(prompt_embeds integration/prompt_embeds_test.py)
python_test(alerts integration/alerts_test.py)
python_test(kv_events integration/kv_events_test.py)
python_test(async_scheduling integration/async_scheduling_test.py)
python_test(corrupted integration/corrupted_test.py)
python_test(dev_routes integration/dev_routes_test.py)
python_test(kv_cache integration/kv_cache_test.py)
python_test(sampling integration/sampling_test.py)
python_test(beam_search integration/beam_search_test.py)
python_test(thinking integration/thinking_test.py)
python_test_classes(forced_calls integration/forced_calls_test.py)
tandem_test(integration_wire LABEL integration SRCS integration/mock_engine_test.cc
  DEPS frontend/engine_client tests/support nlohmann_json::nlohmann_json)
target_compile_definitions(integration_wire PRIVATE TANDEM_TEST_PYTHON="${TANDEM_TEST_PYTHON}")
python_test(quantization integration/quantization_test.py)
python_test(systemd integration/systemd_test.py)
python_test(frontend_process integration/frontend_process_test.py)
python_test_classes(api integration/api_test.py)
python_test_classes(openai_client integration/openai_client_test.py)
if(TANDEM_HAS_XGRAMMAR)
  python_test_classes(structured_outputs integration/structured_outputs_test.py)
endif()
python_test_classes(messages integration/messages_test.py)
python_test(clients integration/clients_test.py)
python_test_classes(render integration/render_test.py)
python_test_classes(openapi integration/openapi_test.py)

# vLLM's own frontend over our engine core. Its binary is downloaded only when TANDEM_INTEROP is set;
# without it the test is skipped and says so.
add_test(NAME interop COMMAND ${CMAKE_SOURCE_DIR}/tests/interop/run.sh --no-download)
set_tests_properties(interop PROPERTIES LABELS interop TIMEOUT 600 SKIP_REGULAR_EXPRESSION "SKIPPED:"
  ENVIRONMENT "TANDEM_BIN_DIR=${CMAKE_BINARY_DIR}/bin")
python_test_classes(bench integration/bench_sweep_test.py)
