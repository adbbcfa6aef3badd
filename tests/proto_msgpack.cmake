# tandem_test() lines of tests over proto_msgpack.
module(tests/support SRCS wire_json.cc wire_pair.cc DEPS common proto_msgpack tests/support/files tests/support/gzip nlohmann_json::nlohmann_json)
target_compile_definitions(tandem_tests_support PRIVATE TANDEM_GOLDEN_DIR="${CMAKE_SOURCE_DIR}/tests/golden")
tandem_test(golden_wire LABEL golden SRCS golden/wire_test.cc DEPS proto_msgpack tests/support)
tandem_test(golden_coordinator_clock LABEL golden SRCS golden/coordinator_clock_test.cc DEPS proto_msgpack tests/support tests/support/gzip)
tandem_test(unit_wire_endpoint LABEL unit SRCS unit/proto_msgpack/wire_endpoint_test.cc
  unit/proto_msgpack/engine_seats_test.cc unit/proto_msgpack/hand_over_test.cc unit/proto_msgpack/handshake_address_test.cc
  unit/proto_msgpack/ipc_folder_test.cc unit/proto_msgpack/kv_connector_stats_test.cc unit/proto_msgpack/kv_events_test.cc
  unit/proto_msgpack/tcp_keys_test.cc unit/proto_msgpack/wire_endpoint_socket_test.cc
  DEPS proto_msgpack tests/support cppzmq)
target_include_directories(unit_wire_endpoint PRIVATE unit/proto_msgpack)
tandem_test(unit_multimodal_wire LABEL unit SRCS unit/proto_msgpack/multimodal_test.cc DEPS proto_msgpack tests/support)
tandem_test(property_codec LABEL property SRCS property/codec_test.cc
  unit/proto_msgpack/allocations_test.cc DEPS proto_msgpack tests/support tests/support/heap)
